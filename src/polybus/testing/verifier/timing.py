"""Nothing is delivered before it is due, and nothing after its time-to-live."""

from __future__ import annotations

from polybus.testing.history import DELIVERIES, OK, Op
from polybus.testing.verifier.check import Check, Handler
from polybus.testing.verifier.contents import ACTIVE, LOCKED
from polybus.testing.verifier.ledger import EntityLedger, MessageRecord, Send
from polybus.testing.verifier.lifetimes import due_ms, may_have_expired, ttl_ms
from polybus.testing.verifier.timeline import Span
from polybus.testing.verifier.verdict import FindingKind


class Timing(Check):
    """Compares deliveries with what the bus's wall clock can have shown."""

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = dict.fromkeys(DELIVERIES, self._deliver)
        handlers[Op.EXPIRE] = self._expire
        return handlers

    def _deliver(self, span: Span) -> None:
        event = span.event
        entity, dead = self.ledger.place(event.entity)
        if event.message_id is None or event.outcome != OK:
            return
        record = entity.messages[event.message_id]
        if dead:
            self._judge_dead(entity, record, span)
            return
        due = due_ms(record, span)
        if span.wall_to_ms + self.facts.slack_ms < due:
            self.found(FindingKind.EARLY, span, f"delivered {due - span.wall_to_ms} ms before it was due")
        if record.only_send is not None:
            self._judge_expiry(entity, record.only_send, span)

    def _judge_expiry(self, entity: EntityLedger, send: Send, span: Span) -> None:
        ttl = ttl_ms(entity.options, send)
        enqueued = _enqueued_by_ms(send, span)
        if ttl is None or enqueued is None:
            return
        late_ms = span.wall_from_ms - self.facts.slack_ms - (enqueued + ttl)
        if late_ms > 0:
            self.found(FindingKind.EXPIRED, span, f"delivered {late_ms} ms after its time-to-live")

    def _judge_dead(self, entity: EntityLedger, record: MessageRecord, span: Span) -> None:
        """One death alone can be told apart from others; a message that was moved has had two lives."""
        lifetime = entity.options.dead_letter_ttl_ms
        if lifetime is None or record.only_send is None or len(record.deaths) != 1:
            return
        died = record.deaths[0]
        if self.ledger.outcome(died.event) != OK or died.event.transaction is not None:
            return
        late_ms = span.wall_from_ms - self.facts.slack_ms - (died.wall_to_ms + lifetime)
        if late_ms > 0:
            self.found(FindingKind.EXPIRED, span, f"delivered {late_ms} ms after the time-to-live of dead letters")

    def _expire(self, span: Span) -> None:
        event = span.event
        entity, _ = self.ledger.place(event.entity)
        record = entity.messages.get(event.message_id or "")
        if record is None:
            return
        if not may_have_expired(entity.options, record, span.wall_to_ms + self.facts.slack_ms):
            self.found(FindingKind.LOST, span, "gone before its time-to-live was over")

    def finish(self) -> None:
        for entity in self.ledger.entities.values():
            for record in entity.messages.values():
                self._judge_stored(entity, record)

    def _judge_stored(self, entity: EntityLedger, record: MessageRecord) -> None:
        due = due_ms(record)
        if due <= self.ledger.final.wall_ms + self.facts.slack_ms:
            return
        for copy in record.copies.values():
            if copy.stored is not None and copy.stored.state in (ACTIVE, LOCKED):
                text = f"{copy.stored.state} at the end, before it is due"
                self.found_in(FindingKind.EARLY, entity.name, text, record.message_id, copy.number)


def _enqueued_by_ms(send: Send, delivery: Span) -> int | None:
    """The latest wall time at which it can have become active."""
    if delivery.event.enqueued_ms is not None:
        return delivery.event.enqueued_ms
    if send.outcome != OK or send.span.event.due_ms is not None or send.span.event.transaction is not None:
        return None
    return send.span.wall_to_ms
