"""What must hold of a report's page in a browser, whatever it shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.pipelines.browser import Browser

MEASURE = """
(() => {
  const box = (element) => element.getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
  const plots = [...document.querySelectorAll('figure > svg')];
  const touching = [], outside = [];
  for (const plot of plots) {
    const texts = [...plot.querySelectorAll('text')];
    const clip = (text) => {
      const own = box(text), inner = text.closest('svg');
      const most = inner === plot ? Infinity : inner.width.baseVal.value * box(plot).width / plot.viewBox.baseVal.width;
      return {left: own.left, right: Math.min(own.right, own.left + most), top: own.top, bottom: own.bottom};
    };
    texts.forEach((text, at) => {
      const own = clip(text), frame = box(plot);
      if (own.left < frame.left - 1 || own.right > frame.right + 1 || own.bottom > frame.bottom + 1)
        outside.push(text.textContent);
      texts.slice(at + 1).forEach((other) => {
        if (!apart(own, clip(other))) touching.push([text.textContent, other.textContent]);
      });
    });
  }
  const tables = [...document.querySelectorAll('.scroll')];
  const style = (chosen, name) => {
    const found = document.querySelector(chosen);
    return found && getComputedStyle(found)[name];
  };
  return {
    plots: plots.map((plot) => [plot.getAttribute('aria-label'), box(plot).width, box(plot).height]),
    touching, outside,
    tables: tables.length,
    cut: tables.filter((table) => table.scrollWidth > table.clientWidth + 1).map((table) => table.innerText.slice(0, 80)),
    broken: [...document.querySelectorAll('th, tr:not(:has(.long)) > td')]
      .filter((cell) => box(cell).height > 64).map((cell) => cell.innerText),
    wide: document.documentElement.scrollWidth - innerWidth,
    ground: style('body', 'backgroundColor'),
    bar: style('.bar', 'fill') || style('.key', 'color'),
  };
})()
"""


@dataclass(frozen=True)
class Look:
    ground: str
    bar: str


def look_at(browser: Browser, path: Path, plots: int, *, dark: bool = False, width: int = 1280) -> Look:
    """Opens a page and looks for what a reader would stumble over."""
    with browser.shown(path, dark=dark, width=width) as shown:
        assert shown.complaints == []
        assert shown.requests == [path.as_uri()]
        seen: dict[str, Any] = shown.value(MEASURE)
    assert len(seen["plots"]) == seen["tables"] == plots
    assert all(label and across > 400 and high > 40 for label, across, high in seen["plots"])
    assert seen["touching"] == [], f"labels of a plot that run into each other: {seen['touching']}"
    assert seen["outside"] == [], f"labels that a plot cuts off: {seen['outside']}"
    assert seen["broken"] == [], f"cells of a table that are broken letter by letter: {seen['broken']}"
    assert seen["wide"] <= 0, "the page is wider than the screen"
    if width >= 1280:
        assert seen["cut"] == [], f"tables with columns that are seen only by scrolling: {seen['cut']}"
    return Look(seen["ground"], seen["bar"])
