"""Plots as inline SVG: bars, horizontal bars and lines, drawn by a few functions and nothing that must be fetched.

A plot has a fixed inner coordinate system and scales with its page; colours are variables of the page, so that it is
readable in light and in dark. Every mark carries its number as a tooltip. What is drawn is only arithmetic: no clock,
no file, no bus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 260
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 14
_BOTTOM: Final = 40
_ROW: Final = 22
"""Height of one horizontal bar with its gap."""
_NAMES: Final = 190
"""Width that the names of horizontal bars have."""
_SHOWN_CHARACTERS: Final = 26
_CHARACTER: Final = 7
"""Width of a character, on average."""
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


def scale_to(largest: float, ticks: int = 5) -> Scale:
    """A scale that holds the largest value."""
    if not _SMALLEST < largest < math.inf:
        return Scale(1.0, 0.5)
    rough = largest / ticks
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


def short_text(value: float) -> str:
    """A number for an axis, in few characters."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.4g}{name}"
    return f"{value:.4g}"


def bars(label: str, names: Sequence[str], values: Sequence[float], *, mark: float | None = None) -> str:
    """Vertical bars, one for each name, with a line at `mark` (such as the mean)."""
    scale = scale_to(max([*values, mark or 0.0], default=0.0))
    inner = WIDTH - _LEFT - _RIGHT
    slot = inner / max(len(values), 1)
    thick = max(slot * 0.72, 1.0)
    drawn = [_axis(scale)]
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
    drawn = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        y = _TOP + place * _ROW
        width = inner * value / scale.top
        shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[: _SHOWN_CHARACTERS - 1]}…"
        drawn.append(_text(_NAMES - 8, y + 12, shown, "end"))
        drawn.append(_bar(_NAMES, y, width, _ROW - 7, f"{name}: {number_text(value)}"))
        drawn.append(_text(_NAMES + width + 6, y + 12, number_text(value), "start"))
    return _svg(label, 2 * _TOP + _ROW * max(len(values), 1), drawn)


def lines(label: str, names: Sequence[str], series: Sequence[Series]) -> str:
    """Lines over the same points; where a value is missing a line is interrupted."""
    assert len(series) <= COLOURS, f"a plot has at most {COLOURS} lines"
    known = [value for each in series for value in each.values if value is not None]
    scale = scale_to(max(known, default=0.0))
    step = (WIDTH - _LEFT - _RIGHT) / max(len(names) - 1, 1)

    def at(place: int) -> float:
        return _LEFT + place * step if len(names) > 1 else (WIDTH + _LEFT - _RIGHT) / 2

    drawn = [_axis(scale)]
    for colour, each in enumerate(series, 1):
        for run in _runs(each.values):
            points = " ".join(f"{at(place):.1f},{_y(value, scale):.1f}" for place, value in run)
            drawn.append(f'<polyline class="line c{colour}" points="{points}"/>')
        for run in _runs(each.values):
            drawn += [
                f'<circle class="dot c{colour}" cx="{at(place):.1f}" cy="{_y(value, scale):.1f}" r="2.5">'
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


def _y(value: float, scale: Scale) -> float:
    inner = HEIGHT - _TOP - _BOTTOM
    return HEIGHT - _BOTTOM - inner * value / scale.top


def _axis(scale: Scale) -> str:
    drawn = []
    for tick in scale.ticks:
        y = _y(tick, scale)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(_text(_LEFT - 8, y + 4, short_text(round(tick, 12)), "end"))
    return "".join(drawn)


def _labels(names: Sequence[str], at: Callable[[int], float]) -> list[str]:
    """Names below a plot, as many as have room; none sticks out."""
    longest = max((len(name) for name in names), default=0) * _CHARACTER
    fitting = max((WIDTH - _LEFT - _RIGHT) // (longest + 12), 1)
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
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'
