"""Message locks: one holder at a time, no settlement without the lock, nothing back after it was settled."""

from __future__ import annotations

from polybus.numbering import partition_of
from polybus.testing.history import DELIVERIES, OK, SETTLEMENTS, UNKNOWN, Op
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.leases import LockLease
from polybus.testing.verifier.timeline import Span
from polybus.testing.verifier.verdict import FindingKind, Verdict

_Where = tuple[str, int]
"""An entity as recorded (a dead-letter queue is a place of its own) and a sequence number."""


class MessageLocks(Check):
    """Follows the lock of each message outside sessions; inside, the session's lock is what counts."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._holders: dict[_Where, LockLease] = {}
        self._tokens: dict[str, tuple[_Where, LockLease]] = {}

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = dict.fromkeys(SETTLEMENTS, self._settle)
        handlers[Op.RECEIVE] = handlers[Op.RECEIVE_DEFERRED] = self._deliver
        handlers[Op.RENEW] = self._renew
        return handlers

    def _in_session(self, span: Span) -> bool:
        entity, dead = self.ledger.place(span.event.entity)
        return entity.options.sessions and not dead

    def _deliver(self, span: Span) -> None:
        event = span.event
        if event.token is None or event.number is None or event.outcome != OK or self._in_session(span):
            return
        entity, _ = self.ledger.place(event.entity)
        where = (event.entity, event.number)
        lease = LockLease(self.facts, entity, partition_of(event.number), span)
        lease.given_back = self.ledger.released.get(event.token, lease.given_back)
        holder = self._holders.get(where)
        if holder is not None and holder.certainly_held_at(span.ended) and lease.certainly_held_at(span.ended):
            self.found(FindingKind.TWO_HOLDERS, span, f"delivered while {holder.client} holds its lock")
        self._holders[where] = lease
        self._tokens[event.token] = (where, lease)

    def _renew(self, span: Span) -> None:
        if self._in_session(span):
            return
        lease = self._judge_lock(span, "renewed")
        if lease is None:
            return
        if span.event.outcome == OK:
            lease.renewed(span)
        elif span.event.outcome == UNKNOWN:
            lease.maybe_renewed()

    def _settle(self, span: Span) -> None:
        if not self._in_session(span):
            self._judge_lock(span, "settled")

    def _judge_lock(self, span: Span, verb: str) -> LockLease | None:
        """The lease that the token stands for; a finding where it is acknowledged and cannot be right."""
        event = span.event
        if event.token is None:
            return None
        where, lease = self._tokens.get(event.token, (None, None))
        if event.outcome != OK:
            return lease
        if where is None or lease is None:
            if not self.ledger.was_given(event.token):
                self.found(FindingKind.SETTLED_LATE, span, f"{verb} with a token that nobody was given")
        elif event.number is not None and (event.entity, event.number) != where:
            self.found(FindingKind.SETTLED_LATE, span, f"{verb} with the token of number {where[1]}")
        else:
            why = lease.why_lost(span.began)
            if why is not None:
                self.found(FindingKind.SETTLED_LATE, span, f"{verb}, and acknowledged, although {why}")
        return lease


class Redelivery(Check):
    """What an acknowledged settlement took away does not come back, and delivery counts only rise."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._gone: dict[_Where, Span] = {}
        self._deferred: dict[_Where, Span] = {}
        self._least_count: dict[_Where, tuple[int, int]] = {}  # the count, and since when it is that
        self._token_count: dict[str, int] = {}

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = dict.fromkeys(DELIVERIES, self._deliver)
        handlers[Op.COMPLETE] = handlers[Op.DEAD_LETTER] = handlers[Op.PURGE] = self._take_away
        handlers[Op.DEFER] = self._defer
        handlers[Op.ABANDON] = self._abandon
        handlers[Op.COMMIT] = self._commit
        return handlers

    def _where(self, span: Span) -> _Where | None:
        number = self.ledger.identify(span.event)[1]
        return None if number is None else (span.event.entity, number)

    def _deliver(self, span: Span) -> None:
        where = self._where(span)
        if where is None or span.event.outcome != OK:
            return
        gone = self._gone.get(where)
        if gone is not None and span.began > gone.ended:
            self.found(FindingKind.REDELIVERED, span, f"delivered after an acknowledged {gone.event.op}")
        deferred = self._deferred.get(where)
        if deferred is not None and span.event.op == Op.RECEIVE and self._stays_deferred(where, deferred, span):
            self.found(FindingKind.REDELIVERED, span, "delivered like an active message after it was deferred")
        if span.event.op == Op.RECEIVE_AND_DELETE:
            self._gone.setdefault(where, span)
        self._judge_count(where, span)

    def _stays_deferred(self, where: _Where, deferred: Span, until: Span) -> bool:
        if until.began <= deferred.ended:
            return False
        return not self.ledger.may_be_undeferred(*where, deferred.began, until.ended)

    def _judge_count(self, where: _Where, span: Span) -> None:
        count = span.event.count
        if count is None or span.event.op == Op.RECEIVE_AND_DELETE:
            return
        least, since = self._least_count.get(where, (0, 0))
        if count < least and span.began > since:
            self.found(FindingKind.DELIVERY_COUNT, span, f"delivery count {count} where it was to be {least} or more")
        entity, dead = self.ledger.place(span.event.entity)
        most = entity.options.max_delivery_count
        if most is not None and not dead and span.event.op == Op.RECEIVE and count >= most:
            self.found(FindingKind.DELIVERY_COUNT, span, f"delivered with count {count}, over the maximum of {most}")
        if span.event.token is not None:
            self._token_count[span.event.token] = count
        self._raise_count(where, count, span)

    def _raise_count(self, where: _Where, count: int, span: Span) -> None:
        if count > self._least_count.get(where, (-1, 0))[0]:
            self._least_count[where] = (count, span.ended)

    def _take_away(self, span: Span) -> None:
        where = self._where(span)
        if where is not None and span.event.transaction is None and span.event.outcome == OK:
            self._gone.setdefault(where, span)

    def _defer(self, span: Span) -> None:
        where = self._where(span)
        if where is not None and span.event.transaction is None and span.event.outcome == OK:
            self._deferred[where] = span

    def _abandon(self, span: Span) -> None:
        where = self._where(span)
        if where is None or span.event.transaction is not None or span.event.outcome != OK:
            return
        count = self._token_count.get(span.event.token or "")
        _, dead = self.ledger.place(span.event.entity)
        if count is not None and not dead:  # nobody says that a dead-letter queue counts
            self._raise_count(where, count + 1, span)

    def _commit(self, span: Span) -> None:
        """The settlements of a transaction count from its acknowledged commit."""
        if span.event.outcome != OK or span.event.transaction is None:
            return
        for member in self.ledger.transactions[span.event.transaction].members:
            where = self._where(member)
            if where is None or member.event.outcome != OK:
                continue
            if member.event.op in (Op.COMPLETE, Op.DEAD_LETTER):
                self._gone.setdefault(where, Span(member.event, span.began, span.ended, 0, 0))
            elif member.event.op == Op.DEFER:
                self._deferred[where] = Span(member.event, span.began, span.ended, 0, 0)
