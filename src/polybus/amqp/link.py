"""A link's life: attach, wait for the caller's answer, be attached, detach.

What flows over it is in `incoming` (the peer sends) and `outgoing` (we send). A link never writes a frame once the
peer has detached it or ended its session: some clients drop the connection then (docs/protocol/amqp.md#late-frames).
The moves are those of `states.LINK`. AMQP 1.0 §2.6; docs/protocol/amqp.md#attach,
docs/protocol/amqp.md#refused-attach, docs/protocol/amqp.md#detach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.amqp.events import LinkDetached, OutgoingDelivery, ProtocolEvent
from polybus.amqp.fields import UINT_MAX
from polybus.amqp.frames import frame
from polybus.amqp.outcomes import AmqpError
from polybus.amqp.performatives import Attach, Detach
from polybus.amqp.states import ATTACHED, DETACHED, DETACHING, LINK, PENDING, step
from polybus.amqp.terminus import Coordinator, Source, Target

if TYPE_CHECKING:
    from polybus.amqp.session import AmqpSession


class Link:
    """One direction between the peer and us. `context` is the owner's, for whatever it wants to find again."""

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        self.session = session
        self.attach = attach
        self.name = attach.name
        self.handle = attach.handle
        self.state = step(LINK, DETACHED, "attach")[1]
        self.credit = 0
        self.delivery_count = 0
        self.unsettled = 0
        self.waiting = 0
        self.flow_due = False
        self.held_bytes = 0
        self.max_message_size: int | None = None
        self.context: object = None
        self.closed_by_peer = False
        """Whether the peer has ended the link for good, and not only left it."""

    @property
    def attached(self) -> bool:
        return self.state == ATTACHED

    @property
    def pending(self) -> bool:
        return self.state == PENDING

    def accept(
        self,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        properties: dict[object, object] | None = None,
        max_message_size: int | None = None,
    ) -> list[ProtocolEvent]:
        """Answers the attach; gives the events that had to wait for it. None echoes what the peer sent.

        Does nothing if the peer has given the link up meanwhile.
        """
        if self.state == DETACHED or self.state == DETACHING:
            return []
        self.state = step(LINK, self.state, "we accept")[1]
        answer = self._answer()
        answer.source = source or self.attach.source or Source()
        answer.target = target or self.attach.target or Target()
        answer.properties = {} if properties is None else properties
        answer.max_message_size = max_message_size
        self.session.write(frame(self.session.channel, answer))
        self.max_message_size = max_message_size
        return self._accepted()

    def refuse(self, error: AmqpError) -> None:
        """Answers the attach with none of the two ends, and detaches in the same breath.

        docs/protocol/amqp.md#refusal-in-one-breath.
        """
        if self.state == DETACHED or self.state == DETACHING:
            return
        self.state = step(LINK, self.state, "we refuse")[1]
        self._write_refusal(error)
        self._forget_traffic()

    def detach(self, error: AmqpError | None = None) -> list[OutgoingDelivery]:
        """Closes the link from our side; gives the deliveries that never left. No event follows."""
        unsent = self._lost()[0]
        if self.state == PENDING:
            self.refuse(error or AmqpError("amqp:link:detach-forced"))
        elif self.state == ATTACHED:
            self.state = step(LINK, self.state, "we detach")[1]
            self.session.write(frame(self.session.channel, Detach(self.handle, True, error)))
            self._forget_traffic()
        return unsent

    def fail(self, condition: str, description: str, events: list[ProtocolEvent]) -> None:
        """Detaches because the peer broke a rule that concerns this link only."""
        error = AmqpError(condition, description)
        unsent, unsettled = self._lost()
        self.detach(error)
        events.append(LinkDetached(self, True, error, unsent, unsettled))

    def on_detach(self, detach: Detach, events: list[ProtocolEvent]) -> None:
        action, self.state = step(LINK, self.state, "detach")
        self.closed_by_peer = detach.closed
        if action != "forget":
            if action == "answer attach and detach":
                self._write_refusal(None)
            else:
                self.session.write(frame(self.session.channel, Detach(self.handle, detach.closed, None)))
            unsent, unsettled = self._lost()
            self._forget_traffic()
            events.append(LinkDetached(self, detach.closed, detach.error, unsent, unsettled))

    def gone(
        self,
        error: AmqpError | None,
        unsent: list[OutgoingDelivery],
        unsettled: list[OutgoingDelivery],
        events: list[ProtocolEvent],
    ) -> None:
        """The session is gone, and the link with it; reported unless that was done before."""
        known = self.state == PENDING or self.state == ATTACHED
        self.state = DETACHED
        self._forget_traffic()
        if known:
            events.append(LinkDetached(self, True, error, unsent, unsettled))

    def on_flow(self, fields: list[object]) -> ProtocolEvent | None:
        raise NotImplementedError

    def write_flow(self) -> None:
        raise NotImplementedError

    def _accepted(self) -> list[ProtocolEvent]:
        raise NotImplementedError

    def _lost(self) -> tuple[list[OutgoingDelivery], list[OutgoingDelivery]]:
        """Deliveries that never left, and those on which the peer has not decided."""
        return [], []

    def _forget_traffic(self) -> None:
        raise NotImplementedError

    def _answer(self) -> Attach:
        theirs = self.attach
        return Attach(
            self.name,
            self.handle,
            not theirs.role,
            snd_settle_mode=theirs.snd_settle_mode,
            rcv_settle_mode=theirs.rcv_settle_mode,
            initial_delivery_count=0 if theirs.role else None,
        )

    def _write_refusal(self, error: AmqpError | None) -> None:
        channel = self.session.channel
        self.session.write(frame(channel, self._answer()))
        self.session.write(frame(channel, Detach(self.handle, True, error)))

    def _count(self, deliveries: int) -> None:
        self.delivery_count = (self.delivery_count + deliveries) & UINT_MAX
        self.credit -= deliveries
