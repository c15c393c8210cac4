"""Plots as inline SVG: bars, horizontal bars and lines, drawn by a few functions and nothing that must be fetched.

A plot has a fixed inner coordinate system and scales with its page; colours are variables of the page, so that it is
readable in light and in dark. It says above what it shows and in which unit, and where it shows nothing it says so.
Every mark carries its number as a tooltip. What is drawn is only arithmetic: no clock, no file, no bus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 280
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 36
"""Room for the line that says what is shown."""
_BOTTOM: Final = 40
_TITLE: Final = 14
_ROW: Final = 22
"""Height of one horizontal bar with its gap."""
_NAMES: Final = 190
"""Width that the names of horizontal bars have."""
_SHOWN_CHARACTERS: Final = 24
_SURE_CHARACTERS: Final = 14
"""A name up to here has room whatever its letters; a longer one is cut at its end, not at its beginning."""
_CHARACTER: Final = 8.3
"""Width of a digit in the widest of the usual fonts."""
_DOT: Final = 2.5
_LONE_DOT: Final = 4.5
"""A point without neighbours has no line that leads to it."""
_SMALLEST: Final = 1e-12
"""What is less counts as nothing."""
COLOURS: Final = 4
"""Series that one plot may have: more colours cannot be told apart."""


@dataclass(frozen=True)
class Series:
    """One line: a value for each point, None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Scale:
    """From 0 to a round number, in steps that people read easily."""

    top: float
    step: float

    @property
    def ticks(self) -> list[float]:
        return [number * self.step for number in range(round(self.top / self.step) + 1)]


def scale_to(largest: float, ticks: int = 5, *, whole: bool = False) -> Scale:
    """A scale that holds the largest value; for things that are counted, in whole steps."""
    if not _SMALLEST < largest < math.inf:
        return Scale(1.0, 1.0)
    rough = max(largest / ticks, 1.0 if whole else 0.0)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * (1 - 1e-12))
    return Scale(step * math.ceil(largest / step * (1 - 1e-12)), step)


def number_text(value: float | None) -> str:
    """A number as people read it: 1,234 and 0.25; nothing where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def short_text(value: float, largest: float) -> str:
    """A number for an axis, in few characters and in the unit that its largest number has."""
    for least, unit, name in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return f"{value / unit:.4g}{name}" if value else "0"
    return f"{value:.4g}"


def bars(label: str, names: Sequence[str], values: Sequence[float], *, mark: float | None = None) -> str:
    """Vertical bars, one for each name, with a line at `mark` (such as the mean)."""
    scale = scale_to(max([*values, mark or 0.0], default=0.0), whole=_counted(values))
    inner = WIDTH - _LEFT - _RIGHT
    slot = inner / max(len(values), 1)
    thick = max(slot * 0.72, 1.0)
    drawn = [_axis(scale), *_remark(values)]
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        x = _LEFT + place * slot + (slot - thick) / 2
        y = _y(value, scale)
        drawn.append(_bar(x, y, thick, HEIGHT - _BOTTOM - y, f"{name}: {number_text(value)}"))
    drawn += _labels(names, lambda place: _LEFT + (place + 0.5) * slot)
    if mark is not None:
        y = _y(mark, scale)
        drawn.append(f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return _svg(label, HEIGHT, drawn)


def rows(label: str, names: Sequence[str], values: Sequence[float]) -> str:
    """Horizontal bars with their names before them and their numbers behind, for names that are long."""
    scale = scale_to(max(values, default=0.0))
    inner = WIDTH - _NAMES - 130
    drawn = _remark(values, _TOP + _ROW / 2) if not values else []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        y = _TOP + place * _ROW
        width = inner * value / scale.top
        shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[: _SHOWN_CHARACTERS - 1]}…"
        drawn.append(_name(y, shown))
        drawn.append(_bar(_NAMES, y, width, _ROW - 7, f"{name}: {number_text(value)}"))
        drawn.append(_text(_NAMES + width + 6, y + 12, number_text(value), "start"))
    return _svg(label, _TOP + _ROW * max(len(values), 1) + _TITLE, drawn)


def _name(y: float, name: str) -> str:
    """The name of a horizontal bar, kept to its place."""
    if len(name) <= _SURE_CHARACTERS:
        return _text(_NAMES - 8, y + 12, name, "end")
    place = f'x="0" y="{y:.1f}" width="{_NAMES - 8}" height="{_ROW}" overflow="hidden"'
    return f"<svg {place}>{_text(0, 12, name, 'start')}</svg>"


def lines(label: str, names: Sequence[str], series: Sequence[Series]) -> str:
    """Lines over the same points; where a value is missing a line is interrupted."""
    assert len(series) <= COLOURS, f"a plot has at most {COLOURS} lines"
    known = [value for each in series for value in each.values if value is not None]
    scale = scale_to(max(known, default=0.0), whole=_counted(known))
    step = (WIDTH - _LEFT - _RIGHT) / max(len(names) - 1, 1)

    def at(place: int) -> float:
        return _LEFT + place * step if len(names) > 1 else (WIDTH + _LEFT - _RIGHT) / 2

    drawn = [_axis(scale), *_remark(known)]
    for colour, each in enumerate(series, 1):
        for run in _runs(each.values):
            points = " ".join(f"{at(place):.1f},{_y(value, scale):.1f}" for place, value in run)
            drawn.append(f'<polyline class="line c{colour}" points="{points}"/>')
        for run in _runs(each.values):
            radius = _DOT if len(run) > 1 else _LONE_DOT
            drawn += [
                f'<circle class="dot c{colour}" cx="{at(place):.1f}" cy="{_y(value, scale):.1f}" r="{radius}">'
                f"<title>{escape(f'{each.name}, {names[place]}: {number_text(value)}')}</title></circle>"
                for place, value in run
            ]
    drawn += _labels(names, at)
    return _svg(label, HEIGHT, drawn) + _legend([each.name for each in series])


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Stretches of points without a gap."""
    found: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((place, value))
    return [run for run in found if run]


def _counted(values: Sequence[float]) -> bool:
    return all(isinstance(value, int) for value in values)


def _remark(values: Sequence[float], y: float = (HEIGHT - _BOTTOM + _TOP) / 2) -> list[str]:
    """What an empty plot means."""
    if any(value > _SMALLEST for value in values):
        return []
    return [_text((WIDTH + _LEFT) / 2, y, "0 everywhere" if values else "nothing to show yet", "middle")]


def _y(value: float, scale: Scale) -> float:
    inner = HEIGHT - _TOP - _BOTTOM
    return HEIGHT - _BOTTOM - inner * value / scale.top


def _axis(scale: Scale) -> str:
    drawn = []
    for tick in scale.ticks:
        y = _y(tick, scale)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(_text(_LEFT - 8, y + 4, short_text(round(tick, 12), scale.top), "end"))
    return "".join(drawn)


def _labels(names: Sequence[str], at: Callable[[int], float]) -> list[str]:
    """Names below a plot, as many as have room; none sticks out."""
    longest = max((len(name) for name in names), default=0) * _CHARACTER
    fitting = max(int((WIDTH - _LEFT - _RIGHT) // (longest + 12)), 1)
    every = max(math.ceil(len(names) / fitting), 1)
    drawn = []
    for place in range(0, len(names), every):
        half = len(names[place]) * _CHARACTER / 2
        x = min(max(at(place), half), WIDTH - half)
        drawn.append(_text(x, HEIGHT - _BOTTOM + 18, names[place], "middle"))
    return drawn


def _bar(x: float, y: float, width: float, height: float, title: str) -> str:
    return (
        f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.0):.1f}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    keys = "".join(f'<span class="key c{colour}">{escape(name)}</span>' for colour, name in enumerate(names, 1))
    return f'<p class="legend">{keys}</p>'


def _svg(label: str, height: float, drawn: Sequence[str]) -> str:
    title = f'<text class="title" x="0.0" y="{_TITLE}.0" text-anchor="start">{escape(label)}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"{title}{''.join(drawn)}</svg>"
    )
