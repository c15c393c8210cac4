"""The rules of one topic, sorted by what it costs to ask them, and which of them a message selects.

Filters that give every message the same answer are never asked, correlation filters are in an index, and SQL
filters are asked one by one, sharing what they look up. Adding and removing costs the same however many rules
there are.
"""

from __future__ import annotations

from polybus.rules.evaluation import Evaluation
from polybus.rules.failure import RuleEvaluationError
from polybus.rules.filters import CorrelationFilter, SqlFilter
from polybus.rules.index import CorrelationIndex
from polybus.rules.rule import Rule


class PlacedRule:
    """A rule in its place; numbers rise in the order in which the rules were added."""

    def __init__(self, number: int, subscription: int, rule: Rule) -> None:
        self.number = number
        self.subscription = subscription
        self.rule = rule
        self.action = rule.action


class Failure:
    """A rule that could not be evaluated, or whose action could not."""

    def __init__(self, entry: PlacedRule, error: RuleEvaluationError) -> None:
        self.entry = entry
        self.error = error


class Selection:
    def __init__(self) -> None:
        self.always: dict[int, PlacedRule] = {}
        """The rules whose filter is true for every message."""
        self._entries: dict[int, PlacedRule] = {}
        self._sql: dict[int, SqlFilter] = {}
        self._correlation = CorrelationIndex()

    @property
    def is_fixed(self) -> bool:
        """No rule depends on the message."""
        return not self._sql and self._correlation.is_empty

    def insert(self, entry: PlacedRule) -> None:
        number = entry.number
        asked = entry.rule.filter
        self._entries[number] = entry
        if isinstance(asked, CorrelationFilter):
            self._correlation.add(number, asked)
        elif asked.verdict is True:
            self.always[number] = entry
        elif isinstance(asked, SqlFilter) and asked.verdict is None:
            self._sql[number] = asked

    def take_out(self, entry: PlacedRule) -> None:
        number = entry.number
        asked = entry.rule.filter
        del self._entries[number]
        self.always.pop(number, None)
        self._sql.pop(number, None)
        if isinstance(asked, CorrelationFilter):
            self._correlation.remove(number, asked)

    @property
    def asked(self) -> int:
        """How many SQL filters look at each message."""
        return len(self._sql)

    def select(self, message: Evaluation, failures: list[Failure]) -> list[PlacedRule]:
        """The rules that the message matches, but for those of `always`; failures are added to the list.

        Where the message's budget is spent before all were asked, it is below zero.
        """
        entries = self._entries
        found = [entries[number] for number in self._correlation.matching(message)]
        budget = message.budget
        for number, asked in self._sql.items():
            try:
                budget.spend(2)
                if asked.node.holds(message):
                    found.append(entries[number])
            except RuleEvaluationError as error:
                if budget.left < 0:
                    return found
                failures.append(Failure(entries[number], error))
        return found
