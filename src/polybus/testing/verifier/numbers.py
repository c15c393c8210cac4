"""Sequence numbers are never used twice and name their partition; bodies and keys come out as they went in."""

from __future__ import annotations

from polybus.numbering import partition_of
from polybus.testing.history import DELIVERIES, FAILED, Event, Op
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.ledger import EntityLedger
from polybus.testing.verifier.timeline import Span
from polybus.testing.verifier.verdict import FindingKind, Verdict


class Numbers(Check):
    """A number belongs to one message for ever, its top 16 bits are the partition, a key has one partition."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._owners: dict[tuple[str, int], str] = {}
        self._partitions: dict[tuple[str, str], int] = {}

    def handlers(self) -> dict[str, Handler]:
        return dict.fromkeys((*DELIVERIES, Op.SEND, Op.SCHEDULE, Op.BATCH_SEND, Op.MOVE, Op.PEEK), self._see)

    def _see(self, span: Span) -> None:
        event = span.event
        if event.number is None or event.message_id is None or event.outcome == FAILED:
            return
        entity, _ = self.ledger.place(event.entity)
        wrong = self._judge(entity, event.number, event.message_id, event.session or event.key, event.partition)
        if wrong is not None:
            self.found(FindingKind.NUMBERS, span, wrong)

    def finish(self) -> None:
        for entity in self.ledger.entities.values():
            there: set[int] = set()
            for message in entity.contents.messages:
                wrong = self._judge(
                    entity,
                    message.number,
                    message.message_id,
                    message.session or message.key,
                    message.partition,
                )
                if message.number in there:
                    wrong = "stored twice under this number"
                there.add(message.number)
                if wrong is not None:
                    self.found_in(FindingKind.NUMBERS, entity.name, wrong, message.message_id, message.number)

    def _judge(
        self, entity: EntityLedger, number: int, message_id: str, key: str | None, partition: int | None
    ) -> str | None:
        owner = self._owners.setdefault((entity.name, number), message_id)
        if owner != message_id:
            return f"the number was that of message {owner}"
        bits = partition_of(number)
        if bits >= entity.options.partitions or bits < 0:
            return f"names partition {bits} of {entity.options.partitions}"
        if partition is not None and partition != bits:
            return f"names partition {bits}, but it is in partition {partition}"
        if key is None and entity.dedup_window_ms is not None:
            key = message_id
        if key is None:
            return None
        home = self._partitions.setdefault((entity.name, key), bits)
        return None if home == bits else f"key {key!r} is in partition {bits}, and was in {home}"


class Integrity(Check):
    """What is delivered, peeked at or stored has a body, a session and a key with which it was sent."""

    def handlers(self) -> dict[str, Handler]:
        return dict.fromkeys((*DELIVERIES, Op.PEEK), self._see)

    def _see(self, span: Span) -> None:
        event = span.event
        if event.message_id is None or event.outcome == FAILED:
            return
        entity, _ = self.ledger.place(event.entity)
        wrong = self._judge(entity, event.message_id, event.digest, event.session, event.key)
        if wrong is not None:
            self.found(FindingKind.CORRUPTED, span, wrong)
        if event.op == Op.PEEK and not self._was_sent(entity, event.message_id):
            self.found(FindingKind.INVENTED, span, "peeked at, but never sent")

    def _was_sent(self, entity: EntityLedger, message_id: str) -> bool:
        """On a topic, where scheduled messages wait, the records are with its subscriptions."""
        for holder in (entity, *self.ledger.destinations(entity.name)):
            record = holder.messages.get(message_id)
            if record is not None and any(send.outcome != FAILED for send in record.sends):
                return True
        return False

    def finish(self) -> None:
        for entity in self.ledger.entities.values():
            for message in entity.contents.messages:
                wrong = self._judge(entity, message.message_id, message.digest, message.session, message.key)
                if wrong is not None:
                    self.found_in(FindingKind.CORRUPTED, entity.name, wrong, message.message_id, message.number)

    @staticmethod
    def _judge(
        entity: EntityLedger, message_id: str, digest: str | None, session: str | None, key: str | None
    ) -> str | None:
        record = entity.messages.get(message_id)
        if record is None or not record.sends:
            return None
        sent = [send.span.event for send in record.sends]
        became = [span.event for span in record.reschedules]
        if digest is not None and all(event.digest not in (digest, None) for event in (*sent, *became)):
            return f"body {digest}, sent as {sent[0].digest}"
        if all(event.session != session for event in sent):
            return f"session {session!r}, sent as {sent[0].session!r}"
        if all(key not in _keys(event) for event in sent):
            return f"key {key!r}, sent as {sent[0].key!r}"
        return None


def _keys(sent: Event) -> tuple[str | None, ...]:
    """The keys under which a message may be seen: its own, or none, for which a bus may show its session's id."""
    return (sent.key,) if sent.key is not None else (None, sent.session)
