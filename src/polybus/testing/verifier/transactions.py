"""Of each transaction, and of each batch, all effects or none."""

from __future__ import annotations

from collections.abc import Iterable

from polybus.testing.history import OK, SENDS, UNKNOWN, Op
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.contents import DEAD_LETTER, DEFERRED
from polybus.testing.verifier.ledger import EntityLedger, MessageRecord, RecordedCopy, RecordedTransaction
from polybus.testing.verifier.lifetimes import may_have_expired, may_have_expired_dead
from polybus.testing.verifier.timeline import INFINITY, Span
from polybus.testing.verifier.verdict import FindingKind, Verdict


class Atomicity(Check):
    """Asks of each member whether it happened (yes, no, or nobody can tell) and compares.

    Only what is plain counts: a message that was sent twice under one id, or may have expired, or may have
    been taken by a receive-and-delete of unknown outcome, says nothing about its transaction.
    """

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._batches: dict[tuple[str, str], list[Span]] = {}

    def handlers(self) -> dict[str, Handler]:
        return {Op.BATCH_SEND: self._batch}

    def _batch(self, span: Span) -> None:
        event = span.event
        if event.batch is not None and event.transaction is None and event.outcome == UNKNOWN:
            self._batches.setdefault((event.client, event.batch), []).append(span)

    def finish(self) -> None:
        for name, transaction in self.ledger.transactions.items():
            self._judge_transaction(name, transaction)
        for (_, name), members in self._batches.items():
            happened = [self._sent(member) for member in members]
            if True in happened and False in happened:
                self.found(FindingKind.TORN, members[0], f"only part of batch {name} is there")

    def _judge_transaction(self, name: str, transaction: RecordedTransaction) -> None:
        members = [span for span in transaction.members if span.event.outcome == OK]
        if not members:
            return
        happened = [self._happened(member, transaction) for member in members]
        if transaction.outcome == OK and True in happened and False in happened:
            self.found(FindingKind.TORN, _first(members, happened, False), f"{name} committed, but this is missing")
        elif transaction.outcome == UNKNOWN and True in happened and False in happened:
            self.found(FindingKind.TORN, _first(members, happened, False), f"{name} in doubt, and done in part")
        elif transaction.outcome not in (OK, UNKNOWN) and True in happened:
            self.found(
                FindingKind.TORN, _first(members, happened, True), f"{name} was not committed, but this is done"
            )
        self._judge_early(name, transaction, members)

    def _judge_early(self, name: str, transaction: RecordedTransaction, members: list[Span]) -> None:
        """What a transaction sends is not to be seen before it commits."""
        discharge = transaction.discharge
        if discharge is None:
            return
        for member in members:
            for _, record in self._records(member):
                early = [d for c in record.copies.values() for d in c.deliveries if d.ended < discharge.began]
                if early and record.only_send is not None:
                    self.found(FindingKind.TORN, early[0], f"delivered before {name}, which sent it, was committed")

    def _happened(self, member: Span, transaction: RecordedTransaction) -> bool | None:
        if member.event.op in SENDS:
            return self._sent(member)
        copy = self._copy(member)
        if copy is None:
            return None
        if member.event.op == Op.COMPLETE:
            return self._completed(member, copy, transaction)
        if member.event.op in (Op.DEFER, Op.DEAD_LETTER):
            return None if self._is_undeferred(member, copy) else self._moved(member, copy, transaction)
        return None

    def _records(self, member: Span) -> Iterable[tuple[EntityLedger, MessageRecord]]:
        if member.event.op not in SENDS or member.event.message_id is None:
            return
        for entity in self.ledger.destinations(member.event.entity):
            yield entity, entity.messages[member.event.message_id]

    def _sent(self, member: Span) -> bool | None:
        """Whether the message is to be found in every place where it belongs."""
        answers = [self._sent_to(entity, record) for entity, record in self._records(member)]
        if True in answers:
            return True
        return None if None in answers else False

    def _sent_to(self, entity: EntityLedger, record: MessageRecord) -> bool | None:
        if record.only_send is None:
            return None
        if record.seen:
            return True
        if record.cancelled or record.maybe_cancelled or entity.vanishing:
            return None
        expired = may_have_expired(entity.options, record, self.ledger.final.wall_ms + self.facts.slack_ms)
        return None if expired and not entity.options.dead_letter_on_expiry else False

    def _copy(self, member: Span) -> RecordedCopy | None:
        entity, _ = self.ledger.place(member.event.entity)
        message_id, number = self.ledger.identify(member.event)
        if message_id is None or number is None:
            return None
        return entity.record(message_id).copies.get(number)

    def _completed(self, member: Span, copy: RecordedCopy, transaction: RecordedTransaction) -> bool | None:
        if copy.stored is not None or _delivered_after(copy, transaction):
            return False
        entity, _ = self.ledger.place(member.event.entity)
        elsewhere = any(span is not member for span in (*copy.consumed, *copy.doubted))
        if elsewhere or entity.vanishing:
            return None
        record = entity.messages[self.ledger.identify(member.event)[0] or ""]
        wall_ms = self.ledger.final.wall_ms + self.facts.slack_ms
        expired = may_have_expired(entity.options, record, wall_ms)
        return None if expired or may_have_expired_dead(entity.options, record, wall_ms) else True

    def _is_undeferred(self, member: Span, copy: RecordedCopy) -> bool:
        entity = member.event.entity
        return self.ledger.may_be_undeferred(entity, copy.number, member.began, INFINITY)

    @staticmethod
    def _moved(member: Span, copy: RecordedCopy, transaction: RecordedTransaction) -> bool | None:
        """A deferred or dead-lettered message: plain only where it is still stored, or came back as active."""
        if copy.stored is not None:
            if copy.stored.state == (DEFERRED if member.event.op == Op.DEFER else DEAD_LETTER):
                return True if transaction.outcome == OK else None
            return False if not _delivered_after(copy, transaction) else None
        return None


def _delivered_after(copy: RecordedCopy, transaction: RecordedTransaction) -> bool:
    discharge = transaction.discharge
    if discharge is None:
        return False
    return any(span.began > discharge.ended for span in copy.deliveries)


def _first(members: list[Span], happened: list[bool | None], answer: bool) -> Span:
    return members[happened.index(answer)]
