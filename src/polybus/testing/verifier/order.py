"""Order inside a session and inside a partition key, by sequence number and by one client's sends."""

from __future__ import annotations

from bisect import bisect_left

from polybus.testing.history import OK, Op
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.ledger import EntityLedger
from polybus.testing.verifier.timeline import Span
from polybus.testing.verifier.verdict import FindingKind, Verdict

_Group = tuple[str, str | None, str | None]
"""An entity, a session id, a partition key."""


class SendOrder(Check):
    """What a client sends after the acknowledgement of an earlier send gets the higher number."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._last: dict[tuple[str, _Group], tuple[Span, int]] = {}

    def handlers(self) -> dict[str, Handler]:
        return {Op.SEND: self._send, Op.BATCH_SEND: self._send}

    def _send(self, span: Span) -> None:
        event = span.event
        if event.outcome != OK or event.transaction is not None or event.due_ms is not None:
            return
        for entity in self.ledger.destinations(event.entity):
            group = _group(entity, event.session, event.key)
            number = self._number(entity, event.message_id)
            if group is not None and number is not None:
                self._compare((event.client, group), span, number)

    @staticmethod
    def _number(entity: EntityLedger, message_id: str | None) -> int | None:
        """The number that this send was given, where that is plain."""
        record = entity.messages[message_id or ""]
        if record.only_send is None or len(record.copies) != 1:
            return None
        return next(iter(record.copies))

    def _compare(self, chain: tuple[str, _Group], span: Span, number: int) -> None:
        last = self._last.get(chain)
        if last is not None:
            before, lower = last
            same_batch = span.event.batch is not None and span.event.batch == before.event.batch
            if not same_batch and span.began <= before.ended:
                return
            if number < lower:
                text = f"numbered below {before.event.message_id}, which was sent and acknowledged before"
                self.found(FindingKind.ORDER, span, text)
        self._last[chain] = (span, number)


def _group(entity: EntityLedger, session: str | None, key: str | None) -> _Group | None:
    """Inside what there is an order; None for messages that may go to any partition."""
    if entity.options.partitions == 1:
        return (entity.name, None, None)
    if session is None and key is None:
        return None
    return (entity.name, session, key if session is None else None)


class KeyOrder(Check):
    """First deliveries of one partition key go out by number.

    Later deliveries do not count, for an abandoned or expired message comes back when it may. Neither does
    what happens around a closed link or an outage: what was locked for the link but not yet written to it
    is given back without a trace, and delivered again as if for the first time.
    """

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._delivered: dict[str, dict[str, tuple[list[int], list[int]]]] = {}
        self._seen: set[tuple[str, int]] = set()
        self._since: dict[str, int] = {}
        self._outage = 0

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = dict.fromkeys((Op.RESTART, Op.FENCED), self._forget_all)
        handlers[Op.LINK_CLOSED] = self._forget
        handlers[Op.RECEIVE] = handlers[Op.RECEIVE_AND_DELETE] = self._deliver
        return handlers

    def _forget(self, span: Span) -> None:
        self._delivered.pop(span.event.entity, None)
        self._since[span.event.entity] = span.ended

    def _forget_all(self, span: Span) -> None:
        self._delivered.clear()
        self._outage = span.ended

    def _deliver(self, span: Span) -> None:
        event = span.event
        if event.number is None or event.message_id is None or event.key is None or event.outcome != OK:
            return
        entity, dead = self.ledger.place(event.entity)
        if dead or entity.options.sessions or (entity.name, event.number) in self._seen:
            return
        self._seen.add((entity.name, event.number))
        since = max(self._outage, self._since.get(entity.name, 0))
        if event.count or span.began < since or self._sent_in_transaction(entity, event.message_id):
            return
        self._compare(self._delivered.setdefault(entity.name, {}), span, event.key, event.number)

    @staticmethod
    def _sent_in_transaction(entity: EntityLedger, message_id: str) -> bool:
        """Its number may be older than its commit, so that higher numbers rightly go out first."""
        record = entity.messages[message_id]
        return any(send.span.event.transaction is not None for send in record.sends)

    def _compare(self, delivered: dict[str, tuple[list[int], list[int]]], span: Span, key: str, number: int) -> None:
        ended, highest = delivered.setdefault(key, ([], []))
        before = bisect_left(ended, span.began)
        if before and highest[before - 1] > number:
            self.found(FindingKind.ORDER, span, f"delivered after number {highest[before - 1]} of the same key")
        ended.append(span.ended)
        highest.append(max(number, highest[-1]) if highest else number)
