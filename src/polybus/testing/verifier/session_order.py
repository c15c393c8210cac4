"""Inside a session every delivery is the lowest number that is free.

The check keeps, for each session, the numbers that are certainly free: those nobody has received yet, those
that were abandoned, and those that the last holder left behind. A delivery above the lowest of them is out
of order. What may be gone (an unknown settlement, a possible expiry) is never held against the bus.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from polybus.testing.history import FAILED, OK, SETTLEMENTS, Op
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.ledger import EntityLedger, MessageRecord, RecordedCopy
from polybus.testing.verifier.lifetimes import may_have_expired
from polybus.testing.verifier.timeline import Span
from polybus.testing.verifier.verdict import FindingKind, Verdict


class _Queue:
    """The numbers of one session."""

    __slots__ = ("away", "client", "free", "heap", "highest", "outstanding", "reported", "returned")

    def __init__(self) -> None:
        self.heap: list[int] = []  # holds every free number, and others that have ceased to be free
        self.free: dict[int, Span | None] = {}  # and what freed it, if anything had to
        self.away: set[int] = set()  # settled so that it may be gone from the session for good
        self.client: str | None = None
        self.outstanding: dict[int, Span] = {}  # delivered under the present holding and not settled
        self.returned: set[int] = set()  # abandoned under the present holding
        self.highest = -1
        self.reported: set[int] = set()

    def put(self, number: int, by: Span) -> None:
        if number not in self.away:
            self.free[number] = by
            heappush(self.heap, number)

    def take_away(self, number: int) -> None:
        self.away.add(number)
        self.free.pop(number, None)

    def lowest(self) -> int | None:
        while self.heap and self.heap[0] not in self.free:
            heappop(self.heap)
        return self.heap[0] if self.heap else None


class SessionOrder(Check):
    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._records: dict[tuple[str, int], MessageRecord] = {}
        for entity, record in self.ledger.records():
            if entity.options.sessions:
                self._gather(entity, record)
        for queue in self._queues.values():
            heapify(queue.heap)

    def _gather(self, entity: EntityLedger, record: MessageRecord) -> None:
        for copy in record.copies.values():
            if copy.session is None:
                continue
            queue = self._queues.setdefault((entity.name, copy.session), _Queue())
            queue.heap.append(copy.number)
            queue.free[copy.number] = None  # it was there before any higher number
            self._records[entity.name, copy.number] = record

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = dict.fromkeys(SETTLEMENTS, self._settle)
        handlers[Op.SESSION_ACCEPT] = self._accept
        handlers[Op.RECEIVE] = handlers[Op.RECEIVE_AND_DELETE] = self._deliver
        return handlers

    def _queue(self, span: Span) -> _Queue | None:
        entity, dead = self.ledger.place(span.event.entity)
        if dead or not entity.options.sessions or span.event.session is None:
            return None
        return self._queues.get((entity.name, span.event.session))

    def _accept(self, span: Span) -> None:
        """What the last holder left is free again, unless a settlement of his may still have reached it."""
        queue = self._queue(span)
        if queue is None or span.event.outcome != OK:
            return
        for number, delivery in queue.outstanding.items():
            left_behind = span.began > delivery.ended and not self._may_be_settled(delivery, span.ended)
            if left_behind and not self._may_be_dead(delivery):
                queue.put(number, span)
        queue.client = span.event.client
        queue.outstanding.clear()
        queue.returned.clear()
        queue.highest = -1

    def _may_be_dead(self, delivery: Span) -> bool:
        """True where it is in the dead-letter queue, or the next rise of its count may move it there."""
        entity, dead = self.ledger.place(delivery.event.entity)
        most = entity.options.max_delivery_count
        if dead or most is None:
            return dead
        return delivery.event.count is None or delivery.event.count + 1 >= most

    def _deliver(self, span: Span) -> None:
        event = span.event
        queue = self._queue(span)
        if queue is None or event.number is None or event.outcome != OK:
            return
        number = event.number
        queue.free.pop(number, None)
        if queue.client != event.client:  # the merged order of two holders is not certain
            return
        lowest = queue.lowest()
        if lowest is not None and lowest < number:
            self._judge_skipped(queue, span, lowest)
        elif number < queue.highest and number not in queue.reported:
            self._judge_fallen_back(queue, span)
        queue.highest = max(queue.highest, number)
        if event.op == Op.RECEIVE:
            queue.outstanding[number] = span

    def _judge_skipped(self, queue: _Queue, span: Span, skipped: int) -> None:
        entity, _ = self.ledger.place(span.event.entity)
        record = self._records[entity.name, skipped]
        copy = record.copies[skipped]
        if skipped in queue.reported or not _certainly_free(copy, queue.free[skipped], span):
            return
        if any(other.began <= span.ended and self._may_be_dead(other) for other in copy.deliveries):
            return
        if may_have_expired(entity.options, record, span.wall_to_ms + self.facts.slack_ms):
            return
        if any(self._may_be_uncommitted(send.span, span) for send in record.sends):
            return
        queue.reported.add(skipped)
        self.found(FindingKind.ORDER, span, f"delivered before number {skipped} of the same session, which is free")

    def _judge_fallen_back(self, queue: _Queue, span: Span) -> None:
        """Only what the holder gave back, or is giving back, may follow a higher number."""
        number = span.event.number
        assert number is not None
        earlier = queue.outstanding.get(number)
        if number in queue.returned or (earlier is not None and self._may_be_settled(earlier, span.ended)):
            return
        entity = self.ledger.place(span.event.entity)[0].name
        record = self._records[entity, number]
        if self.ledger.may_be_undeferred(entity, number, 0, span.ended):
            return  # it joined the end of its session
        if all(send.span.event.transaction is None for send in record.sends):
            self.found(FindingKind.ORDER, span, f"delivered after number {queue.highest} of the same session")

    def _may_be_settled(self, delivery: Span, stamp: int) -> bool:
        released = self.ledger.released.get(delivery.event.token or "")
        return released is not None and released <= stamp

    def _may_be_uncommitted(self, send: Span, delivery: Span) -> bool:
        if send.event.transaction is None:
            return False
        discharge = self.ledger.transactions[send.event.transaction].discharge
        return discharge is None or discharge.ended >= delivery.began

    def _settle(self, span: Span) -> None:
        event = span.event
        queue = self._queue(span)
        outcome = self.ledger.outcome(event)
        if queue is None or event.number is None or outcome == FAILED:
            return
        delivery = queue.outstanding.pop(event.number, None)
        if event.op not in (Op.ABANDON, Op.RELEASE):
            queue.take_away(event.number)
            return
        queue.returned.add(event.number)
        if delivery is None or outcome != OK or event.transaction is not None:
            return
        if event.op == Op.RELEASE or not self._may_be_dead(delivery):
            queue.put(event.number, span)


def _certainly_free(copy: RecordedCopy, freed: Span | None, delivery: Span) -> bool:
    """Whether nothing can have held or removed the copy between what freed it and this delivery."""
    if freed is not None and freed.ended >= delivery.began:
        return False
    since = 0 if freed is None else freed.began
    if any(taken.began <= delivery.ended for taken in copy.taken_away):
        return False
    return all(other.ended < since or other.began > delivery.ended for other in copy.deliveries)
