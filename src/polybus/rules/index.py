"""Finds the correlation filters that match a message without asking each one.

Filters that compare the same names form a group; within it the compared values, taken together, are the key
of a dictionary, so a group costs one look-up however many filters it has. A group that compares user
properties is looked at only if the message has the first of them, so names that the message lacks cost
nothing either.
"""

from __future__ import annotations

from polybus.rules.evaluation import Evaluation
from polybus.rules.filters import CorrelationFilter, correlation_key


class Group:
    """All filters that compare the same names."""

    def __init__(self, names: tuple[tuple[bool, str], ...]) -> None:
        self.names = names
        self.entries: dict[tuple[object, ...], list[int]] = {}
        self.first_property: str | None = None
        for system, name in names:
            if not system:
                self.first_property = name
                break

    def collect(self, message: Evaluation, found: list[int]) -> None:
        keys: list[object] = []
        for system, name in self.names:
            key = correlation_key(message.system(name) if system else message.user.get(name))
            if key is None:
                return
            keys.append(key)
        numbers = self.entries.get(tuple(keys))
        if numbers is not None:
            found.extend(numbers)


class CorrelationIndex:
    """Correlation filters by number; adding and removing one costs the same however many there are."""

    def __init__(self) -> None:
        self._groups: dict[tuple[tuple[bool, str], ...], Group] = {}
        self._system_only: list[Group] = []
        self._by_property: dict[str, list[Group]] = {}

    def add(self, number: int, correlation: CorrelationFilter) -> None:
        group = self._groups.get(correlation.names)
        if group is None:
            group = self._opened(correlation.names)
        group.entries.setdefault(correlation.wanted, []).append(number)

    def _opened(self, names: tuple[tuple[bool, str], ...]) -> Group:
        group = Group(names)
        self._groups[names] = group
        if group.first_property is None:
            self._system_only.append(group)
        else:
            self._by_property.setdefault(group.first_property, []).append(group)
        return group

    def remove(self, number: int, correlation: CorrelationFilter) -> None:
        group = self._groups[correlation.names]
        numbers = group.entries[correlation.wanted]
        numbers.remove(number)
        if not numbers:
            del group.entries[correlation.wanted]
        if not group.entries:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        del self._groups[group.names]
        name = group.first_property
        if name is None:
            self._system_only.remove(group)
            return
        self._by_property[name].remove(group)
        if not self._by_property[name]:
            del self._by_property[name]

    @property
    def is_empty(self) -> bool:
        return not self._groups

    def matching(self, message: Evaluation) -> list[int]:
        """The numbers of the filters that match, in no particular order but always in the same one."""
        found: list[int] = []
        self._collect(self._system_only, message, found)
        if self._by_property:
            for name in message.user:
                groups = self._by_property.get(name)
                if groups is not None:
                    self._collect(groups, message, found)
        return found

    def _collect(self, groups: list[Group], message: Evaluation, found: list[int]) -> None:
        """Asks groups for as long as the message's budget lasts; whoever asked looks whether it did."""
        budget = message.budget
        for group in groups:
            if budget.left < 0:
                return
            budget.left -= 1 + len(group.names)
            group.collect(message, found)
