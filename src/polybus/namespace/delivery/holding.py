"""Sends to a partition that is on its way to another owner: held for a moment, in their order, rather than refused.

Clients that are refused back off for seconds; a planned move takes a fraction of one. What is held waits at the gateway
that took it, outside of partitions' clients, for those are made anew with the new owner. A send that may be stored
already is never held: only its owner can tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from polybus.errors import PartitionUnavailable, PolybusError
from polybus.hosting.partition_client import PartitionClient
from polybus.hosting.send_ledger import NotStored
from polybus.hosting.store_host import InDoubt, StoreHost
from polybus.limits import MOVE_HOLD_MS
from polybus.message.message import Message
from polybus.namespace.entities.entity import Entity
from polybus.promise import Loop, Reply

IsMoving = Callable[[StoreHost], bool]


class HeldSend:
    """A send with a key, which no other partition can take."""

    __slots__ = ("again", "context", "entity", "given_up", "index", "messages", "parked", "reply")

    def __init__(
        self, entity: Entity, index: int, messages: list[Message], reply: Reply[Any, list[int]], context: object
    ) -> None:
        self.entity = entity
        self.index = index
        self.messages = messages
        self.reply = reply
        self.context = context
        self.parked = False
        """It was held before: its time runs."""
        self.given_up = False
        self.again = False
        """It was tried again at a new owner."""


class HeldSends:
    def __init__(self, loop: Loop, is_moving: IsMoving) -> None:
        self._loop = loop
        self._is_moving = is_moving
        self._parked: dict[tuple[int, int], deque[HeldSend]] = {}
        self.held = 0
        """How many were held so far."""

    def send(
        self, entity: Entity, index: int, messages: list[Message], reply: Reply[Any, list[int]], context: object
    ) -> None:
        """As a partition's client sends; raises at once where the partition is away and does not move."""
        send = HeldSend(entity, index, messages, reply, context)
        if (entity.id, index) in self._parked:
            self._park(send)  # behind those that came before
            return
        error = self._try(send)
        if error is not None:
            raise error

    def changed(self, partition: PartitionClient) -> None:
        """The partition serves, or no longer does; what waits for it is sent when it does."""
        if partition.available:
            self._retry((partition.entity_id, partition.index))

    def _retry(self, place: tuple[int, int]) -> None:
        waiting = self._parked.pop(place, None)
        while waiting:
            send = waiting.popleft()
            if send.given_up:
                continue
            error = self._try(send)
            if error is not None:
                send.reply(send.context, None, error)
            elif place in self._parked and waiting:
                self._parked[place].extend(waiting)
                return

    def _try(self, send: HeldSend) -> PolybusError | None:
        """Sends or parks it; gives the error where neither can be."""
        partition = send.entity.partitions[send.index]
        try:
            partition.check_open()
            partition.send(send.messages, self._answered, send)
        except PolybusError as error:
            if self._holds(send, error):
                self._park(send)
                return None
            return error
        return None

    def _holds(self, send: HeldSend, error: PolybusError) -> bool:
        if not isinstance(error, PartitionUnavailable) or isinstance(error, InDoubt):
            return False
        if isinstance(error, NotStored) and not send.again:
            send.again = True  # its store has another owner, who has said so: it can take it
            return True
        return self._is_moving(send.entity.partitions[send.index].store)

    def _answered(self, send: HeldSend, result: list[int] | None, error: PolybusError | None) -> None:
        if error is not None and not send.given_up and self._holds(send, error):
            self._park(send)
            if isinstance(error, NotStored):
                self._retry((send.entity.id, send.index))
        else:
            send.reply(send.context, result, error)

    def _park(self, send: HeldSend) -> None:
        self._parked.setdefault((send.entity.id, send.index), deque()).append(send)
        if not send.parked:
            send.parked = True
            self.held += 1
            self._loop.call_later(MOVE_HOLD_MS / 1000, self._give_up, send)

    def _give_up(self, send: HeldSend) -> None:
        place = (send.entity.id, send.index)
        waiting = self._parked.get(place)
        if waiting is None or send not in waiting:
            return
        waiting.remove(send)
        if not waiting:
            del self._parked[place]
        send.given_up = True
        send.reply(send.context, None, PartitionUnavailable("A messaging store moves to another node. Try again."))
