"""Transactions: work that is done at one partition in one batch, or not at all (D1-D6).

The first operation decides the partition. Sends to other entities travel through that partition's outbox, in the
same batch; settlements elsewhere are refused. Until the commit everything is memory, so a crash rolls back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from polybus.clock import Clock
from polybus.errors import InvalidOperation, PolybusError, QuotaExceeded, TransactionUnknown
from polybus.hashing import partition_for
from polybus.hosting.partition_client import PartitionClient, TransactionWork
from polybus.limits import TRANSACTION_MESSAGES, TRANSACTION_MS
from polybus.message.message import Message
from polybus.namespace.delivery.routing import key_of
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.delivery.transaction_rules import RuleChange, TransactionRules, plan
from polybus.namespace.entities.entity import Entity
from polybus.promise import Loop, Promise, TimerHandle

NO_KEY: Final = (
    "A message that is sent in a transaction to the partitioned entity '{0}' must have a partition key: a SessionId,"
    " a PartitionKey, or a MessageId where the entity detects duplicates."
)
OTHER_KEY: Final = (
    "All messages of one transaction to the partitioned entity '{0}' must have the same partition key: '{1}' is not"
    " '{2}'."
)
OTHER_PLACE: Final = (
    "The transaction works on '{0}' and cannot settle messages of another entity or partition. Use one transaction"
    " for each."
)
PARTITIONED_RULES: Final = (
    "Rules of a subscription to a partitioned topic cannot be added or removed inside a transaction."
)
OTHER_RULES: Final = (
    "The transaction works on '{0}' and cannot change the rules of another topic. Use one transaction for each."
)
NO_SESSION: Final = "A message sent in a transaction to '{0}' must have a SessionId."

_ID: Final = struct.Struct(">QQ")


class Transaction:
    """One open transaction."""

    def __init__(self, txn_id: bytes, home: Transactions, clock: Clock, rules: TransactionRules) -> None:
        self.id = txn_id
        self.work = TransactionWork(txn_id)
        self.entity: Entity | None = None
        self.partition: PartitionClient | None = None
        self.done = False
        self.timer: TimerHandle | None = None
        """There from the first operation on, which starts the clock (docs/protocol/transactions.md#timeout)."""
        self.until_ms = 0
        self._home = home
        self._clock = clock
        self._rules = rules
        self._rule_changes: list[RuleChange] = []
        self.on_roll_back: Callable[[], None] | None = None
        """Called once it is rolled back, whoever did it: what it was to settle can be settled otherwise then."""
        self._keys: dict[int, str] = {}

    def send(self, entity: Entity, messages: list[Message], via: Entity | None = None) -> None:
        """Adds sends to the work; `via` is the entity whose outbox carries them, where it is another one."""
        self._begin()
        keys = self._admit(entity, messages, via)
        if self.entity is entity and via is None:
            self._check_here(entity, keys)
            self.work.sends += messages
        else:
            self.work.transfers += [(entity.name, message) for message in messages]
        if keys and keys[0] is not None:
            self._keys.setdefault(entity.id, keys[0])

    async def schedule(self, entity: Entity, messages: list[Message], via: Entity | None = None) -> list[int]:
        """Adds sends for later; gives the numbers that they will have if the transaction is committed."""
        self._begin()
        keys = self._admit(entity, messages, via)
        index = partition_for(keys[0] or "", len(entity.partitions)) if entity.partitioned and keys else 0
        numbers = await entity.partitions[index].reserve(len(messages))
        self.send(entity, messages, via)
        self.work.reserved.update(zip(messages, numbers, strict=True))
        return numbers

    def _admit(self, entity: Entity, messages: list[Message], via: Entity | None) -> list[str | None]:
        """Whether the transaction can take the messages, and with which keys; the first decides its partition."""
        entity.check_sendable()
        if len(self.work.sends) + len(self.work.transfers) + len(messages) > TRANSACTION_MESSAGES:
            raise QuotaExceeded(f"A transaction cannot have more than {TRANSACTION_MESSAGES} messages.")
        keys = self._keys_of(entity, messages)
        home = via or self.entity or entity
        if self.partition is None and messages:
            self._settle_at(home, self._home_index(home, entity, messages[0], keys[0]))
        return keys

    def _keys_of(self, entity: Entity, messages: list[Message]) -> list[str | None]:
        """The keys of the messages: on a partitioned entity one and the same, also as that of earlier sends (D1-D4)."""
        keys = [key_of(message, entity.detects_duplicates) for message in messages]
        if not entity.partitioned:
            return keys
        for message, key in zip(messages, keys, strict=True):
            if entity.settings.own.requires_session and message.session_id is None:
                raise InvalidOperation(NO_SESSION.format(entity.name))
            if key is None:
                raise InvalidOperation(NO_KEY.format(entity.name))
            first = self._keys.get(entity.id, keys[0])
            if key != first:
                raise InvalidOperation(OTHER_KEY.format(entity.name, key, first))
        return keys

    def _home_index(self, home: Entity, entity: Entity, message: Message, key: str | None) -> int:
        if not home.partitioned:
            return 0
        chosen = key if home is entity else message.via_partition_key
        if chosen is None:
            chosen = key
        if chosen is None:
            raise InvalidOperation(NO_KEY.format(home.name))
        return partition_for(chosen, len(home.partitions))

    def _check_here(self, entity: Entity, keys: list[str | None]) -> None:
        assert self.partition is not None, "the partition is known after the first operation"
        for key in keys:
            if entity.partitioned and partition_for(key or "", len(entity.partitions)) != self.partition.index:
                raise InvalidOperation(OTHER_PLACE.format(entity.name))

    def settle(
        self,
        entity: Entity,
        delivery: Delivery,
        outcome: str,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, object] | None = None,
    ) -> Promise[None]:
        """Adds a settlement to the work; the message stays locked and nobody else can settle it."""
        self._begin()
        if self.partition is None:
            self._settle_at(entity, delivery.partition.index)
        if self.partition is not delivery.partition:
            assert self.entity is not None
            raise InvalidOperation(OTHER_PLACE.format(self.entity.name))
        return delivery.partition.hold_in_transaction(self.work, delivery, outcome, reason, description, properties)

    def change_rule(self, topic: Entity, change: RuleChange) -> None:
        """Adds or removes a rule with the commit. Only the topic at which the transaction works can be changed."""
        self._begin()
        if topic.partitioned:
            raise InvalidOperation(PARTITIONED_RULES)
        if self.entity is not None and self.entity is not topic:
            raise InvalidOperation(OTHER_RULES.format(self.entity.name))
        changes = [*self._rule_changes, change]
        plan(topic, changes, 0)
        if self.partition is None:
            self._settle_at(topic, 0)
        self._rule_changes = changes

    def _settle_at(self, entity: Entity, index: int) -> None:
        self.entity = entity
        self.partition = entity.partitions[index]

    def _begin(self) -> None:
        """An operation comes."""
        self._check_open()
        if self.timer is None:
            self._home.begun(self)

    def _check_open(self) -> None:
        if self.done:
            raise TransactionUnknown("The transaction is unknown: it was completed, rolled back or timed out.")

    async def commit(self) -> None:
        """Everything happens, or it raises and nothing has."""
        self._check_open()
        self.finish()
        entity = self.entity
        if entity is None:
            return
        try:
            if self._rule_changes:
                await self._rules.commit(entity, self._rule_changes, self._commit)
            else:
                await self._commit(b"")
        except PolybusError:
            self._forget_work()
            raise

    async def _commit(self, intent: bytes) -> None:
        partition = self.partition
        assert partition is not None, "the partition is known with the entity"
        self.work.intent = intent
        await partition.commit(self.work)

    def roll_back(self) -> None:
        """Nothing happens; what was to be settled keeps the rest of its locks."""
        if not self.done:
            self.finish()
            self._forget_work()

    def _forget_work(self) -> None:
        if self.partition is not None:
            self.partition.roll_back(self.work)
        if self.on_roll_back is not None:
            self.on_roll_back()

    def finish(self) -> None:
        self.done = True
        if self.timer is not None:
            self.timer.cancel()
            self._home.ended(self)


class Transactions:
    """The transactions of a namespace that have begun and not ended."""

    def __init__(self, loop: Loop, clock: Clock, rules: TransactionRules) -> None:
        self._loop = loop
        self._clock = clock
        self._rules = rules
        self._open: dict[bytes, Transaction] = {}
        self._counter = 0
        self.incarnation = 0

    def declare(self) -> Transaction:
        self._counter += 1
        return Transaction(_ID.pack(self.incarnation, self._counter), self, self._clock, self._rules)

    def begun(self, transaction: Transaction) -> None:
        self._open[transaction.id] = transaction
        transaction.until_ms = self._clock.now().mono_ms + TRANSACTION_MS
        transaction.timer = self._loop.call_later(TRANSACTION_MS / 1000, transaction.roll_back)

    def ended(self, transaction: Transaction) -> None:
        self._open.pop(transaction.id, None)

    async def discharge(self, transaction: Transaction, fail: bool) -> None:
        if fail:
            transaction.roll_back()
        else:
            await transaction.commit()

    def clock_moved(self) -> None:
        """The clock was moved by hand: what it has made too old ends now, and not when its timer rings."""
        now_ms = self._clock.now().mono_ms
        for transaction in [each for each in self._open.values() if each.until_ms <= now_ms]:
            transaction.roll_back()
