"""All rules of all subscriptions of one topic, and which copies of a message they make (docs/protocol/semantics.md#topics).

Changing a rule touches only its own place; the copies that every message makes, whatever it is, are worked
out again at the next match. Nothing here knows of the broker, its storage or its dead-letter queues: the
result only says what is due, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polybus.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from polybus.limits import CORRELATION_RULES_PER_TOPIC, SQL_RULES_PER_TOPIC
from polybus.rules.evaluation import Evaluation, IdSource, RuleBudget, no_ids
from polybus.rules.failure import RuleEvaluationError, budget_spent
from polybus.rules.filters import CorrelationFilter, Filter, SqlFilter
from polybus.rules.rule import Copy, Rule
from polybus.rules.selection import Failure, PlacedRule, Selection
from polybus.rules.view import MessageView


class TopicRules:
    """`match` tells which copies a message makes; the other methods keep the rules."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, dict[str, PlacedRule]] = {}
        self._selection = Selection()
        self._next_number = 0
        self._sql_filters = 0
        self._correlation_filters = 0
        self._stale = False
        # What every message makes: plain copies, and the entries that act on it.
        self._given: dict[int, Copy] = {}
        self._acting: list[PlacedRule] = []

    @classmethod
    def with_rules(cls, rules: Mapping[int, Iterable[Rule]]) -> TopicRules:
        """The rules of every subscription, by its id."""
        topic = cls()
        for subscription, of_subscription in rules.items():
            for rule in of_subscription:
                topic.add(subscription, rule)
        return topic

    def rules_of(self, subscription: int) -> list[Rule]:
        """The subscription's rules in the order in which they were added."""
        return [entry.rule for entry in self._subscriptions.get(subscription, {}).values()]

    @property
    def asked(self) -> int:
        """How many SQL filters look at each message."""
        return self._selection.asked

    def add(self, subscription: int, rule: Rule) -> None:
        """EntityAlreadyExists if the subscription has that name, QuotaExceeded if the topic is full."""
        entries = self._subscriptions.get(subscription, {})
        if rule.name in entries:
            raise EntityAlreadyExists(f"The subscription already has a rule named '{rule.name}'.")
        self.check_room(*_counted(rule.filter))
        self._next_number += 1
        self._insert(PlacedRule(self._next_number, subscription, rule))

    def replace(self, subscription: int, rule: Rule) -> None:
        """Puts the rule in the place of the one of the same name; EntityNotFound if there is none."""
        old = self._entry(subscription, rule.name)
        if type(rule.filter) is not type(old.rule.filter):
            self.check_room(*_counted(rule.filter))
        self._take_out(old)
        self._insert(PlacedRule(old.number, subscription, rule))

    def remove(self, subscription: int, name: str) -> None:
        """EntityNotFound if the subscription has no rule of that name."""
        entry = self._entry(subscription, name)
        self._take_out(entry)
        del self._subscriptions[subscription][name]

    def remove_subscription(self, subscription: int) -> None:
        """Removes all its rules; harmless if it has none."""
        for entry in self._subscriptions.pop(subscription, {}).values():
            self._take_out(entry)

    def _entry(self, subscription: int, name: str) -> PlacedRule:
        entry = self._subscriptions.get(subscription, {}).get(name)
        if entry is None:
            raise EntityNotFound(f"The subscription has no rule named '{name}'.")
        return entry

    def check_room(self, sql: int, correlation: int) -> None:
        """QuotaExceeded if the topic cannot take so many more filters of each kind (docs/protocol/semantics.md#quotas)."""
        if sql > 0 and self._sql_filters + sql > SQL_RULES_PER_TOPIC:
            raise QuotaExceeded(f"A topic cannot have more than {SQL_RULES_PER_TOPIC} SQL filters.")
        if correlation > 0 and self._correlation_filters + correlation > CORRELATION_RULES_PER_TOPIC:
            most = CORRELATION_RULES_PER_TOPIC
            raise QuotaExceeded(f"A topic cannot have more than {most} correlation filters.")

    def _insert(self, entry: PlacedRule) -> None:
        self._subscriptions.setdefault(entry.subscription, {})[entry.rule.name] = entry
        self._selection.insert(entry)
        self._count(entry.rule.filter, 1)

    def _take_out(self, entry: PlacedRule) -> None:
        self._selection.take_out(entry)
        self._count(entry.rule.filter, -1)

    def _count(self, counted: Filter, by: int) -> None:
        sql, correlation = _counted(counted)
        self._sql_filters += by * sql
        self._correlation_filters += by * correlation
        self._stale = True

    def _refresh(self) -> None:
        always = self._selection.always
        entries = [always[number] for number in sorted(always)]
        self._acting = [entry for entry in entries if entry.action is not None]
        plain = sorted(entry.subscription for entry in entries if entry.action is None)
        self._given = {subscription: Copy(subscription, None, [], None) for subscription in plain}
        self._stale = False

    def match(self, view: MessageView, ids: IdSource = no_ids) -> list[Copy]:
        """The copies, by subscription: the plain one, then those of acting rules as added, then a failure.

        Where several rules of a subscription fail, the one added first is told: a message is dead-lettered
        once. `ids` is where newid() takes its ids from.
        """
        if self._stale:
            self._refresh()
        copies = list(self._given.values())
        if self._selection.is_fixed and not self._acting:
            return copies
        failures: list[Failure] = []
        budget = RuleBudget()
        selected = self._selection.select(Evaluation(view, ids, budget), failures)
        if budget.left < 0:
            failures.extend(self._unjudged(selected))
        if not selected and not failures and not self._acting:
            return copies
        selected.extend(self._acting)
        selected.sort(key=_number)
        copies.extend(self._plain(selected))
        copies.extend(_acted(selected, view, ids, budget, failures))
        copies.extend(_failed(failures))
        copies.sort(key=_subscription)
        return copies

    def _unjudged(self, selected: list[PlacedRule]) -> list[Failure]:
        """One failure for each subscription of which it is not known whether it wants the message."""
        served = {entry.subscription for entry in selected}
        error = budget_spent()
        return [
            Failure(next(iter(entries.values())), error)
            for subscription, entries in self._subscriptions.items()
            if entries and subscription not in served and subscription not in self._given
        ]

    def _plain(self, selected: list[PlacedRule]) -> list[Copy]:
        """One copy for each subscription that has matching rules without an action and is not served yet."""
        found: dict[int, Copy] = {}
        for entry in selected:
            subscription = entry.subscription
            if entry.action is None and subscription not in self._given and subscription not in found:
                found[subscription] = Copy(subscription, None, [], None)
        return list(found.values())


def _counted(filter: Filter) -> tuple[int, int]:  # noqa: A002
    """For how many SQL filters and how many correlation filters it counts."""
    return int(isinstance(filter, SqlFilter)), int(isinstance(filter, CorrelationFilter))


def _acted(
    selected: list[PlacedRule], view: MessageView, ids: IdSource, budget: RuleBudget, failures: list[Failure]
) -> list[Copy]:
    """A copy for each matching rule with an action; one whose action fails is a failure instead."""
    copies: list[Copy] = []
    for entry in selected:
        if entry.action is not None:
            try:
                changes = entry.action.apply(view, ids, budget)
                copies.append(Copy(entry.subscription, entry.rule.name, changes, None))
            except RuleEvaluationError as error:
                failures.append(Failure(entry, error))
    return copies


def _failed(failures: list[Failure]) -> list[Copy]:
    found: dict[int, Copy] = {}
    for failure in sorted(failures, key=lambda failure: failure.entry.number):
        entry = failure.entry
        if entry.subscription not in found:
            found[entry.subscription] = Copy(entry.subscription, entry.rule.name, [], failure.error)
    return list(found.values())


def _number(entry: PlacedRule) -> int:
    return entry.number


def _subscription(copy: Copy) -> int:
    return copy.subscription
