"""Rules that change in a transaction: together with everything else that it does, or not at all (D6).

Rules lie in the catalogue, the transaction's other work in a messaging store. So the store's batch carries an intent:
a row that says what is to be done in the catalogue. Then the catalogue is written, then the intent is removed. Until
that is synced nobody else can change the topic: the one who commits has it for itself, and after a crash or a failure
the topic's partition serves again only when the intent was applied. Applying it twice is harmless.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polybus.errors import EntityAlreadyExists, EntityNotFound, PolybusError, ServerBusy
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes
from polybus.limits import REOPEN_MS
from polybus.namespace.entities.codec import from_dict, to_dict
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.rule import FilterKind, RuleDescription
from polybus.promise import Promise, pause, spawn

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus
    from polybus.namespace.management.changes import Management

Commit = Callable[[bytes], Coroutine[Any, Any, None]]
"""Commits the work of a transaction with its intent."""


class RuleChange:
    """A rule to be added to a subscription; without a description, one to be removed."""

    def __init__(self, subscription: str, name: str, rule: RuleDescription | None) -> None:
        self.subscription = subscription
        self.name = name
        self.rule = rule


class Step:
    """A change with its place in the catalogue."""

    def __init__(self, subscription: int, order: int, name: str, rule: RuleDescription | None) -> None:
        self.subscription = subscription
        self.order = order
        self.name = name
        self.rule = rule


def plan(topic: Entity, changes: list[RuleChange], now_ms: int) -> list[Step]:
    """What the changes come to, one after the other; raises where one of them cannot be."""
    steps: list[Step] = []
    places: dict[tuple[int, str], tuple[int, RuleDescription] | None] = {}
    orders: dict[int, int] = {}
    more: Counter[FilterKind] = Counter()
    for change in changes:
        subscription = topic.subscription(change.subscription)
        place = (subscription.number, fold(change.name))
        known = places.get(place, subscription.rules.get(place[1]))
        path = f"{topic.name}|{change.subscription}|{change.name}"
        if change.rule is None:
            if known is None:
                raise EntityNotFound(f"The messaging entity 'Topic:{path}' could not be found.")
            places[place] = None
            more[known[1].filter.kind] -= 1
            steps.append(Step(subscription.number, known[0], change.name, None))
        else:
            if known is not None:
                raise EntityAlreadyExists(f"The messaging entity 'Topic:{path}' already exists.")
            order = orders.get(subscription.number, subscription.next_rule)
            orders[subscription.number] = order + 1
            rule = replace(change.rule, created_at_ms=now_ms)
            more[rule.filter.kind] += 1
            topic.settings.rules.check_room(more[FilterKind.SQL], more[FilterKind.CORRELATION])
            places[place] = (order, rule)
            steps.append(Step(subscription.number, order, change.name, rule))
    return steps


class TransactionRules:
    """The rule changes of a namespace's transactions."""

    def __init__(self, bus: Bus, management: Management) -> None:
        self._bus = bus
        self._management = management

    async def commit(self, topic: Entity, changes: list[RuleChange], work: Commit) -> None:
        """Commits the work with the changes; where it raises nothing has happened, or it is in doubt."""
        committed: Promise[None] = Promise()

        def ended(promise: Promise[None]) -> None:
            try:
                promise.result()
            except PolybusError as error:
                if committed.settled:
                    self._bus.tell(error)
                else:
                    committed.reject(error)

        spawn(self._management.alone(topic.name, self._commit(topic, changes, work, committed))).then(ended)
        await committed

    async def _commit(self, topic: Entity, changes: list[RuleChange], work: Commit, committed: Promise[None]) -> None:
        steps = plan(topic, changes, self._bus.clock.now().wall_ms)
        await work(encoded(steps))
        _apply(topic, steps)
        try:
            while not await self._applied(topic, steps):
                if not committed.settled:
                    committed.resolve(None)  # it is safe in the store; only the topic has to wait for the catalogue
                await pause(self._bus.loop, REOPEN_MS)
        except ServerBusy:
            pass  # the store is gone: when it is back, so is the intent
        if not committed.settled:
            committed.resolve(None)

    async def _applied(self, topic: Entity, steps: list[Step]) -> bool:
        """Writes the catalogue and removes the intent; False where the catalogue cannot be written now."""
        try:
            await self._bus.catalogue.write(_rows(topic, steps))
        except ServerBusy:
            return self._bus.stopping
        await topic.partitions[0].remove_intent()
        return True


async def apply_intent(bus: Bus, topic: Entity, intent: bytes) -> None:
    """Does in the catalogue, and in memory, what a topic's last transaction intended."""
    steps = _decoded(intent)
    await bus.catalogue.write(_rows(topic, steps))
    _apply(topic, steps)


def _rows(topic: Entity, steps: list[Step]) -> Changes:
    rows = Changes()
    for step in steps:
        key = records.rule_key(topic.id, step.subscription, step.order)
        if step.rule is None:
            rows.delete(key)
        else:
            rows.put(key, to_dict(step.rule))
    return rows


def _apply(topic: Entity, steps: list[Step]) -> None:
    """Brings memory to where the catalogue is, or will be."""
    by_number = {subscription.number: subscription for subscription in topic.subscriptions.values()}
    for step in steps:
        subscription = by_number[step.subscription]
        known = subscription.rules.get(fold(step.name))
        there = known is not None and known[0] == step.order
        if step.rule is None and there:
            topic.remove_rule(subscription, step.name)
        elif step.rule is not None and not there:
            topic.add_rule(subscription, step.order, step.rule)


def encoded(steps: list[Step]) -> bytes:
    """The intent: what the store keeps of them until they are applied."""
    described = [
        [step.subscription, step.order, step.name, None if step.rule is None else to_dict(step.rule)]
        for step in steps
    ]
    return json.dumps(described).encode()


def _decoded(intent: bytes) -> list[Step]:
    steps: list[Step] = []
    for subscription, order, name, described in json.loads(intent):
        rule = None if described is None else from_dict(described)
        assert rule is None or isinstance(rule, RuleDescription), "only rules change in a transaction"
        steps.append(Step(subscription, order, name, rule))
    return steps
