"""Entities to begin with, for the tests of one partition."""

from __future__ import annotations

from polybus.partition.entry import Entry
from polybus.partition.settings import EntitySettings, LogSettings
from polybus.rules import Rule, TrueFilter
from polybus.rules.actions import SqlAction
from polybus.rules.filters import Filter
from tests.unit.partition.solo import Solo

LOCK_MS = 60_000
ALL = TrueFilter()


def queue(index: int = 0, *, sessions: bool = False, **own: object) -> Solo:
    """A queue; keywords are settings of its log."""
    settings = EntitySettings("q", 16, False)
    settings.own.requires_session = sessions
    for name, value in own.items():
        assert hasattr(settings.own, name)
        setattr(settings.own, name, value)
    return Solo(settings, index)


def topic(*numbers: int, index: int = 0, all_rules: bool = True) -> Solo:
    """A topic with subscriptions of these numbers, each of which takes everything."""
    settings = EntitySettings("t", 16, True)
    for number in numbers:
        settings.subscriptions[number] = LogSettings(number, f"t/Subscriptions/s{number}")
        if all_rules:
            settings.rules.add(number, Rule("$Default", ALL, None, 0))
    return Solo(settings, index)


def add_rule(solo: Solo, number: int, name: str, filter: Filter, action: str | None = None) -> None:  # noqa: A002
    solo.settings.rules.add(number, Rule(name, filter, None if action is None else SqlAction(action), 0))


def main(number: int) -> int:
    """The id of a subscription's log."""
    return number * 4


def body_of(entry: Entry) -> object:
    return entry.loaded().body()[0][1]


def tiny(solo: Solo, entries: int = 2, size: int = 1 << 20) -> Solo:
    """Opens the broker again with windows of so few messages."""
    bounds = solo.settings.bounds
    bounds.window_entries = bounds.page_entries = bounds.session_entries = entries
    bounds.window_bytes = bounds.session_bytes = size
    solo.crash()
    return solo
