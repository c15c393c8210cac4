"""One namespace: its entities by name, and what clients can do with them.

Everything a gateway asks for goes through here. Nothing outside this room may assume that a partition's broker
is in this process: callers see entities, sources, deliveries and promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.errors import EntityNotFound, MessageLockLost, OperationConflict, PolybusError, ServerBusy
from polybus.hashing import partition_for
from polybus.hosting.partition_client import PartitionClient
from polybus.limits import INFINITE_MS
from polybus.message.message import Message
from polybus.namespace.delivery.forwarder import Forwarder
from polybus.namespace.delivery.sender import Sender
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.delivery.transaction import Transactions
from polybus.namespace.delivery.transaction_rules import TransactionRules
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address, fold
from polybus.namespace.entities.tiers import Tier
from polybus.namespace.management.changes import Management
from polybus.namespace.management.forwarding import ForwardingManagement
from polybus.partition.tokens import read_token
from polybus.promise import C, Promise, Reply, rejected, spawn

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus


class Namespace:
    def __init__(self, name: str, bus: Bus) -> None:
        self.name = name
        self.bus = bus
        self.entities: dict[str, Entity] = {}
        self.created_ms = bus.clock.now().wall_ms
        self.sender = Sender(bus.recovery, bus.loop, bus.clock)
        self.forwarder = Forwarder(bus, bus.loop)
        self.management = (Management if bus.members is None else ForwardingManagement)(self, bus.new_key)
        self.transactions = Transactions(bus.loop, bus.clock, TransactionRules(bus, self.management))

    @property
    def tier(self) -> Tier:
        return self.bus.tier

    # Finding

    def find(self, path: str) -> Entity | None:
        return self.entities.get(fold(path))

    def entity(self, path: str) -> Entity:
        found = self.find(path)
        if found is None:
            raise EntityNotFound(f"The messaging entity 'sb://{self.name}/{path}' could not be found.")
        return found

    def addressed(self, address: Address) -> Entity:
        """The entity of an address; EntityNotFound where it, or its subscription, does not exist."""
        entity = self.entity(address.entity)
        if address.subscription is not None:
            entity.subscription(address.subscription)
        return entity

    # Sending

    def max_message_bytes(self, entity: Entity) -> int:
        return entity.max_message_bytes

    def send(self, entity: Entity, messages: list[Message], reply: Reply[C, list[int]], context: C) -> None:
        """Stores messages, all or none; calls reply(context, sequence numbers, error) after the commit.

        Raises BusError where they are refused at once.
        """
        self.sender.send(entity, messages, reply, context)

    # What its partitions ask, and tell

    def route(self, destination: str, key: str | None, message_id: str | None) -> tuple[int, int]:
        """The partition that takes a forwarded message: by the destination's own rules (E2)."""
        entity = self.entity(destination)
        if not entity.partitioned:
            return entity.id, 0
        if key is None and entity.detects_duplicates:
            key = message_id
        if key is not None:
            return entity.id, partition_for(key, len(entity.partitions))
        for _ in entity.partitions:
            index = entity.turn
            entity.turn = (index + 1) % len(entity.partitions)
            if entity.partitions[index].available:
                return entity.id, index
        return entity.id, entity.turn

    def outbox_ready(self, partition: PartitionClient) -> None:
        self.forwarder.outbox_ready(partition)

    def changed(self, partition: PartitionClient) -> None:
        self.bus.partition_changed(partition)

    def failed(self, error: PolybusError) -> None:
        self.bus.tell(error)

    # Settling by token

    def delivery_of(self, entity: Entity, log_id: int, token: bytes) -> Promise[Delivery]:
        """The delivery that a lock token names, whichever link it went out on."""
        entity_id, index, _, _ = read_token(token)
        if entity_id != entity.id or index >= len(entity.partitions):
            return rejected(MessageLockLost("The lock supplied is invalid: it is not a lock of this entity."))
        return entity.partitions[index].find_locked(log_id, token)

    # Idle entities

    def delete_idle(self) -> None:
        """Deletes entities and subscriptions that nobody has used for as long as they say."""
        now_ms = self.bus.clock.now().wall_ms
        for entity in list(self.entities.values()):
            idle_ms = entity.description.auto_delete_on_idle_ms
            if idle_ms < INFINITE_MS and entity.idle_since_ms() + idle_ms <= now_ms and not entity.in_use():
                spawn(self.management.delete(entity.name)).then(lambda promise: _tolerate(promise.result))
                continue
            for subscription in list(entity.subscriptions.values()):
                described = subscription.description
                since_ms = entity.idle_since_ms(subscription)
                if described.auto_delete_on_idle_ms + since_ms <= now_ms and not subscription.in_use():
                    work = self.management.delete_subscription(entity.name, described.name)
                    spawn(work).then(lambda promise: _tolerate(promise.result))


def _tolerate(result: object) -> None:
    """Deleting an idle entity can wait for the next look when a store is down."""
    assert callable(result)
    try:
        result()
    except (ServerBusy, EntityNotFound, OperationConflict):
        return
