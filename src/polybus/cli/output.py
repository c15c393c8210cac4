"""What commands print, and how they end: tables for people, JSON for machines, one line for whatever went wrong.

Scripts rely on the exit codes: 0 done, 1 refused by the bus, 2 used or configured wrongly, 3 nobody answers.
"""

from __future__ import annotations

import datetime
import enum
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from polybus.errors import BusError, PolybusError
from polybus.gateway.durations import INFINITE_MS, duration_text
from polybus.namespace.entities.timespan import INFINITE_DAYS

REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
WIDE: Final = 200
"""Columns of a table that goes into a pipe."""


class CommandFailure(Exception):
    """Ends a command with one line and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class CommandOutput:
    """Standard output, in the form that was asked for."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def result(self, data: object, text: str) -> None:
        """What a command did: data for machines, a sentence for people."""
        if self.as_json:
            self.json(data)
        else:
            typer.echo(text)

    def json(self, data: object) -> None:
        typer.echo(json.dumps(data, indent=2, default=plain))

    def line(self, data: object) -> None:
        """One object of a stream, on a line of its own."""
        typer.echo(json.dumps(data, default=plain))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], nothing: str = "") -> None:
        """`#` before a column's name: numbers. `~`: it is cut off where the terminal is too narrow for all. Without
        rows there is no table but `nothing`."""
        found = list(rows)
        if not found and nothing:
            typer.echo(nothing)
            return
        cells = [[_cell(value) for value in row] for row in found]
        shown = console()
        widths = _widths(columns, cells, shown.width)
        table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for column, width in zip(columns, widths, strict=True):
            cut = column.startswith("~")
            table.add_column(
                column.lstrip("#~"),
                justify="right" if column.startswith("#") else "left",
                overflow="ellipsis" if cut else "fold",
                no_wrap=cut or column.startswith("#"),
                max_width=width if cut else None,
            )
        for row in cells:
            table.add_row(*row)
        shown.print(table)

    def properties(self, title: str, values: Mapping[str, object]) -> None:
        self.table(title, ("property", "value"), values.items())


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """What each column gets: all that it needs, or, of those that may be cut off, an even part of what is left."""
    needed = [
        max(map(len, (name.lstrip("#~"), *(row[place] for row in cells)))) for place, name in enumerate(columns)
    ]
    fixed = sum(width for name, width in zip(columns, needed, strict=True) if not name.startswith("~"))
    left = room - fixed - _GAP * (len(columns) - 1)
    greedy = sorted((place for place, name in enumerate(columns) if name.startswith("~")), key=needed.__getitem__)
    while greedy:
        place = greedy.pop(0)
        needed[place] = min(needed[place], max(left // (len(greedy) + 1), _NARROWEST))
        left -= needed[place]
    return needed


_GAP: Final = 2
_NARROWEST: Final = 4


def console() -> Console:
    """Made for each use, so that it writes to what standard output is now; wide where nobody looks."""
    made = Console(highlight=False)
    if made.is_terminal:
        return made
    given = os.environ.get("COLUMNS", "")
    return Console(highlight=False, width=int(given) if given.isdecimal() else WIDE)


def when(value: datetime.datetime) -> str:
    """A time as people read it: of their own clock, without the date where it is today's."""
    if value.year <= 1:
        return "never"
    local = value.astimezone()
    today = datetime.datetime.now().astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"


def size(count: int | None) -> str | None:
    """Bytes as people read them."""
    if count is None or count < 1_000:
        return None if count is None else f"{count} B"
    power = min(len(str(count)) - 1, 14) // 3
    return f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


_NEVER: Final = (duration_text(INFINITE_MS), "0001-01-01T00:00:00+00:00", "0001-01-01T00:00:00")
"""How the cloud writes durations without end, and times that have not come yet."""


def _cell(value: object) -> str:
    if isinstance(value, datetime.datetime):
        return when(value)
    shown = plain(value)
    if shown is None:
        return "-"
    if shown in _NEVER:
        return "never"
    if isinstance(shown, bool):
        return "yes" if shown else "no"
    if isinstance(shown, int):
        return f"{shown:,}"
    return escape(str(shown))


def plain(value: Any) -> Any:
    """A value as JSON has it: durations and times in ISO 8601, bytes as text where they are text."""
    if isinstance(value, datetime.timedelta):
        ms = value // datetime.timedelta(milliseconds=1)
        return duration_text(INFINITE_MS if value.days >= INFINITE_DAYS else ms)
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, enum.Enum):
        return value.value
    return value if isinstance(value, str | int | float | bool | list | dict | type(None)) else str(value)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever a command runs into becomes one clear line on standard error, and an exit code."""
    try:
        yield
    except CommandFailure as error:
        _fail(str(error), error.code)
    except BusError as error:
        _fail(str(error), REFUSED)
    except (PolybusError, OSError, ValueError) as error:
        _fail(str(error) or type(error).__name__, USAGE)


def _fail(text: str, code: int) -> None:
    sys.stdout.flush()
    typer.echo(f"polybus: {' '.join(text.split())}", err=True)
    raise typer.Exit(code) from None
