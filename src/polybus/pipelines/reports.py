"""Reports as one HTML page that needs nothing else: plots beside the tables of their numbers.

A page is written beside its place and then renamed, so that whoever looks at it never sees half of one. It holds no
script and fetches nothing; the reader's own setting decides between light and dark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Final

from polybus.pipelines.charts import number_text

Cell = str | float | int | None
_SHORT_CHARACTERS: Final = 20
"""Texts up to here stay in one line of a table; a message's key may have 128 characters and no space."""

_STYLE: Final = """
.polybus { color-scheme: light dark; --ground: #ffffff; --ink: #1c2126; --soft: #5d6670; --rule: #d9dee3;
  --c1: #1f6fb2; --c2: #b4540a; --c3: #2d7d46; --c4: #8a3fa0; --mark: #b3261e;
  background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; padding: 1.5rem; }
@media (prefers-color-scheme: dark) { .polybus { --ground: #15191d; --ink: #e6eaee; --soft: #9aa5b0; --rule: #333b43;
  --c1: #6cb2f0; --c2: #f0a060; --c3: #74c78d; --c4: #cf92e0; --mark: #ff8a80; } }
.polybus h1 { font-size: 1.5rem; margin: 0; }
.polybus h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
.polybus p { margin: .3rem 0; }
.polybus figure { margin: 0; overflow-x: auto; }
.polybus .soft { color: var(--soft); }
.polybus .pair { display: grid; gap: 1.5rem; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: start; }
@media (max-width: 60rem) { .polybus .pair { grid-template-columns: minmax(0, 1fr); } }
.polybus .scroll { max-height: 22rem; overflow: auto; }
.polybus table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; width: 100%; }
.polybus th, .polybus td { background: var(--ground); border-bottom: 1px solid var(--rule); padding: .15rem .4rem;
  text-align: left; }
.polybus th { color: var(--soft); font-weight: 600; position: sticky; top: 0; vertical-align: bottom; }
.polybus td { white-space: nowrap; }
.polybus .long { min-width: 9rem; overflow-wrap: anywhere; white-space: normal; }
.polybus .number { text-align: right; }
.polybus figure > svg { display: block; width: 100%; min-width: 32rem; height: auto; }
.polybus svg text { fill: var(--soft); font-size: 13px; }
.polybus svg .title { font-weight: 600; }
.polybus .grid { stroke: var(--rule); }
.polybus .bar { fill: var(--c1); }
.polybus .mark { stroke: var(--mark); stroke-dasharray: 5 4; }
.polybus .line { fill: none; stroke-width: 2; }
.polybus .c1 { --own: var(--c1); }
.polybus .c2 { --own: var(--c2); }
.polybus .c3 { --own: var(--c3); }
.polybus .c4 { --own: var(--c4); }
.polybus .line { stroke: var(--own); }
.polybus .dot { fill: var(--own); }
.polybus .legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; color: var(--soft); }
.polybus .key::before { background: var(--own); content: ""; display: inline-block; width: .8em; height: .8em;
  margin-right: .4em; border-radius: 2px; }
"""
"""Everything is under one class: a notebook shows reports inside of its own page."""


@dataclass(frozen=True)
class ReportTable:
    """Numbers under their headings. Columns of numbers are set to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def _numeric(self, place: int) -> bool:
        return bool(self.rows) and all(not isinstance(row[place], str) for row in self.rows)

    def html(self) -> str:
        numeric = [self._numeric(place) for place in range(len(self.headings))]
        head = "".join(_cell("th", heading, right) for heading, right in zip(self.headings, numeric, strict=True))
        body = "".join(
            f"<tr>{''.join(_cell('td', cell, right) for cell, right in zip(row, numeric, strict=True))}</tr>"
            for row in self.rows
        )
        body = body or f'<tr><td class="soft" colspan="{len(self.headings)}">none</td></tr>'
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


@dataclass(frozen=True)
class Section:
    """One question: a heading, a sentence or two, and the answer as a plot and as numbers."""

    heading: str
    text: str
    plot: str | None = None
    table: ReportTable | None = None

    def html(self) -> str:
        parts = [] if self.plot is None else [f"<figure>{self.plot}</figure>"]
        parts += [] if self.table is None else [self.table.html()]
        shown = f'<div class="{"pair" if len(parts) == 2 else "alone"}">{"".join(parts)}</div>'
        return f"<section><h2>{escape(self.heading)}</h2><p>{escape(self.text)}</p>{shown}</section>"

    def _repr_html_(self) -> str:
        """The section in a notebook."""
        return f'<div class="polybus"><style>{_STYLE}</style>{self.html()}</div>'


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """A whole HTML document."""
    body = "".join(section.html() for section in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>body {{ margin: 0; }} {_STYLE}</style></head>"
        f'<body class="polybus"><main><h1>{escape(title)}</h1><p class="soft">{escape(subtitle)}</p>{body}</main>'
        "</body></html>\n"
    )


def write_page(path: Path, content: str) -> None:
    """Puts a page in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(content, encoding="utf-8")
    beside.replace(path)


def remove_older(folder: Path, since: datetime) -> None:
    """Removes the folders of batches that were written before a time."""
    for path in folder.iterdir():
        if "=" in path.name and path.is_dir() and path.stat().st_mtime < since.timestamp():
            shutil.rmtree(path, ignore_errors=True)


def time_text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _cell(tag: str, cell: Cell, right: bool) -> str:
    text = cell if isinstance(cell, str) else number_text(cell)
    name = "number" if right else "long" if tag == "td" and len(text) > _SHORT_CHARACTERS else ""
    return f"<{tag}{f' class={name}' if name else ''}>{escape(text)}</{tag}>"
