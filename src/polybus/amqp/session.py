"""A session: the links on it, and what the peer's frames do to them.

Frames come from the connection: those of each message by the short way, the others as performatives. Work on a
disposition is in proportion to the deliveries that are known, never to the range that it names. The moves are those
of `states.SESSION`. AMQP 1.0 §2.5, §2.6; docs/protocol/amqp.md#windows, docs/protocol/amqp.md#dispositions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from polybus.amqp.events import Attached, CreditChanged, Disposed, OutgoingDelivery, ProtocolEvent, SessionEnded
from polybus.amqp.fields import UINT_MAX, bool_at, needed_uint_at, uint_at
from polybus.amqp.frames import disposition, frame
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.link import Link
from polybus.amqp.outbox import serial_distance
from polybus.amqp.outcomes import AmqpError, DeliveryState, Rejected
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.performatives import Attach, Begin, Detach, End
from polybus.amqp.states import ENDED, MAPPED, SESSION, step
from polybus.amqp.traffic import (
    Disposition,
    DispositionTail,
    TransferTail,
    is_at,
    scan_disposition,
    scan_fields,
    scan_transfer,
)
from polybus.amqp.writer import FIRST_OUTGOING_ID, SessionWriter
from polybus.errors import ProtocolError
from polybus.limits import (
    AMQP_CACHED_SHAPE_BYTES,
    AMQP_CACHED_SHAPES,
    AMQP_HANDLE_MAX,
    AMQP_SESSION_WINDOW,
    AMQP_UNSETTLED_OVERRUN,
)

if TYPE_CHECKING:
    from polybus.amqp.connection import Connection

_HALF_WINDOW: Final = AMQP_SESSION_WINDOW // 2
_UNKNOWN_DELIVERY: Final = Rejected(
    AmqpError("amqp:not-found", "The delivery is not known here: it was settled, or went out on another session.")
).encoded()


class AmqpSession(SessionWriter):
    """One session of the peer. `context` is the owner's."""

    def __init__(self, connection: Connection, channel: int, begin: Begin) -> None:
        super().__init__(connection, channel, begin)
        self.context: object = None
        self.links: dict[int, Link] = {}
        self.incoming: dict[int, IncomingLink] = {}
        self.incoming_limit = AMQP_UNSETTLED_OVERRUN
        self._handle_max = min(begin.handle_max, AMQP_HANDLE_MAX)
        self._transfer_tail: TransferTail | None = None
        self._transfer_tails: dict[bytes, TransferTail] = {}
        self._disposition_tail: DispositionTail | None = None
        self._disposition_tails: dict[bytes, DispositionTail] = {}

    def end(self, error: AmqpError | None = None) -> list[ProtocolEvent]:
        """Ends the session from our side; gives the events for what was on it."""
        events: list[ProtocolEvent] = []
        if self.state == MAPPED:
            self.write(frame(self.channel, End(error)))
            self._leave(step(SESSION, self.state, "we end")[1], error, events)
        return events

    def fail(self, condition: str, description: str, events: list[ProtocolEvent]) -> None:
        """Ends the session because the peer broke a rule that concerns it only."""
        events.extend(self.end(AmqpError(condition, description)))

    def on_end(self, end: End, events: list[ProtocolEvent]) -> None:
        action, state = step(SESSION, self.state, "end")
        self.connection.forget_session(self)
        if action == "answer end":
            self.out.append(frame(self.channel, End()))
            self._leave(state, end.error, events)
        self.state = state

    def gone(self, error: AmqpError | None, events: list[ProtocolEvent]) -> None:
        """The connection is gone, and so is everything on it."""
        if self.state == MAPPED:
            self._leave(ENDED, error, events)
        self.state = ENDED

    def _leave(self, state: str, error: AmqpError | None, events: list[ProtocolEvent]) -> None:
        """Reports each link and then the session; nothing is written from here on."""
        self.state = state
        lost = self._lost_by_handle()
        self.unsettled.clear()
        self.waiting.clear()
        self.incoming.clear()
        for link in self.links.values():
            self.connection.hold(-link.held_bytes)
            link.unsettled = 0
            link.waiting = 0
            unsent, unsettled = lost.get(link.handle, ([], []))
            link.gone(error, unsent, unsettled, events)
        self.connection.link_count -= len(self.links)
        self.links = {}
        events.append(SessionEnded(self, error))

    def _lost_by_handle(self) -> dict[int, tuple[list[OutgoingDelivery], list[OutgoingDelivery]]]:
        lost: dict[int, tuple[list[OutgoingDelivery], list[OutgoingDelivery]]] = {}
        begun: set[int] = set()
        for item in self.waiting:
            begun.add(item.delivery.delivery_id)
            lost.setdefault(item.delivery.link.handle, ([], []))[0].append(item.delivery)
        for delivery in self.unsettled.values():
            if delivery.delivery_id not in begun:
                lost.setdefault(delivery.link.handle, ([], []))[1].append(delivery)
        return lost

    def on_attach(self, attach: Attach, size: int, events: list[ProtocolEvent]) -> None:
        """`size` is that of the frame: what the peer says of a link is kept as long as the link."""
        handle = attach.handle
        if handle > AMQP_HANDLE_MAX:
            raise ProtocolError("amqp:connection:framing-error", "the handle is beyond our handle-max")
        if handle in self.links:
            self.fail("amqp:session:handle-in-use", f"handle {handle} is in use", events)
        elif handle > self._handle_max:
            self.fail("amqp:not-allowed", "the handle is beyond the peer's own handle-max", events)
        elif not self.connection.room_for_link():
            self.fail("amqp:resource-limit-exceeded", "the connection has too many links", events)
        else:
            link: Link = OutgoingLink(self, attach) if attach.role else IncomingLink(self, attach)
            self.links[handle] = link
            link.held_bytes = size
            self.connection.hold(size)
            events.append(Attached(link, attach))

    def on_detach(self, detach: Detach, events: list[ProtocolEvent]) -> None:
        link = self._link(detach.handle, events)
        if link is not None:
            del self.links[detach.handle]
            self.connection.link_count -= 1
            self.connection.hold(-link.held_bytes)
            link.on_detach(detach, events)

    def _link(self, handle: int, events: list[ProtocolEvent]) -> Link | None:
        link = self.links.get(handle)
        if link is None:
            self.fail("amqp:session:unattached-handle", f"no link has handle {handle}", events)
        return link

    def on_flow(self, fields: list[object], events: list[ProtocolEvent]) -> None:
        """AMQP 1.0 §2.5.6: their ids and windows replace what we believed of them."""
        expected = uint_at(fields, 0)
        under_way = serial_distance(FIRST_OUTGOING_ID if expected is None else expected, self.next_outgoing_id)
        self.window = max(needed_uint_at(fields, 1) - max(under_way, 0), 0)
        self.next_incoming_id = needed_uint_at(fields, 2)
        if self.waiting:
            self._resume(events)
        handle = uint_at(fields, 4)
        if handle is not None:
            link = self._link(handle, events)
            change = None if link is None else link.on_flow(fields)
            if change is not None:
                events.append(change)
        elif bool_at(fields, 9):
            self.session_flow_wanted()

    def _resume(self, events: list[ProtocolEvent]) -> None:
        """The peer's window is open again: what waited leaves, and who has credit may go on."""
        self.send_waiting()
        if not self.waiting:
            for link in self.links.values():
                if isinstance(link, OutgoingLink) and link.sendable:
                    events.append(CreditChanged(link))

    def on_transfer(self, buf: bytes, pos: i64, end: i64, events: list[ProtocolEvent]) -> i64:
        """A transfer whose fields begin at `pos`, and its payload up to `end`; how many bytes its fields take."""
        handle, delivery_id, tag, count, place, stop = scan_transfer(buf, pos, end)
        link = self.links.get(handle)
        if link is None:
            self._link(handle, events)
            return stop - pos
        tail = self._transfer_tail
        if tail is None or tail.count != count or not is_at(buf, place, stop, tail.shape):
            tail = self._tail_of_transfer(buf, place, stop, count)
        self.next_incoming_id = (self.next_incoming_id + 1) & UINT_MAX
        self.unannounced += 1
        if self.unannounced == _HALF_WINDOW:
            self.session_flow_wanted()
        if isinstance(link, IncomingLink):
            link.on_transfer(delivery_id, tag, tail, buf[stop:end], events)
        elif isinstance(link, OutgoingLink):
            link.on_stray_transfer(events)
        return stop - pos

    def _tail_of_transfer(self, buf: bytes, place: int, stop: int, count: int) -> TransferTail:
        """What the last fields say; they hardly change, so the last ones seen are kept as they were read."""
        shape = buf[place:stop]
        tail = self._transfer_tails.get(shape)
        if tail is None or tail.count != count:
            tail = TransferTail(shape, count, scan_fields(buf, place, stop, count))
            if len(shape) > AMQP_CACHED_SHAPE_BYTES:
                return tail
            if len(self._transfer_tails) >= AMQP_CACHED_SHAPES:
                self._transfer_tails.clear()
            self._transfer_tails[shape] = tail
        self._transfer_tail = tail
        return tail

    def on_disposition(self, buf: bytes, pos: i64, end: i64, events: list[ProtocolEvent]) -> None:
        """The peer's word on our deliveries (its role is receiver), or on its own."""
        role, first, last, count, place, stop = scan_disposition(buf, pos, end)
        tail = self._disposition_tail
        if tail is None or tail.count != count or not is_at(buf, place, stop, tail.shape):
            tail = self._tail_of_disposition(buf, place, stop, count)
        if first != last and serial_distance(first, last) < 0:
            self.fail("amqp:invalid-field", "a disposition's last delivery precedes its first", events)
        elif not role:
            if tail.settled:
                self._settled_by_sender(first, last)
        elif tail.settled or tail.terminal:
            self._on_decision(first, last, tail, events)

    def _tail_of_disposition(self, buf: bytes, place: int, stop: int, count: int) -> DispositionTail:
        shape = buf[place:stop]
        tail = self._disposition_tails.get(shape)
        if tail is None or tail.count != count:
            tail = DispositionTail(shape, count, scan_fields(buf, place, stop, count))
            if len(shape) > AMQP_CACHED_SHAPE_BYTES:
                return tail
            if len(self._disposition_tails) >= AMQP_CACHED_SHAPES:
                self._disposition_tails.clear()
            self._disposition_tails[shape] = tail
        self._disposition_tail = tail
        return tail

    def _on_decision(self, first: int, last: int, tail: DispositionTail, events: list[ProtocolEvent]) -> None:
        """Decisions in a row that say the same are one event."""
        if first == last:
            delivery = self.unsettled.pop(first, None)
            if delivery is not None:
                delivery.link.unsettled -= 1
                before = events[-1] if events else None
                if isinstance(before, Disposed) and before.continues(self, tail.state, tail.settled):
                    before.deliveries.append(delivery)
                else:
                    events.append(Disposed(self, [delivery], tail.state, tail.settled))
            elif not tail.settled:
                self._answer_unknown(first, last, [])
            return
        deliveries = self._decided(first, last)
        if not tail.settled:
            self._answer_unknown(first, last, deliveries)
        if deliveries:
            events.append(Disposed(self, deliveries, tail.state, tail.settled))

    def _decided(self, first: int, last: int) -> list[OutgoingDelivery]:
        """Our deliveries in the range, taken off the unsettled ones: a second decision finds nothing."""
        unsettled = self.unsettled
        known = sorted(_known(unsettled, first, last), key=lambda key: serial_distance(first, key))
        decided = [unsettled.pop(key) for key in known]
        for delivery in decided:
            delivery.link.unsettled -= 1
        return decided

    def hold(self, delivery: OutgoingDelivery, state: DeliveryState) -> None:
        """Answers a decision without settling it: it is part of a transaction (AMQP 1.0 §4.4.4.2)."""
        self.unsettled[delivery.delivery_id] = delivery
        delivery.link.unsettled += 1
        self.flush()
        self.write(frame(self.channel, Disposition(False, delivery.delivery_id, delivery.delivery_id, False, state)))

    def _answer_unknown(self, first: int, last: int, known: list[OutgoingDelivery]) -> None:
        """The peer waits for a word on every delivery it names, also on those that are settled already.

        docs/protocol/amqp.md#confirmations.

        The gaps between the known ones are answered as ranges, and only as far as ids were ever given.
        """
        first = max(first, FIRST_OUTGOING_ID)
        end = min(last, self.next_delivery_id - 1) + 1
        for delivery_id in [delivery.delivery_id for delivery in known] + [end]:
            if first < delivery_id:
                self.write(disposition(self.channel, False, first, delivery_id - 1, _UNKNOWN_DELIVERY))
            first = delivery_id + 1

    def _settled_by_sender(self, first: int, last: int) -> None:
        incoming = self.incoming
        for key in _known(incoming, first, last):
            incoming.pop(key).forget_one()

    def granted(self, credit: int) -> None:
        """Credit granted to the peer raises the number of deliveries that it may have under way."""
        self.incoming_limit += credit

    def assembled(self, size: int) -> None:
        self.connection.hold(size)

    def lost_deliveries(self, link: OutgoingLink) -> tuple[list[OutgoingDelivery], list[OutgoingDelivery]]:
        if not link.unsettled and not link.waiting:
            return [], []
        return self._lost_by_handle().get(link.handle, ([], []))

    def forget_outgoing(self, link: OutgoingLink) -> None:
        """Drops what the link had not sent and what the peer had not decided."""
        if link.waiting:
            kept = [item for item in self.waiting if item.delivery.link is not link]
            self.waiting.clear()
            self.waiting.extend(kept)
            link.waiting = 0
        if link.unsettled:
            self.unsettled = {key: one for key, one in self.unsettled.items() if one.link is not link}
            link.unsettled = 0

    def forget_incoming(self, link: IncomingLink) -> None:
        if link.unsettled:
            self.incoming = {key: one for key, one in self.incoming.items() if one is not link}
            link.unsettled = 0


def _known(deliveries: dict[int, OutgoingDelivery] | dict[int, IncomingLink], first: int, last: int) -> list[int]:
    """The ids in `deliveries` from `first` to `last`, in order, by whichever way is shorter."""
    span = serial_distance(first, last)
    if span < len(deliveries):
        ids = [(first + step) & UINT_MAX for step in range(span + 1)]
        return [key for key in ids if key in deliveries]
    return [key for key in deliveries if 0 <= serial_distance(first, key) <= span]
