"""A link over which a client receives: its credit is a standing demand at the entity's source.

The receiver's `credit` is what the source may still hand over: the link's own credit, less what is on its way out of
the store, and nothing while the connection cannot take more bytes. A message in receive-and-delete mode is gone from
the store when it arrives here, so one that finds no credit waits for it. What never left is given back as if it had
never been taken; what left stays locked (C2). docs/protocol/amqp.md#drain, docs/protocol/amqp.md#transfers,
docs/protocol/amqp.md#lock-tokens.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from polybus.amqp.events import OutgoingDelivery
from polybus.amqp.outcomes import Modified, Released, state_from
from polybus.amqp.outgoing import OutgoingLink
from polybus.errors import PolybusError
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.selectors import in_force
from polybus.gateway.amqp.settling import SettlingLink
from polybus.limits import AMQP_UNSETTLED_DELIVERIES
from polybus.message.rendering import render_into
from polybus.namespace.delivery.source import Delivery, MessageSource, give_back
from polybus.promise import Promise
from polybus.rules.selectors import Selector

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

log = logging.getLogger(__name__)

SETTLED_MODE: Final = 1
"""snd-settle-mode: everything leaves settled, so messages are removed when they are handed over."""
_TAG: Final = struct.Struct(">QQ")


class ReceivingLink(SettlingLink):
    """What receivers with and without a session have in common. A `Receiver` of the namespace."""

    __slots__ = ("_drain_due", "_handed", "_held", "_in_flight", "credit", "deletes")

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode) -> None:
        super().__init__(endpoint, link, place)
        self.credit = 0
        self.deletes = link.attach.snd_settle_mode == SETTLED_MODE
        self._handed = 0
        """The credit as it was last handed to the source."""
        self._in_flight = 0
        """Messages taken from the store for good whose commit is under way."""
        self._held: deque[Delivery] | None = None
        self._drain_due = False
        self.note_entity(place.entity)
        self._count_receiver(1)

    def _count_receiver(self, change: int) -> None:
        place = self.place
        assert place is not None, "messages are received from a place"
        now_ms = self.endpoint.clock.now().wall_ms  # an entity is idle from when its last receiver has gone
        place.entity.receivers += change
        place.entity.accessed_ms = now_ms
        if place.subscription is not None:
            place.subscription.receivers += change
            place.subscription.accessed_ms = now_ms

    def check_place(self, place: LinkNode) -> None:
        place.entity.check_receivable(place.address)

    # Credit

    def credit_changed(self) -> None:
        self._drain_due = self.outgoing.drain
        self.resume()

    def resume(self) -> None:
        """Brings the demand in line with the link's credit and with what the connection can take."""
        if not self.link.attached:
            return
        if self._held:
            self._send_held()
        self._note_taken()
        free = self.outgoing.sendable - self._in_flight
        if self._stuck() or free < 0:
            free = 0
        self.credit = self._handed = free
        if free > 0:
            self.want()
        else:
            self.stop_wanting()
        if self._drain_due and not self._stuck():
            self.drained().then(self._on_drained)

    def _stuck(self) -> bool:
        if self.endpoint.blocked or self.endpoint.stopping or self.link.session.waiting:
            return True
        return self.link.unsettled >= AMQP_UNSETTLED_DELIVERIES and self._overfull()

    def _overfull(self) -> bool:
        """Whether the client holds too much; what it has lost the lock of is forgotten first."""
        self.full = True
        by_partition: dict[int, list[tuple[int, Delivery]]] = {}
        for key, outgoing in self.link.session.unsettled.items():
            held = outgoing.context
            if outgoing.link is self.link and isinstance(held, Delivery):
                by_partition.setdefault(held.partition.index, []).append((key, held))
        for found in by_partition.values():
            self._look_for_lost(found)
        return self.full

    def _look_for_lost(self, found: list[tuple[int, Delivery]]) -> None:
        asked = found[0][1].partition.are_locked([held for _, held in found])
        asked.then(lambda promise: self._forget_lost(found, promise))

    def _forget_lost(self, found: list[tuple[int, Delivery]], promise: Promise[list[bool]]) -> None:
        unsettled = self.link.session.unsettled
        for (key, held), locked in zip(found, promise.result(), strict=True):
            outgoing = unsettled.get(key)
            if not locked and outgoing is not None and outgoing.context is held:
                del unsettled[key]
                self.link.unsettled -= 1
        self.full = self.link.unsettled >= AMQP_UNSETTLED_DELIVERIES

    def tick(self) -> None:
        if self.full:
            self.resume()

    def want(self) -> None:
        """Tells whoever has messages that this receiver wants some."""
        raise NotImplementedError

    def stop_wanting(self) -> None:
        raise NotImplementedError

    def drained(self) -> Promise[None]:
        """Settled when everything that is at hand has been handed over."""
        raise NotImplementedError

    def _on_drained(self, promise: Promise[None]) -> None:
        del promise
        self._note_taken()
        if self._drain_due and self._in_flight == 0 and not self._stuck():
            self._drain_due = False
            self.credit = self._handed = 0
            self.stop_wanting()
            self.outgoing.drained()
            self.endpoint.wake()

    def _note_taken(self) -> None:
        if self.deletes:
            self._in_flight += self._handed - self.credit
            self._handed = self.credit

    def pause(self) -> None:
        self._note_taken()
        self.credit = self._handed = 0
        self.stop_wanting()

    # Messages

    def deliver(self, delivery: Delivery) -> None:
        if self.telemetry is not None and self.place is not None:
            self.telemetry.delivered(
                self.place.path, delivery.message, delivery.enqueued_ms, delivery.sequence, delivery.delivery_count
            )
        if self.deletes:
            self._deliver_removed(delivery)
            return
        if self.outgoing.credit <= 0:
            # The client has taken its credit back, in a frame behind the one that is dealt with now.
            self.pause()
            give_back(delivery)
            return
        token = delivery.lock_token = delivery.token
        start = self.outgoing.start_guid_frame(token)
        rest = render_into(start, delivery.message, delivery)
        if self.outgoing.send_frame(start, rest, False, delivery) is None:
            give_back(delivery)
            return
        self._sent(delivery.size)

    def _deliver_removed(self, delivery: Delivery) -> None:
        self._note_taken()
        self._in_flight -= 1
        if self.outgoing.credit <= 0:
            if self._held is None:
                self._held = deque()
            self._held.append(delivery)
        else:
            self._send_removed(delivery)
        if self._in_flight == 0 and self._drain_due:
            self.resume()

    def _send_removed(self, delivery: Delivery) -> None:
        start = self.outgoing.start_frame(_TAG.pack(delivery.partition.entity_id, delivery.sequence), True)
        rest = render_into(start, delivery.message, delivery)
        self.outgoing.send_frame(start, rest, True)
        self.stats.completed += 1
        self._sent(delivery.size)

    def _send_held(self) -> None:
        held = self._held
        while held and self.outgoing.sendable > 0:
            self._send_removed(held.popleft())

    def _sent(self, size: int) -> None:
        self.stats.outgoing_messages += 1
        self.stats.outgoing_bytes += size
        if self.endpoint.sent(size) or self._stuck():
            self.pause()

    def failed(self, error: PolybusError) -> None:
        """A message could not be removed for this receiver; it may come again."""
        self._note_taken()
        self._in_flight -= 1
        self.stats.refused(error)
        self.resume()

    def undecided(self, deliveries: list[OutgoingDelivery]) -> None:
        """What left stays locked, but for clients that say what is to become of it: JMS does (AMQP 1.0 §3.5.3)."""
        source = self.link.attach.source
        outcome = state_from(None if source is None else source.default_outcome)
        if isinstance(outcome, Modified) and not outcome.delivery_failed:
            outcome = Released()
        if not isinstance(outcome, (Released, Modified)):
            return
        now = self.endpoint.clock.now()
        for outgoing in deliveries:
            held = outgoing.context
            if isinstance(held, Delivery) and outgoing.delivery_id not in self.in_transactions:
                with contextlib.suppress(PolybusError):  # its lock may have ended
                    self.settle_without_answer(held, outcome, now)

    def detached(self, unsent: list[OutgoingDelivery]) -> None:
        self.credit = self._handed = 0
        self.stop_wanting()
        for outgoing in unsent:
            if isinstance(outgoing.context, Delivery):
                give_back(outgoing.context)
        self.gone()

    def gone(self) -> None:
        super().gone()
        self._count_receiver(-1)


class ReceiveLink(ReceivingLink):
    """A receiver of a queue, a subscription or a dead-letter queue without sessions."""

    __slots__ = ("_source",)

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode) -> None:
        super().__init__(endpoint, link, place)
        self._source: MessageSource = place.entity.source(place.address)

    def start(self, selected: bool = False) -> None:
        """`selected` tells that the client's selector is in force, here or where its messages come from."""
        self.endpoint.handle(self.link.accept(source=in_force(self.link.attach.source, selected)))

    def want(self) -> None:
        self._source.want(self)

    def stop_wanting(self) -> None:
        self._source.forget(self)

    def drained(self) -> Promise[None]:
        return self._source.drained()


class SelectingLink(ReceiveLink):
    """A receiver that wants only what its selector lets through. A `SelectingReceiver` of the namespace."""

    __slots__ = ("selector",)

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode, sql: str) -> None:
        super().__init__(endpoint, link, place)
        self.selector = Selector(sql)

    def want(self) -> None:
        self._source.want_selected(self)

    def stop_wanting(self) -> None:
        self._source.forget_selecting(self)
