"""Brings a process in line with a catalogue that another one writes.

After each batch, and after a whole copy, what is in memory is compared with the rows of the entities concerned, and what
differs is changed as management would have changed it. So a batch, a copy and the same batch twice are one case, and
nothing depends on the order of rows inside of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Record, decode
from polybus.namespace.entities.codec import from_dict
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.rule import RuleDescription
from polybus.namespace.entities.rule_compiler import compile_rule
from polybus.namespace.management.auditing import AUDITED
from polybus.promise import Promise, spawn
from polybus.rows import Batch
from polybus.turns import Turns

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

_OF_ENTITIES = (records.ENTITY, records.SUBSCRIPTION, records.RULE)
_TABLE = 2
"""Bytes of a table's name; an entity's id follows in the tables of entities."""


class Following:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._turns = Turns()

    def apply(self, batch: Batch | None) -> Promise[None]:
        """Settled when everything in memory is as the rows are; None stands for all rows."""
        return spawn(self._turns.take("catalogue", self._apply(batch)))

    async def _apply(self, batch: Batch | None) -> None:
        tables, entities = await self._touched(batch)
        for entity_id in entities:
            await self._apply_entity(entity_id)
        if records.ACCESS in tables:
            await self._bus.access_rules.reload()
        if AUDITED in tables:
            await self._bus.auditing.reload()
        if records.CURSOR in tables:
            await self._bus.cursors.reload()
        if records.PRODUCER in tables:
            await self._bus.publishing.reload_producers()
        if records.DOUBT in tables:
            await self._apply_doubts()

    async def _touched(self, batch: Batch | None) -> tuple[set[bytes], list[int]]:
        """The tables, and the ids of the entities, that a batch has touched."""
        if batch is None:
            there = [int.from_bytes(key[_TABLE:], "big") for key, _ in await self._bus.catalogue.rows(records.ENTITY)]
            every = {records.ACCESS, AUDITED, records.CURSOR, records.PRODUCER, records.DOUBT}
            return every, sorted({*there, *self._bus.entities})
        keys = [key for key, _ in batch.ops] + [start for start, _ in batch.ranges]
        entities = {int.from_bytes(key[_TABLE : _TABLE + 4], "big") for key in keys if key[:_TABLE] in _OF_ENTITIES}
        return {key[:_TABLE] for key in keys}, sorted(entities)

    async def _apply_doubts(self) -> None:
        noted = {key[_TABLE:] for key, _ in await self._bus.catalogue.rows(records.DOUBT)}
        for store in self._bus.stores:
            self._bus.recovery.doubt_followed(store.store_id, store.store_id in noted)

    # Entities

    async def _apply_entity(self, entity_id: int) -> None:
        rows = await self._bus.catalogue.rows(records.entity_key(entity_id))
        entity = self._bus.entities.get(entity_id)
        if not rows:
            if entity is not None:
                self._bus.namespace_of(entity).management.removed(entity)
            return
        record = decode(rows[0])
        management = self._bus.namespace(record["namespace"]).management
        if entity is None:
            await management.open(await management.restore(record))
            return
        described = from_dict(record["description"])
        assert isinstance(described, QueueDescription | TopicDescription)
        entity.next_subscription = record["next_subscription"]
        if described != entity.description:
            management.described(entity, described)
        if entity.is_topic:
            await self._apply_subscriptions(entity)

    async def _apply_subscriptions(self, entity: Entity) -> None:
        management = self._bus.namespace_of(entity).management
        rows = await self._bus.catalogue.rows(records.SUBSCRIPTION + records.entity_key(entity.id)[_TABLE:])
        there: dict[int, Record] = {}
        for row in rows:
            record = decode(row)
            there[record["number"]] = record
        for subscription in list(entity.subscriptions.values()):
            if subscription.number not in there:
                management.subscription_removed(entity, subscription)
        known = {subscription.number: subscription for subscription in entity.subscriptions.values()}
        for number, record in there.items():
            described = from_dict(record["description"])
            assert isinstance(described, SubscriptionDescription)
            found = known.get(number)
            if found is None:
                found = management.add_subscription(entity, number, described)
            elif found.description != described:
                management.subscription_described(entity, found, described)
            await self._apply_rules(entity, found)

    async def _apply_rules(self, entity: Entity, subscription: Subscription) -> None:
        there: dict[str, tuple[int, RuleDescription]] = {}
        for row in await self._bus.catalogue.rows(records.rules_prefix(entity.id, subscription.number)):
            rule = from_dict(decode(row))
            assert isinstance(rule, RuleDescription)
            there[fold(rule.name)] = (int.from_bytes(row[0][-8:], "big"), rule)
        for name, (order, _) in list(subscription.rules.items()):
            if name not in there or there[name][0] != order:
                entity.remove_rule(subscription, name)
        for name, (order, rule) in sorted(there.items(), key=lambda each: each[1][0]):
            known = subscription.rules.get(name)
            if known is None:
                entity.add_rule(subscription, order, rule)
            elif known[1] != rule:
                entity.settings.rules.replace(subscription.number, compile_rule(rule))
                subscription.rules[name] = (order, rule)
