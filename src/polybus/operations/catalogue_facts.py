"""What the catalogue says, read and checked: the yardstick for everything that lies in the messaging stores."""

from __future__ import annotations

import json
from typing import Any, Final

from polybus.errors import ArgumentError, PolybusError, StoreVersionMismatch
from polybus.hashing import HASH_VERSION
from polybus.hosting import catalogue
from polybus.namespace.entities.codec import from_dict
from polybus.namespace.entities.description import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.rule import RuleDescription
from polybus.namespace.entities.rule_compiler import compile_rule
from polybus.operations.findings import CheckFinding, Findings
from polybus.operations.store_reader import StoreReader
from polybus.partition.records import after, unsealed

_TABLES: Final = (
    catalogue.ENTITY,
    catalogue.SUBSCRIPTION,
    catalogue.RULE,
    catalogue.TOMBSTONE,
    catalogue.DOUBT,
    catalogue.CURSOR,
    catalogue.PRODUCER,
    catalogue.PUBLISHED,
    catalogue.ACCESS,
)


class SubscriptionFacts:
    def __init__(self, name: str, requires_session: bool) -> None:
        self.name = name
        self.requires_session = requires_session


class EntityFacts:
    """A queue or a topic as far as its rows depend on it."""

    def __init__(self, entity_id: int, namespace: str, description: Description, record: dict[str, Any]) -> None:
        assert isinstance(description, QueueDescription | TopicDescription)
        self.id = entity_id
        self.namespace = namespace
        self.name = description.path
        self.topic = isinstance(description, TopicDescription)
        self.partition_count = description.partition_count
        self.requires_session = isinstance(description, QueueDescription) and description.requires_session
        self.placement: list[bytes] = [bytes.fromhex(store) for store in record["placement"]]
        self.next_subscription: int = record["next_subscription"]
        self.subscriptions: dict[int, SubscriptionFacts] = {}

    def has_sessions(self, number: int) -> bool:
        if number == 0:
            return self.requires_session
        return self.subscriptions[number].requires_session


class CatalogueFacts:
    """Everything that a check must know; what could not be read is in the findings."""

    def __init__(self, reader: StoreReader, findings: Findings) -> None:
        self.url = reader.url
        self.entities: dict[int, EntityFacts] = {}
        self.unreadable: set[int] = set()
        """Ids of entities whose records are damaged: their rows cannot be judged."""
        self.tombstones: set[tuple[int, int]] = set()
        """(entity id, subscription or 0) of what is deleted and still being removed."""
        self.doubts: set[bytes] = set()
        self.stores: list[bytes] = []
        self.next_entity = 0
        self.records = 0
        self._reader = reader
        self._findings = findings
        self._names: set[tuple[str, str]] = set()
        self._read_meta()
        for table in _TABLES:
            self._read_table(table)
        self._look_for_strangers()

    def report(self, what: str, problem: str) -> None:
        self._findings.add(CheckFinding(self.url, "catalogue", None, what, problem))

    def _read_meta(self) -> None:
        value = self._reader.get([catalogue.META, catalogue.META])[0]
        if value is None:
            self.report("meta", "the catalogue's own record is missing")
            return
        try:
            meta = _record(value)
            found = (meta["format"], meta["hash"])
            if found != (catalogue.FORMAT, HASH_VERSION):
                raise StoreVersionMismatch(f"the catalogue has format {found[0]} and hash {found[1]}")
            self.next_entity = meta["next_entity"]
            self.stores = [bytes.fromhex(store) for store in meta["stores"]]
            if len(set(self.stores)) < len(self.stores):
                self.report("meta", "a messaging store is listed twice")
        except _UNREADABLE as error:
            self.report("meta", _text(error))

    def _read_table(self, table: bytes) -> None:
        reading = {
            catalogue.ENTITY: self._read_entity,
            catalogue.SUBSCRIPTION: self._read_subscription,
            catalogue.TOMBSTONE: self._read_tombstone,
            catalogue.DOUBT: self._read_doubt,
        }
        names: set[tuple[bytes, str]] = set()
        for key, value in self._reader.rows(table, after(table)):
            self.records += 1
            try:
                record = _record(value)
                if table == catalogue.RULE:
                    self._read_rule(key, record, names)
                elif table in reading:
                    reading[table](key, record)
            except _UNREADABLE as error:
                if table == catalogue.ENTITY:
                    self.unreadable.add(int.from_bytes(key[-4:], "big"))
                self.report(_key_text(key), _text(error))

    def _read_entity(self, key: bytes, record: dict[str, Any]) -> None:
        entity_id = int.from_bytes(key[len(catalogue.ENTITY) :], "big")
        facts = EntityFacts(entity_id, record["namespace"], _described(record["description"]), record)
        self.entities[entity_id] = facts
        what = f"entity {entity_id} '{facts.name}'"
        if record["id"] != entity_id:
            self.report(what, f"its record says that its id is {record['id']}")
        if entity_id >= self.next_entity:
            self.report(what, f"its id is not below the next one, {self.next_entity}: it would be given again")
        if len(facts.placement) != facts.partition_count:
            self.report(what, f"{facts.partition_count} partitions, but places for {len(facts.placement)}")
        for store in set(facts.placement) - set(self.stores):
            self.report(what, f"placed on a messaging store that is not listed: {store.hex()}")
        name = (fold(facts.namespace), fold(facts.name))
        if name in self._names:
            self.report(what, "another entity has the same name")
        self._names.add(name)

    def _read_subscription(self, key: bytes, record: dict[str, Any]) -> None:
        entity_id, number = _pair(key[len(catalogue.SUBSCRIPTION) :])
        described = _described(record["description"])
        if not isinstance(described, SubscriptionDescription):
            raise ArgumentError("the record does not describe a subscription")
        if entity_id in self.unreadable:
            return
        what = f"subscription {number} '{described.name}' of entity {entity_id}"
        topic = self.entities.get(entity_id)
        if topic is None or not topic.topic:
            self.report(what, "its topic is missing")
            return
        if record["number"] != number or not 0 < number < topic.next_subscription:
            self.report(what, f"its number is not its own, or not below the next one, {topic.next_subscription}")
        if fold(described.name) in (fold(other.name) for other in topic.subscriptions.values()):
            self.report(what, "another subscription of the topic has the same name")
        topic.subscriptions[number] = SubscriptionFacts(described.name, described.requires_session)

    def _read_rule(self, key: bytes, record: dict[str, Any], names: set[tuple[bytes, str]]) -> None:
        entity_id, number = _pair(key[len(catalogue.RULE) : -8])
        rule = from_dict(record)
        if not isinstance(rule, RuleDescription):
            raise ArgumentError("the record does not describe a rule")
        compile_rule(rule)
        what = f"rule '{rule.name}' of subscription {number} of entity {entity_id}"
        topic = self.entities.get(entity_id)
        if entity_id not in self.unreadable and (topic is None or number not in topic.subscriptions):
            self.report(what, "its subscription is missing")
        if (key[:-8], fold(rule.name)) in names:
            self.report(what, "another rule of the subscription has the same name")
        names.add((key[:-8], fold(rule.name)))

    def _read_tombstone(self, key: bytes, record: dict[str, Any]) -> None:
        what = _key_text(key)
        entity_id, number = record["entity"], record["subscription"]
        self.tombstones.add((entity_id, number))
        if number == 0 and entity_id in self.entities:
            self.report(what, "an entity that exists is written down for removal")
        if number and entity_id in self.entities and number in self.entities[entity_id].subscriptions:
            self.report(what, "a subscription that exists is written down for removal")

    def _read_doubt(self, key: bytes, record: dict[str, Any]) -> None:
        store = key[len(catalogue.DOUBT) :]
        self.doubts.add(store)
        if bytes.fromhex(record["store"]) != store or store not in self.stores:
            self.report(_key_text(key), "the record does not name a messaging store of this bus")

    def _look_for_strangers(self) -> None:
        known = (*_TABLES, catalogue.META)
        for key, _ in self._reader.rows(b"", b"\xff" * 8):
            if not key.startswith(known):
                self.report(f"key {key.hex()}", "no table of the catalogue has such a key")


_UNREADABLE: Final = (PolybusError, ValueError, KeyError, TypeError, AssertionError)


def _record(value: bytes) -> dict[str, Any]:
    record = json.loads(unsealed(value, "a record of the catalogue"))
    if not isinstance(record, dict):
        raise ValueError("the record is not an object")
    return record


def _described(data: Any) -> Description:
    described = from_dict(data)
    if isinstance(described, RuleDescription):
        raise ValueError("the record describes a rule")
    return described


def _pair(packed: bytes) -> tuple[int, int]:
    return int.from_bytes(packed[:4], "big"), int.from_bytes(packed[4:], "big")


def _key_text(key: bytes) -> str:
    return f"record {key[:2].decode(errors='replace')}{key[2:].hex()}"


def _text(error: Exception) -> str:
    return f"the record lacks {error}" if isinstance(error, KeyError) else str(error)
