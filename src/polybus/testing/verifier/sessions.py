"""Sessions have one holder at a time, and only the holder receives, settles and renews."""

from __future__ import annotations

from bisect import bisect_left

from polybus.numbering import partition_of
from polybus.testing.history import FAILED, OK, SETTLEMENTS, UNKNOWN, Op
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.leases import LockLease
from polybus.testing.verifier.ledger import EntityLedger
from polybus.testing.verifier.timeline import INFINITY, Span
from polybus.testing.verifier.verdict import FindingKind, Verdict

_Session = tuple[str, str]
"""An entity and a session id."""


class Holding:
    """One acceptance of a session, and what was delivered under it and not settled."""

    __slots__ = ("lease", "outstanding")

    def __init__(self, lease: LockLease) -> None:
        self.lease = lease
        self.outstanding: dict[int, str] = {}  # numbers and tokens


class SessionLocks(Check):
    """Follows the lock of each session."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        super().__init__(facts, verdict)
        self._holdings: dict[_Session, Holding] = {}  # the last one, whoever has it
        self._own: dict[tuple[str, _Session], Holding] = {}  # the last one of each client
        self._tokens: dict[str, Holding] = {}

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = dict.fromkeys(SETTLEMENTS, self._settle)
        handlers[Op.SESSION_ACCEPT] = self._accept
        handlers[Op.SESSION_RENEW] = self._renew
        handlers[Op.RECEIVE] = handlers[Op.RECEIVE_AND_DELETE] = self._deliver
        handlers[Op.RECEIVE_DEFERRED] = self._deliver_deferred
        return handlers

    def _session(self, span: Span) -> tuple[EntityLedger, _Session] | None:
        entity, dead = self.ledger.place(span.event.entity)
        if dead or not entity.options.sessions or span.event.session is None:
            return None
        return entity, (entity.name, span.event.session)

    def _accept(self, span: Span) -> None:
        place = self._session(span)
        if place is None or span.event.outcome != OK:
            return
        entity, session = place
        lease = LockLease(self.facts, entity, span.event.partition, span)
        lease.given_back = self._end_after(span)
        holding = self._holdings.get(session)
        if holding is not None and _both_hold(holding.lease, lease, span.ended):
            self.found(FindingKind.TWO_HOLDERS, span, f"session accepted while {holding.lease.client} holds it")
        self._holdings[session] = self._own[span.event.client, session] = Holding(lease)

    def _end_after(self, span: Span) -> int:
        """From when the client may have given the session back: by itself, or with its whole link."""
        event = span.event
        first = INFINITY
        for session in (event.session, None):
            ends = self.ledger.session_ends.get((event.client, event.entity, session), [])
            place = bisect_left(ends, span.began)
            if place < len(ends):
                first = min(first, ends[place])
        return first

    def _deliver(self, span: Span) -> None:
        event = span.event
        place = self._session(span)
        if place is None or event.number is None or event.outcome != OK:
            return
        holding = self._holding_of(span, place[1], "delivered to")
        if holding is None:
            return
        holding.lease.partition = partition_of(event.number)
        earlier = holding.outstanding.get(event.number)
        if earlier is not None and self.ledger.released.get(earlier, INFINITY) > span.ended:
            self.found(FindingKind.TWO_HOLDERS, span, "delivered twice under one session lock")
        if event.token is not None:
            holding.outstanding[event.number] = event.token
            self._tokens[event.token] = holding

    def _deliver_deferred(self, span: Span) -> None:
        event = span.event
        place = self._session(span)
        if place is None or event.token is None or event.outcome != OK:
            return
        holding = self._holding_of(span, place[1], "delivered to")
        if holding is not None:
            self._tokens[event.token] = holding

    def _renew(self, span: Span) -> None:
        place = self._session(span)
        if place is None or span.event.outcome == FAILED:
            return
        if span.event.outcome == UNKNOWN:
            own = self._own.get((span.event.client, place[1]))
            if own is not None:
                own.lease.maybe_renewed()
            return
        holding = self._holding_of(span, place[1], "renewed by", late=FindingKind.SETTLED_LATE)
        if holding is None:
            return
        self._judge_late(span, holding, "renewed")
        holding.lease.renewed(span)

    def _holding_of(
        self, span: Span, session: _Session, verb: str, late: str = FindingKind.TWO_HOLDERS
    ) -> Holding | None:
        """The client's own holding; a finding where it certainly has none any more."""
        own = self._own.get((span.event.client, session))
        if own is None:
            self.found(late, span, f"{verb} {span.event.client}, who never accepted the session")
            return None
        other = self._superseding(span, own, session)
        if other is not None and other.certainly_held_at(span.ended):
            self.found(late, span, f"{verb} {span.event.client} while {other.client} holds the session")
            return None
        return own

    def _superseding(self, span: Span, holding: Holding, session: _Session) -> LockLease | None:
        """Who accepted the session certainly after this holding began and before this span did."""
        last = self._holdings[session].lease
        certain = last.span.began > holding.lease.span.ended and span.began > last.span.ended
        return last if certain else None

    def _settle(self, span: Span) -> None:
        event = span.event
        place = self._session(span)
        if place is None or event.token is None or event.outcome == FAILED:
            return
        holding = self._tokens.get(event.token)
        if holding is None:
            if event.outcome == OK and not self.ledger.was_given(event.token):
                self.found(FindingKind.SETTLED_LATE, span, "settled with a token that nobody was given")
            return
        if event.number is not None and self.ledger.outcome(event) != FAILED:
            holding.outstanding.pop(event.number, None)
        if event.outcome == OK:
            self._judge_late(span, holding, "settled")
            other = self._superseding(span, holding, place[1])
            if other is not None:
                text = f"settled, and acknowledged, after {other.client} had accepted the session"
                self.found(FindingKind.SETTLED_LATE, span, text)

    def _judge_late(self, span: Span, holding: Holding, verb: str) -> None:
        why = holding.lease.why_lost(span.began)
        if why is not None:
            self.found(FindingKind.SETTLED_LATE, span, f"session {verb}, and acknowledged, although {why}")


def _both_hold(first: LockLease, second: LockLease, stamp: int) -> bool:
    return first.certainly_held_at(stamp) and second.certainly_held_at(stamp)
