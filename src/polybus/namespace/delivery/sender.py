"""Sends: the partition is chosen, and a message without a key finds another one when its own fails (B7-B10).

A send that no store has seen is simply sent elsewhere. One whose commit failed is in doubt: the partition that
takes it over writes, in the same batch, a mark that names what the failed one may hold, and before that one
serves again its doubtful rows are removed (see `recovery`). So a send in doubt is neither lost nor doubled. Stores that
hang one after the other can take longer than a sender may wait: in time he hears that nobody knows.
"""

from __future__ import annotations

from typing import Protocol

from polybus.amqp.codec import encode
from polybus.clock import Clock
from polybus.errors import MessageTooLarge, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting.partition_host import PartitionHost, Unkeyed
from polybus.hosting.store_host import InDoubt, StoreHost
from polybus.limits import REROUTE_MS
from polybus.message.message import Message
from polybus.namespace.delivery.routing import batch_key, key_of, partition_for
from polybus.namespace.entities.entity import Entity
from polybus.partition.broker import Broker
from polybus.partition.output import Reply
from polybus.partition.records import sealed
from polybus.promise import Handle, Loop, Promise

MARKS = b"K"
"""Table of marks in every store: the doubtful store's id, then a number of its own."""


class Doubts(Protocol):
    def doubt(self, store: StoreHost) -> Promise[None]:
        """Writes down that other stores may hold marks about this one."""

    def wanders(self, store: StoreHost) -> None:
        """A send in doubt about the store is on its way: the store must not serve before it has arrived."""

    def arrived(self, store: StoreHost) -> None: ...

    def marked(self, store: StoreHost, by: StoreHost) -> None:
        """A mark about the store is on its way into another one."""


class _Wandering(Unkeyed):
    """A send that may go to any partition."""

    __slots__ = (
        "answered",
        "began_ms",
        "context",
        "doubtful",
        "doubts",
        "entity",
        "keys",
        "messages",
        "partition",
        "reply",
        "timer",
    )

    def __init__(
        self,
        entity: Entity,
        messages: list[Message],
        reply: Reply,
        context: object,
        began_ms: int,
        doubts: Doubts,
    ) -> None:
        self.entity = entity
        self.messages = messages
        self.reply = reply
        self.context = context
        self.partition: PartitionHost | None = None
        self.keys: list[bytes] | None = None
        self.doubtful: list[tuple[StoreHost, list[bytes]]] | None = None
        self.doubts = doubts
        self.began_ms = began_ms
        self.timer: Handle | None = None
        """There from the first failure on."""
        self.answered = False
        """The sender has heard that nobody knows: nothing is tried any more."""

    def written(self, keys: list[bytes]) -> None:
        """The messages are in the open output: in the same one the failed partitions' rows are named."""
        self.keys = keys
        if self.doubtful is not None:
            assert self.partition is not None, "it was written somewhere"
            _mark(self.partition.require(), self.doubtful)
            for store, _ in self.doubtful:
                self.doubts.marked(store, self.partition.store)


class Sender:
    def __init__(self, doubts: Doubts, loop: Loop, clock: Clock) -> None:
        self._doubts = doubts
        self._loop = loop
        self._clock = clock
        self._reply_unkeyed: Reply = self._answered  # made once: to ask for a method costs each time
        self.rerouted = 0
        self.refused = 0

    def send(self, entity: Entity, messages: list[Message], reply: Reply, context: object) -> None:
        """Stores the messages, all or none; replies after the commit, or raises at once and nothing is stored."""
        entity.check_sendable()
        size = 0
        for message in messages:
            size += message.size
        if size > entity.max_message_bytes:
            raise MessageTooLarge(
                f"The received message (size: {size} bytes) exceeds the limit ({entity.max_message_bytes} bytes) on"
                f" '{entity.name}'."
            )
        if not messages:
            reply(context, [], None)
        elif len(entity.partitions) == 1:
            for message in messages:
                key_of(message, False)
            self._send_to(entity.partitions[0], messages, reply, context)
        else:
            key = batch_key(messages, entity.detects_duplicates)
            if key is not None:
                partition = entity.partitions[partition_for(key, len(entity.partitions))]
                self._send_to(partition, messages, reply, context)
            else:
                began_ms = self._clock.now().mono_ms
                self._wander(_Wandering(entity, messages, reply, context, began_ms, self._doubts))

    def _send_to(self, partition: PartitionHost, messages: list[Message], reply: Reply, context: object) -> None:
        try:
            check_open(partition)
        except ServerBusy:
            self.refused += 1
            raise
        partition.send(messages, reply, context)

    def _wander(self, send: _Wandering) -> None:
        """Tries the partitions in turn, beginning with the next."""
        entity = send.entity
        count = len(entity.partitions)
        failure: PolybusError | None = None
        for _ in range(count):
            partition = entity.partitions[entity.turn]
            entity.turn = entity.turn + 1 if entity.turn + 1 < count else 0
            try:
                check_open(partition)
                send.partition = partition
                partition.send(send.messages, self._reply_unkeyed, send, send)
            except (ServerBusy, QuotaExceeded) as error:
                self.rerouted += 1
                failure = error
                continue
            return
        self.refused += 1
        raise failure or PartitionUnavailable(f"No partition of '{entity.name}' is available.")

    def _answered(self, context: object, result: object, error: PolybusError | None) -> None:
        assert isinstance(context, _Wandering)
        send = context
        if error is None and send.timer is None:
            send.reply(send.context, result, None)
            return
        if send.answered or not isinstance(error, (PartitionUnavailable, QuotaExceeded)):
            self._reply(send, result, error)
            return
        if send.timer is None:
            left_ms = send.began_ms + REROUTE_MS - self._clock.now().mono_ms
            send.timer = self._loop.call_later(max(left_ms, 0) / 1000, self._give_up, send)
        self.rerouted += 1
        partition = send.partition
        if isinstance(error, InDoubt) and partition is not None:
            self._doubts.wanders(partition.store)
            assert send.keys is not None, "what is in doubt was written"
            send.doubtful = [*(send.doubtful or []), (partition.store, send.keys)]
            send.keys = None
            self._doubts.doubt(partition.store).then(lambda promise: self._go_on(send, promise))
        else:
            send.keys = None
            self._go_on(send, None)

    def _go_on(self, send: _Wandering, written: Promise[None] | None) -> None:
        try:
            if written is not None:
                written.result()
            if send.answered:
                raise PartitionUnavailable("The sender does not wait any more.")
            self._wander(send)
        except PolybusError as error:
            self._reply(send, None, error)

    def _give_up(self, send: _Wandering) -> None:
        self.refused += 1
        send.answered = True
        send.reply(send.context, None, InDoubt("Several messaging stores of this entity do not answer. Try again."))

    def _reply(self, send: _Wandering, result: object, error: PolybusError | None) -> None:
        if send.timer is not None:
            send.timer.cancel()
        if send.doubtful is not None:
            for store, _ in send.doubtful:
                self._doubts.arrived(store)
            if error is not None and not isinstance(error, InDoubt):
                error = InDoubt(f"A messaging store failed during a commit, and then: {error}")
        if not send.answered:
            send.reply(send.context, result, error)


def check_open(partition: PartitionHost) -> None:
    """Refuses a send that the partition's store cannot take now."""
    partition.require()
    store = partition.store
    if store.full:
        raise QuotaExceeded("A messaging store has less free space than its reserve; nothing can be sent to it.")
    if store.overloaded:
        raise ServerBusy("Too much waits for a messaging store; try again.")


def _mark(broker: Broker, doubtful: list[tuple[StoreHost, list[bytes]]]) -> None:
    """Names what failed partitions may hold, in the very batch that holds the messages now."""
    for store, keys in doubtful:
        broker.ids += 1
        unique = broker.token(1 << 47 | broker.ids)
        broker.out().put(MARKS + store.store_id + unique, sealed(encode(list(keys))))
