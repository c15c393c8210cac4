"""The half of a session that speaks: its window at the peer, delivery-ids, and what it holds back.

Transfers leave at once or wait for the peer's window, in order. Settlements and flows that are owed are
written when the connection's output is taken, each at most once, so that a peer which asks for an echo in
every frame gets one answer. AMQP 1.0 §2.5.6; docs/protocol/amqp.md#windows, docs/protocol/amqp.md#flow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from polybus.amqp.events import OutgoingDelivery
from polybus.amqp.fields import UINT_MAX
from polybus.amqp.frames import frame
from polybus.amqp.link import Link
from polybus.amqp.outbox import Settlements, UnsentDelivery
from polybus.amqp.outcomes import DeliveryState
from polybus.amqp.performatives import Begin
from polybus.amqp.states import MAPPED, SESSION, UNMAPPED, step
from polybus.amqp.traffic import Flow
from polybus.limits import AMQP_HANDLE_MAX, AMQP_SESSION_WINDOW

if TYPE_CHECKING:
    from polybus.amqp.connection import Connection

FIRST_OUTGOING_ID: Final = 1 << 20
"""Far from the ids that clients give, since Python's senders match dispositions by id alone.

docs/protocol/amqp.md#distant-ids.
"""


class SessionWriter:
    """Everything that a session sends."""

    def __init__(self, connection: Connection, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.state = step(SESSION, UNMAPPED, "begin")[1]
        self.out = connection.out
        self.frame_limit = connection.frame_limit
        self.window = begin.incoming_window
        self.next_outgoing_id = FIRST_OUTGOING_ID
        self.next_incoming_id = begin.next_outgoing_id
        self.next_delivery_id = FIRST_OUTGOING_ID
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self.waiting: deque[UnsentDelivery] = deque()
        self.answers = Settlements(self.out, channel, True)
        self.confirmations = Settlements(self.out, channel, False)
        self.unannounced = 0
        self._flow_due = False
        self._due: list[Link] = []
        self._dirty = False

    def answer_begin(self) -> None:
        window = AMQP_SESSION_WINDOW
        answer = Begin(FIRST_OUTGOING_ID, window, window, AMQP_HANDLE_MAX, self.channel)
        self.out.append(frame(self.channel, answer))

    def settle(self, delivery_id: int, outcome: bytes | DeliveryState) -> None:
        """Answers the peer's decision on a delivery of ours; nothing leaves once the session is gone."""
        if self.state == MAPPED:
            self.confirmations.add(delivery_id, outcome if isinstance(outcome, bytes) else outcome.encoded())
            self.mark_dirty()

    def write(self, data: bytes) -> None:
        """Queues a frame that must not overtake settlements given before it."""
        self.answers.flush()
        self.confirmations.flush()
        self.out.append(data)

    def number(self, delivery: OutgoingDelivery, settled: bool) -> int:
        """Gives the delivery the next id of the session: a gap or a repetition stops rhea.

        docs/protocol/amqp.md#delivery-ids.
        """
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & UINT_MAX
        delivery.delivery_id = delivery_id
        if not settled:
            self.unsettled[delivery_id] = delivery
            delivery.link.unsettled += 1
        return delivery_id

    def wait(self, item: UnsentDelivery) -> None:
        """Sends as many frames of the delivery as the peer's window takes, and the rest later."""
        item.delivery.link.waiting += 1
        self.waiting.append(item)
        self.send_waiting()

    def send_waiting(self) -> None:
        waiting = self.waiting
        while waiting and self.window > 0:
            item = waiting[0]
            link = item.delivery.link
            if item.place == 0:
                self.number(item.delivery, item.settled)
            self.window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & UINT_MAX
            if link.write_part(item):
                waiting.popleft()
                link.waiting -= 1
        if self._due or self._flow_due:
            self.mark_dirty()

    def mark_dirty(self) -> None:
        """Makes the connection call `flush` when its output is taken."""
        if not self._dirty:
            self._dirty = True
            self.connection.dirty.append(self)

    def flow_wanted(self, link: Link) -> None:
        """Owes the peer the state of a link."""
        if not link.flow_due:
            link.flow_due = True
            self._due.append(link)
            self.mark_dirty()

    def session_flow_wanted(self) -> None:
        """Owes the peer the state of the session; the flow of any link tells it too."""
        self._flow_due = True
        self.mark_dirty()

    def flush(self) -> None:
        """Writes what has been held back: settlements first, then flows."""
        self._dirty = False
        if self.state != MAPPED:
            return
        self.answers.flush()
        self.confirmations.flush()
        due, self._due = self._due, []
        for link in due:
            if link.waiting:
                self._due.append(link)
                continue
            link.flow_due = False
            if link.attached:
                link.write_flow()
        if self._flow_due:
            self.write_flow()

    def write_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        credit: int | None = None,
        drain: bool = False,
    ) -> None:
        self.unannounced = 0
        self._flow_due = False
        flow = Flow(
            self.next_incoming_id,
            AMQP_SESSION_WINDOW,
            self.next_outgoing_id,
            AMQP_SESSION_WINDOW,
            handle,
            delivery_count,
            credit,
            None,
            drain,
        )
        self.out.append(frame(self.channel, flow))
