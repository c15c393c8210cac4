"""Creating, changing and deleting entities, subscriptions and rules: over all partitions, all or nothing (F2).

The catalogue's batch is the moment of truth. Before it nothing has happened; after it everything has, for a
partition needs no preparation: one that was never written to is simply empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from polybus.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityNotFound,
    OperationConflict,
    QuotaExceeded,
    ServerBusy,
)
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, Record, decode
from polybus.hosting.store_host import StoreHost
from polybus.limits import SUBSCRIPTIONS_PER_TOPIC
from polybus.namespace.entities.admission import admit_create, admit_update
from polybus.namespace.entities.codec import from_dict, to_dict
from polybus.namespace.entities.description import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.entity import Entity, Subscription, apply_entity, apply_subscription
from polybus.namespace.entities.names import fold, parse_forward_target
from polybus.namespace.entities.rule import DEFAULT_RULE, RuleDescription
from polybus.namespace.entities.rule_compiler import check_room, compile_rule
from polybus.namespace.entities.rule_validation import validate_rule
from polybus.namespace.management.cleanup import tombstone_key
from polybus.namespace.management.placement import place
from polybus.partition.records import entity_prefix
from polybus.partition.settings import EntitySettings, LogSettings

if TYPE_CHECKING:
    from polybus.namespace.namespace import Namespace


_T = TypeVar("_T")


class Management:
    def __init__(self, namespace: Namespace, new_key: Callable[[], str]) -> None:
        self._namespace = namespace
        self._bus = namespace.bus
        self._new_key = new_key
        self._busy: dict[str, None] = {}
        self._creating: dict[str, EntityDescription] = {}
        """What is on its way into the catalogue, by folded name: for others it is there already."""

    # Queues and topics

    async def create(
        self, asked: EntityDescription, *, from_file: bool = False, declared: Collection[str] = ()
    ) -> Entity:
        """A new queue or topic; EntityAlreadyExists, QuotaExceeded or ArgumentError where it may not be.

        `declared` are the folded names of what is created with it: it may forward to one that comes after it.
        """
        return await self.alone(asked.path, self._create(asked, from_file, declared))

    async def _create(self, asked: EntityDescription, from_file: bool, declared: Collection[str]) -> Entity:
        namespace = self._namespace
        now_ms = self._bus.clock.now().wall_ms
        described: EntityDescription
        if isinstance(asked, QueueDescription):
            described = admit_create(asked, namespace.tier, now_ms, self._new_key, from_file=from_file)
        else:
            described = admit_create(asked, namespace.tier, now_ms, self._new_key, from_file=from_file)
        self._check_name_free(described.path)
        self._check_quotas(described)
        if isinstance(described, QueueDescription):
            self._check_forward(described, declared)
        self._creating[fold(described.path)] = described
        try:
            entity_id, stores = await self._placed(described.partition_count)
            record: Record = {
                "id": entity_id,
                "namespace": namespace.name,
                "description": to_dict(described),
                "placement": [store.store_id.hex() for store in stores],
                "next_subscription": 1,
            }
            await self._bus.catalogue.write(Changes().put(records.entity_key(entity_id), record))
            entity = self.make(entity_id, described, stores)
        finally:
            del self._creating[fold(described.path)]
        await self.open(entity)
        if self._bus.members is not None:
            await self._bus.serving_everywhere(entity)
        return entity

    async def _placed(self, partitions: int) -> tuple[int, list[StoreHost]]:
        """An id that no entity has had, and a store for each partition.

        A catalogue that was put back from an older copy has forgotten some ids. Their rows are still there.
        """
        while True:
            entity_id = self._bus.catalogue.next_entity
            stores = place(self._bus.stores, partitions, entity_id)
            self._bus.catalogue.next_entity += 1
            for store in dict.fromkeys(stores):
                if await store.has_rows(entity_prefix(entity_id)):
                    break
            else:
                return entity_id, stores

    def _check_name_free(self, path: str) -> None:
        folded = fold(path)
        for other in (*self._namespace.entities, *self._creating):
            if other == folded:
                raise EntityAlreadyExists(
                    f"SubCode=40900. Conflict. The messaging entity '{self._namespace.name}:{path}' already exists."
                )
            if other.startswith(folded + "/") or folded.startswith(other + "/"):
                raise EntityAlreadyExists(
                    f"SubCode=40900. Conflict. The path '{path}' lies above or below the messaging entity '{other}'."
                )

    def _check_quotas(self, described: EntityDescription) -> None:
        tier = self._namespace.tier
        there = [entity.description for entity in self._namespace.entities.values()] + list(self._creating.values())
        if tier.entities_max is not None and len(there) >= tier.entities_max:
            raise QuotaExceeded(f"A namespace may have {tier.entities_max} queues and topics.")
        if described.partition_count > 1 or described.enable_partitioning:
            partitioned = sum(1 for each in there if each.enable_partitioning)
            if partitioned >= tier.partitioned_entities_max and not tier.always_partitioned:
                raise QuotaExceeded(f"A namespace may have {tier.partitioned_entities_max} partitioned entities.")

    def _check_forward(
        self, described: QueueDescription | SubscriptionDescription, declared: Collection[str] = ()
    ) -> None:
        coming = (*declared, fold(_own_path(described)))
        for target in (described.forward_to, described.forward_dead_lettered_messages_to):
            if target is None:
                continue
            name = parse_forward_target(target)
            if fold(name) not in self._namespace.entities and fold(name) not in coming:
                error = ArgumentError(f"The entity '{name}' to forward messages to could not be found.")
                error.sub_code = 40400
                raise error

    def make(self, entity_id: int, described: EntityDescription, stores: list[StoreHost]) -> Entity:
        bus = self._bus
        settings = EntitySettings(described.path, described.partition_count, isinstance(described, TopicDescription))
        settings.bounds = bus.bounds
        apply_entity(settings, described)
        partitions = [
            bus.new_partition(self._namespace, entity_id, index, settings, store)
            for index, store in enumerate(stores)
        ]
        entity = Entity(entity_id, described, settings, partitions, bus.clock, bus.loop)
        entity.max_message_bytes = self._namespace.tier.message_bytes(described)
        self._namespace.entities[fold(described.path)] = entity
        bus.entities[entity_id] = entity
        return entity

    async def open(self, entity: Entity) -> None:
        """Brings a new entity's partitions up; one that cannot be read now comes up with its store."""
        for partition in entity.partitions:
            await self._bus.recovery.open_new(partition)

    async def restore(self, record: Record) -> Entity:
        """An entity that the catalogue knows; its partitions come up with their stores."""
        described = from_dict(record["description"])
        assert isinstance(described, QueueDescription | TopicDescription)
        stores = [self._bus.store_for(bytes.fromhex(store_id)) for store_id in record["placement"]]
        entity = self.make(record["id"], described, stores)
        entity.next_subscription = record["next_subscription"]
        await self._restore_subscriptions(entity)
        return entity

    async def _restore_subscriptions(self, entity: Entity) -> None:
        prefix = records.SUBSCRIPTION + records.entity_key(entity.id)[-4:]
        for row in await self._bus.catalogue.rows(prefix):
            record = decode(row)
            described = from_dict(record["description"])
            assert isinstance(described, SubscriptionDescription)
            subscription = self.add_subscription(entity, record["number"], described)
            for rule_row in await self._bus.catalogue.rows(records.rules_prefix(entity.id, subscription.number)):
                order = int.from_bytes(rule_row[0][-8:], "big")
                rule = from_dict(decode(rule_row))
                assert isinstance(rule, RuleDescription)
                entity.add_rule(subscription, order, rule)

    async def update(self, asked: EntityDescription, given: Collection[str] | None = None) -> Entity:
        """Replaces a description; ArgumentError where it changes what cannot change (A5)."""
        return await self.alone(asked.path, self._update(asked, given))

    async def _update(self, asked: EntityDescription, given: Collection[str] | None) -> Entity:
        entity = self._namespace.entity(asked.path)
        now_ms = self._bus.clock.now().wall_ms
        old = entity.description
        if isinstance(old, QueueDescription) and isinstance(asked, QueueDescription):
            described: EntityDescription = admit_update(
                old, asked, self._namespace.tier, now_ms, self._new_key, given
            )
        elif isinstance(old, TopicDescription) and isinstance(asked, TopicDescription):
            described = admit_update(old, asked, self._namespace.tier, now_ms, self._new_key, given)
        else:
            raise ArgumentError(f"'{asked.path}' is not of the kind that the request describes.")
        if isinstance(described, QueueDescription):
            self._check_forward(described)
        self._check_healthy(entity)
        await self._write_entity(entity, described)
        self.described(entity, described)
        return entity

    def described(self, entity: Entity, described: EntityDescription) -> None:
        """The entity is as described from now on: it is written down."""
        old = entity.description
        entity.describe(described)
        entity.max_message_bytes = self._namespace.tier.message_bytes(described)
        apply_entity(entity.settings, described)
        self._changed(entity)
        if described.authorization_rules != old.authorization_rules:
            self._bus.access_changed(self._namespace)

    def _changed(self, entity: Entity) -> None:
        """Receivers that may not go on leave; what they leave behind is sent on where the entity forwards now."""
        entity.changed()
        for partition in entity.partitions:
            if self._bus.looks_after(partition):
                partition.forward_backlog()

    def _check_healthy(self, entity: Entity) -> None:
        missing = entity.missing_partitions()
        if missing:
            raise ServerBusy(
                f"'{entity.name}' cannot be changed while its partitions {missing} are not available. Try again."
            )

    async def _write_entity(self, entity: Entity, described: EntityDescription) -> None:
        await self._bus.catalogue.write(self._entity_changes(entity, described))

    def _entity_changes(self, entity: Entity, described: EntityDescription) -> Changes:
        record: Record = {
            "id": entity.id,
            "namespace": self._namespace.name,
            "description": to_dict(described),
            "placement": [partition.store.store_id.hex() for partition in entity.partitions],
            "next_subscription": entity.next_subscription,
        }
        return Changes().put(records.entity_key(entity.id), record)

    async def delete(self, path: str) -> None:
        """Deletes a queue or a topic with its subscriptions."""
        await self.alone(path, self._delete(path))

    async def _delete(self, path: str) -> None:
        entity = self._namespace.entity(path)
        self._check_healthy(entity)
        suffix = records.entity_key(entity.id)[-4:]
        changes = Changes().delete(records.entity_key(entity.id))
        changes.delete_prefix(records.SUBSCRIPTION + suffix).delete_prefix(records.RULE + suffix)
        placement = [partition.store.store_id.hex() for partition in entity.partitions]
        record: Record = {"entity": entity.id, "subscription": 0, "placement": placement}
        key = tombstone_key(entity.id, 0)
        await self._bus.catalogue.write(changes.put(key, record))
        self.removed(entity)
        self._bus.cleanup.remove(key, record)

    def removed(self, entity: Entity) -> None:
        """The entity is gone from the catalogue: it goes from memory."""
        entity.deleted = True
        del self._namespace.entities[fold(entity.name)]
        del self._bus.entities[entity.id]
        for partition in entity.partitions:
            partition.retire()
        entity.changed()

    # Subscriptions

    async def create_subscription(
        self, asked: SubscriptionDescription, rules: list[RuleDescription] | None = None, *, from_file: bool = False
    ) -> Subscription:
        """A new subscription with its rules, or with the one that lets everything through."""
        return await self.alone(asked.topic, self._create_subscription(asked, rules, from_file))

    async def _create_subscription(
        self, asked: SubscriptionDescription, rules: list[RuleDescription] | None, from_file: bool
    ) -> Subscription:
        entity = self.topic(asked.topic)
        now_ms = self._bus.clock.now().wall_ms
        described = admit_create(asked, self._namespace.tier, now_ms, self._new_key, from_file=from_file)
        described = replace(described, topic=entity.name)
        if fold(described.name) in entity.subscriptions:
            raise EntityAlreadyExists(
                f"The messaging entity '{self._namespace.name}:Topic:{entity.name}|{described.name}' already exists."
            )
        if len(entity.subscriptions) >= SUBSCRIPTIONS_PER_TOPIC:
            raise QuotaExceeded(f"A topic may have {SUBSCRIPTIONS_PER_TOPIC} subscriptions.")
        self._check_forward(described)
        self._check_healthy(entity)
        chosen = [replace(rule, created_at_ms=now_ms) for rule in (rules or [DEFAULT_RULE])]
        for rule in chosen:
            validate_rule(rule)
            compile_rule(rule)
        if len({fold(rule.name) for rule in chosen}) < len(chosen):
            raise EntityAlreadyExists(f"Two rules of the subscription '{described.name}' have the same name.")
        check_room(entity.settings.rules, chosen)
        number = await _free_number(entity)
        entity.next_subscription = number + 1
        changes = self._entity_changes(entity, entity.description)
        changes.put(
            records.subscription_key(entity.id, number), {"number": number, "description": to_dict(described)}
        )
        for order, rule in enumerate(chosen, 1):
            changes.put(records.rule_key(entity.id, number, order), to_dict(rule))
        await self._bus.catalogue.write(changes)
        subscription = self.add_subscription(entity, number, described)
        for order, rule in enumerate(chosen, 1):
            entity.add_rule(subscription, order, rule)
        return subscription

    def add_subscription(self, entity: Entity, number: int, described: SubscriptionDescription) -> Subscription:
        settings = LogSettings(number, f"{entity.name}/Subscriptions/{described.name}")
        apply_subscription(settings, described)
        entity.settings.subscriptions[number] = settings
        subscription = Subscription(number, described, settings)
        entity.subscriptions[fold(described.name)] = subscription
        return subscription

    def topic(self, path: str) -> Entity:
        entity = self._namespace.entity(path)
        if not entity.is_topic:
            raise EntityNotFound(f"The topic '{path}' could not be found: there is a queue with that name.")
        return entity

    async def update_subscription(
        self, asked: SubscriptionDescription, given: Collection[str] | None = None
    ) -> Subscription:
        return await self.alone(asked.topic, self._update_subscription(asked, given))

    async def _update_subscription(
        self, asked: SubscriptionDescription, given: Collection[str] | None
    ) -> Subscription:
        entity = self.topic(asked.topic)
        subscription = entity.subscription(asked.name)
        now_ms = self._bus.clock.now().wall_ms
        described = admit_update(subscription.description, asked, self._namespace.tier, now_ms, self._new_key, given)
        self._check_forward(described)
        self._check_healthy(entity)
        record: Record = {"number": subscription.number, "description": to_dict(described)}
        await self._bus.catalogue.write(
            Changes().put(records.subscription_key(entity.id, subscription.number), record)
        )
        self.subscription_described(entity, subscription, described)
        return subscription

    def subscription_described(
        self, entity: Entity, subscription: Subscription, described: SubscriptionDescription
    ) -> None:
        """The subscription is as described from now on: it is written down."""
        subscription.description = described
        apply_subscription(subscription.settings, described)
        self._changed(entity)

    async def delete_subscription(self, topic: str, name: str) -> None:
        await self.alone(topic, self._delete_subscription(topic, name))

    async def _delete_subscription(self, topic: str, name: str) -> None:
        entity = self.topic(topic)
        subscription = entity.subscription(name)
        self._check_healthy(entity)
        number = subscription.number
        key = tombstone_key(entity.id, number)
        record: Record = {"entity": entity.id, "subscription": number, "placement": []}
        changes = Changes().delete(records.subscription_key(entity.id, number))
        changes.delete_prefix(records.rules_prefix(entity.id, number)).put(key, record)
        await self._bus.catalogue.write(changes)
        self.subscription_removed(entity, subscription)
        self._bus.cleanup.remove(key, record)

    def subscription_removed(self, entity: Entity, subscription: Subscription) -> None:
        """The subscription is gone from the catalogue: it goes from memory."""
        number = subscription.number
        del entity.subscriptions[fold(subscription.description.name)]
        entity.settings.subscriptions.pop(number)
        entity.settings.rules.remove_subscription(number)
        entity.forget_sources(number)
        for partition in entity.partitions:
            if self._bus.looks_after(partition):
                partition.forget_subscription(number)
        subscription.deleted = True
        entity.changed()

    # Rules

    async def create_rule(self, topic: str, name: str, rule: RuleDescription) -> RuleDescription:
        return await self.alone(topic, self._create_rule(topic, name, rule))

    async def _create_rule(self, topic: str, name: str, rule: RuleDescription) -> RuleDescription:
        entity = self.topic(topic)
        subscription = entity.subscription(name)
        validate_rule(rule)
        if fold(rule.name) in subscription.rules:
            raise EntityAlreadyExists(
                f"The messaging entity '{self._namespace.name}:Topic:{entity.name}|{name}|{rule.name}' already"
                " exists."
            )
        rule = replace(rule, created_at_ms=self._bus.clock.now().wall_ms)
        compile_rule(rule)
        check_room(entity.settings.rules, [rule])
        self._check_healthy(entity)
        order = subscription.next_rule
        key = records.rule_key(entity.id, subscription.number, order)
        await self._bus.catalogue.write(Changes().put(key, to_dict(rule)))
        entity.add_rule(subscription, order, rule)
        return rule

    async def update_rule(self, topic: str, name: str, rule: RuleDescription) -> RuleDescription:
        return await self.alone(topic, self._update_rule(topic, name, rule))

    async def _update_rule(self, topic: str, name: str, rule: RuleDescription) -> RuleDescription:
        entity = self.topic(topic)
        subscription = entity.subscription(name)
        order, old = self.rule(subscription, rule.name)
        validate_rule(rule)
        rule = replace(rule, name=old.name, created_at_ms=old.created_at_ms)
        compiled = compile_rule(rule)
        check_room(entity.settings.rules, [rule], [old])
        self._check_healthy(entity)
        key = records.rule_key(entity.id, subscription.number, order)
        await self._bus.catalogue.write(Changes().put(key, to_dict(rule)))
        entity.settings.rules.replace(subscription.number, compiled)
        subscription.rules[fold(old.name)] = (order, rule)
        return rule

    async def delete_rule(self, topic: str, name: str, rule: str) -> None:
        await self.alone(topic, self._delete_rule(topic, name, rule))

    async def _delete_rule(self, topic: str, name: str, rule: str) -> None:
        entity = self.topic(topic)
        subscription = entity.subscription(name)
        order, _ = self.rule(subscription, rule)
        self._check_healthy(entity)
        await self._bus.catalogue.write(Changes().delete(records.rule_key(entity.id, subscription.number, order)))
        entity.remove_rule(subscription, rule)

    def rule(self, subscription: Subscription, name: str) -> tuple[int, RuleDescription]:
        found = subscription.rules.get(fold(name))
        if found is None:
            described = subscription.description
            raise EntityNotFound(
                f"The messaging entity '{self._namespace.name}:Topic:{described.topic}|{described.name}|{name}'"
                " could not be found."
            )
        return found

    async def alone(self, path: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs one operation on an entity at a time; a second one meanwhile is refused."""
        try:
            self.hold(path)
        except OperationConflict:
            work.close()
            raise
        try:
            return await work
        finally:
            self.let_go(path)

    def hold(self, path: str) -> None:
        """Nobody else works on the entity until `let_go`; OperationConflict where somebody does."""
        if fold(path) in self._busy:
            raise OperationConflict(f"SubCode=40901. Another conflicting operation is in progress on '{path}'.")
        self._busy[fold(path)] = None

    def let_go(self, path: str) -> None:
        self._busy.pop(fold(path), None)


async def _free_number(topic: Entity) -> int:
    """A number that no subscription of the topic has had, also none that an older catalogue has forgotten."""
    number = topic.next_subscription
    for partition in topic.partitions:
        number = max(number, await partition.highest_subscription() + 1)
    return number


def _own_path(described: QueueDescription | SubscriptionDescription) -> str:
    return described.path if isinstance(described, QueueDescription) else ""
