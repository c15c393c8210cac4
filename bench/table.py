"""Figures with their goals, printed as a table."""

from __future__ import annotations


class Table:
    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, str, str, str]] = []

    def at_most(self, name: str, value: float, goal: float, unit: str) -> None:
        self._rows.append((name, _number(value, unit), f"<= {goal:g} {unit}", "met" if value <= goal else "MISSED"))

    def at_least(self, name: str, value: float, goal: float, unit: str) -> None:
        self._rows.append((name, _number(value, unit), f">= {goal:g} {unit}", "met" if value >= goal else "MISSED"))

    def say(self, name: str, value: float, unit: str) -> None:
        self._rows.append((name, _number(value, unit), "", ""))

    def note(self, text: str) -> None:
        self._rows.append((text, "", "", ""))

    def print(self) -> None:
        widths = [max(len(row[column]) for row in self._rows) for column in range(4)]
        print(self._title)
        for name, value, goal, verdict in self._rows:
            print(f"{name:<{widths[0]}}  {value:>{widths[1]}}  {goal:<{widths[2]}}  {verdict}".rstrip())


def _number(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 1000 else 2
    return f"{value:,.{digits}f} {unit}"
