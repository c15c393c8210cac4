"""Every message is where it must be, as often as it was sent: lost, invented, duplicated, cancelled."""

from __future__ import annotations

from polybus.testing.history import FAILED, OK, UNKNOWN, Op
from polybus.testing.verifier.check import Check
from polybus.testing.verifier.deduplication import bounds
from polybus.testing.verifier.ledger import EntityLedger, MessageRecord
from polybus.testing.verifier.lifetimes import may_have_expired, may_have_expired_dead
from polybus.testing.verifier.timeline import Span
from polybus.testing.verifier.verdict import FindingKind


class Accounting(Check):
    """Compares, for each message id, how often it was sent with how often it was seen."""

    def finish(self) -> None:
        for entity in self.ledger.entities.values():
            vanishing = _Vanishing(entity.vanishing)
            for record in entity.messages.values():
                self._judge(entity, record, vanishing)

    def _judge(self, entity: EntityLedger, record: MessageRecord, vanishing: _Vanishing) -> None:
        acknowledged = sum(send.outcome == OK for send in record.sends)
        unknown = sum(send.outcome == UNKNOWN for send in record.sends)
        least, most = acknowledged, acknowledged + unknown
        if entity.dedup_window_ms is not None:
            least, most = _bounds(record, entity.dedup_window_ms, entity.options.partitions)
        self._judge_surplus(entity, record, most, acknowledged + unknown)
        self._judge_missing(entity, record, least, vanishing)
        self._judge_consumed(entity, record, acknowledged + unknown)
        if record.seen > acknowledged:
            self.count("recovered", min(unknown, record.seen - acknowledged))

    def _judge_surplus(self, entity: EntityLedger, record: MessageRecord, most: int, sent: int) -> None:
        seen = record.seen
        if seen <= most - record.cancelled:
            return
        if sent == 0:
            text = "sent with outcome failed, yet there" if record.sends else "never sent"
            self.found_in(FindingKind.INVENTED, entity.name, text, record.message_id, _a_number(record))
        elif seen <= most and seen > sent - record.cancelled:
            self.found_in(FindingKind.CANCELLED, entity.name, "cancelled, yet there", record.message_id)
        elif seen <= sent:
            text = f"{seen} copies where duplicate detection allows {most - record.cancelled}"
            self.found_in(FindingKind.DUPLICATE_ACCEPTED, entity.name, text, record.message_id)
        else:
            text = f"{seen} copies of {sent} sends"
            self.found_in(FindingKind.INVENTED, entity.name, text, record.message_id, _a_number(record))

    def _judge_missing(self, entity: EntityLedger, record: MessageRecord, least: int, vanishing: _Vanishing) -> None:
        accounted = sum(copy.accounted for copy in record.copies.values()) + len(record.waiting)
        missing = least - record.cancelled - record.maybe_cancelled - accounted
        if missing <= 0:
            return
        if self._excused_by_expiry(entity, record):
            self.count("expired", missing)
            return
        for _ in range(missing):
            if vanishing.take(record):
                self.count("vanished")
                continue
            text = f"acknowledged, {'seen, but ' if record.copies else ''}not consumed and not stored"
            self.found_in(FindingKind.LOST, entity.name, text, record.message_id, _a_number(record))

    def _excused_by_expiry(self, entity: EntityLedger, record: MessageRecord) -> bool:
        wall_ms = self.ledger.final.wall_ms + self.facts.slack_ms
        if may_have_expired_dead(entity.options, record, wall_ms):
            return True
        if entity.options.dead_letter_on_expiry:
            return False
        return may_have_expired(entity.options, record, wall_ms)

    def _judge_consumed(self, entity: EntityLedger, record: MessageRecord, sent: int) -> None:
        consumed = 0
        for copy in record.copies.values():
            consumed += min(len(copy.consumed), 1)
            if copy.consumed and copy.stored is not None:
                text = f"still {copy.stored.state} after it was consumed, and that acknowledged"
                self.found_in(FindingKind.REDELIVERED, entity.name, text, record.message_id, copy.number)
            if len(copy.consumed) > 1:
                text = f"consumed {len(copy.consumed)} times, each acknowledged"
                self.found_in(FindingKind.DUPLICATED, entity.name, text, record.message_id, copy.number)
        if consumed > sent > 0:
            text = f"{consumed} copies consumed of {sent} sends"
            self.found_in(FindingKind.DUPLICATED, entity.name, text, record.message_id)


def _bounds(record: MessageRecord, window_ms: int, partitions: int) -> tuple[int, int]:
    """What duplicate detection allows, and what was moved here: that passes it, and may hold up later sends."""
    sent = [send for send in record.sends if send.span.event.op != Op.MOVE]
    moved = [send.outcome for send in record.sends if send.span.event.op == Op.MOVE]
    least, most = bounds(sent, window_ms, partitions)
    if not moved:
        return least, most
    return moved.count(OK) + min(least, 1), len(moved) - moved.count(FAILED) + most


def _a_number(record: MessageRecord) -> int | None:
    return next(iter(record.copies), None)


class _Vanishing:
    """What receive-and-deletes of unknown outcome may have taken with them, each up to its number."""

    def __init__(self, spans: list[Span]) -> None:
        self._left = [(span, span.event.at_most or 1) for span in spans]

    def take(self, record: MessageRecord) -> bool:
        for place, (span, left) in enumerate(self._left):
            if _can_have_taken(span, record):
                self._left[place] = (span, left - 1)
                if left == 1:
                    del self._left[place]
                return True
        return False


def _can_have_taken(span: Span, record: MessageRecord) -> bool:
    event = span.event
    return any(
        send.span.began <= span.ended and event.session in (None, send.span.event.session) for send in record.sends
    )
