"""Sends: the partition is chosen, and a message without a key finds another one when its own fails (B7-B10).

A send that no store has seen is simply sent elsewhere. One whose commit failed is in doubt: the partition that
takes it over writes, in the same batch, a mark that names what the failed one may hold, and before that one
serves again its doubtful rows are removed (see `recovery`). So a send in doubt is neither lost nor doubled. Stores that
hang one after the other can take longer than a sender may wait: by its deadline it is answered as in doubt.
"""

from __future__ import annotations

from typing import Any, Protocol

from polybus.clock import Clock
from polybus.errors import MessageTooLarge, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy
from polybus.hashing import partition_for
from polybus.hosting.partition_client import PartitionClient, UnkeyedSend
from polybus.hosting.store_host import InDoubt
from polybus.limits import REROUTE_MS, RULE_BATCH_ASKED
from polybus.message.message import Message
from polybus.namespace.delivery.holding import HeldSends
from polybus.namespace.delivery.routing import batch_key, key_of
from polybus.namespace.entities.entity import Entity
from polybus.promise import C, Loop, Promise, Reply, TimerHandle


class Doubts(Protocol):
    """Who keeps a store from serving while sends in doubt about it are under way. Stores are named by id."""

    def doubt(self, store_id: bytes) -> Promise[None]:
        """Writes down that other stores may hold marks about this one."""

    def reroute_begins(self, store_id: bytes) -> None:
        """A send in doubt about the store looks for another: until that ends the store must not serve."""

    def reroute_ends(self, store_id: bytes) -> None: ...

    def marked(self, store_id: bytes, by: bytes) -> None:
        """A mark about the store is on its way into another one."""


class _Reroute(UnkeyedSend):
    """A send that may go to any partition, and goes to another one when its own fails."""

    __slots__ = (
        "answered",
        "began_ms",
        "context",
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
        reply: Reply[C, Any],
        context: C,
        began_ms: int,
        doubts: Doubts,
    ) -> None:
        self.doubtful = None
        self.entity = entity
        self.messages = messages
        self.reply = reply
        self.context = context
        self.partition: PartitionClient | None = None
        self.keys: list[bytes] | None = None
        """The rows that hold the messages, or will."""
        self.doubts = doubts
        self.began_ms = began_ms
        self.timer: TimerHandle | None = None
        """There from the first failure on."""
        self.answered = False
        """The sender has heard that nobody knows: nothing is tried any more."""

    def written(self, keys: list[bytes]) -> None:
        self.keys = keys
        if self.doubtful is not None:
            assert self.partition is not None, "it was written somewhere"
            for store_id, _ in self.doubtful:
                self.doubts.marked(store_id, self.partition.store.store_id)


def _check_rules(entity: Entity, messages: int) -> None:
    """A batch is judged and stored in one step: how long that takes is bounded (`limits.RULE_BATCH_ASKED`)."""
    rules = entity.settings.rules.asked
    if messages * rules > RULE_BATCH_ASKED:
        raise MessageTooLarge(
            f"A batch of {messages} messages is too large for the {rules} SQL rules of '{entity.name}': it may have"
            f" {max(RULE_BATCH_ASKED // rules, 1)}."
        )


class Sender:
    def __init__(self, doubts: Doubts, loop: Loop, clock: Clock) -> None:
        self._doubts = doubts
        self._loop = loop
        self._clock = clock
        self._reply_unkeyed: Reply[_Reroute, list[int]] = (
            self._answered
        )  # made once: to ask for a method costs each time
        self.held: HeldSends | None = None
        """Holds sends to partitions that move; None where none ever does."""
        self.rerouted = 0
        self.refused = 0

    def send(self, entity: Entity, messages: list[Message], reply: Reply[C, list[int]], context: C) -> None:
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
        if len(messages) > 1 and entity.is_topic:
            _check_rules(entity, len(messages))
        if not messages:
            reply(context, [], None)
        elif len(entity.partitions) == 1:
            for message in messages:
                key_of(message, False)
            self._send_to(entity, 0, messages, reply, context)
        else:
            key = batch_key(messages, entity.detects_duplicates)
            if key is not None:
                index = partition_for(key, len(entity.partitions))
                self._send_to(entity, index, messages, reply, context)
            else:
                began_ms = self._clock.now().mono_ms
                self._try_partitions(_Reroute(entity, messages, reply, context, began_ms, self._doubts))

    def _send_to(
        self, entity: Entity, index: int, messages: list[Message], reply: Reply[C, list[int]], context: C
    ) -> None:
        held = self.held
        partition = entity.partitions[index]
        try:
            if held is not None:
                held.send(entity, index, messages, reply, context)
                return
            partition.check_open()
        except ServerBusy:
            self.refused += 1
            raise
        partition.send(messages, reply, context)

    def _try_partitions(self, send: _Reroute) -> None:
        """Tries the partitions in turn, beginning with the next."""
        entity = send.entity
        count = len(entity.partitions)
        failure: PolybusError | None = None
        for _ in range(count):
            partition = entity.partitions[entity.turn]
            entity.turn = entity.turn + 1 if entity.turn + 1 < count else 0
            try:
                partition.check_open()
                send.partition = partition
                partition.send(send.messages, self._reply_unkeyed, send, send)
            except (ServerBusy, QuotaExceeded) as error:
                self.rerouted += 1
                failure = error
                continue
            return
        self.refused += 1
        raise failure or PartitionUnavailable(f"No partition of '{entity.name}' is available.")

    def _answered(self, send: _Reroute, result: list[int] | None, error: PolybusError | None) -> None:
        if error is None and send.timer is None:
            send.reply(send.context, result, None)
            return
        lost = isinstance(error, InDoubt) and send.keys is None  # nobody can tell which rows it would be
        if send.answered or lost or not isinstance(error, (PartitionUnavailable, QuotaExceeded)):
            self._reply(send, result, error)
            return
        if send.timer is None:
            left_ms = send.began_ms + REROUTE_MS - self._clock.now().mono_ms
            send.timer = self._loop.call_later(max(left_ms, 0) / 1000, self._give_up, send)
        self.rerouted += 1
        partition = send.partition
        if isinstance(error, InDoubt) and partition is not None:
            store_id = partition.store.store_id
            self._doubts.reroute_begins(store_id)
            assert send.keys is not None, "what is in doubt was written"
            send.doubtful = [*(send.doubtful or []), (store_id, send.keys)]
            send.keys = None
            self._doubts.doubt(store_id).then(lambda promise: self._go_on(send, promise))
        else:
            send.keys = None
            self._go_on(send, None)

    def _go_on(self, send: _Reroute, written: Promise[None] | None) -> None:
        try:
            if written is not None:
                written.result()
            if send.answered:
                raise PartitionUnavailable("The sender does not wait any more.")
            self._try_partitions(send)
        except PolybusError as error:
            self._reply(send, None, error)

    def _give_up(self, send: _Reroute) -> None:
        self.refused += 1
        send.answered = True
        send.reply(send.context, None, InDoubt("Several messaging stores of this entity do not answer. Try again."))

    def _reply(self, send: _Reroute, result: object, error: PolybusError | None) -> None:
        if send.timer is not None:
            send.timer.cancel()
        if send.doubtful is not None:
            for store_id, _ in send.doubtful:
                self._doubts.reroute_ends(store_id)
            if error is not None and not isinstance(error, InDoubt):
                error = InDoubt(f"A messaging store failed during a commit, and then: {error}")
        if not send.answered:
            send.reply(send.context, result, error)
