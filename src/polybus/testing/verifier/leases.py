"""How long somebody certainly held a lock, and from when he certainly did not.

A message lock and a session lock are the same thing here: taken inside a span, renewed, given back, ended by
time (monotonic) or by an outage. The bus began it somewhere inside the span that took it, so it certainly
lasts until the span's beginning plus the lock's duration, and is certainly over after its end plus that.
"""

from __future__ import annotations

from polybus.testing.verifier.check import Facts
from polybus.testing.verifier.ledger import EntityLedger
from polybus.testing.verifier.timeline import INFINITY, Span, stamp_ms


class LockLease:
    """One holding of one lock."""

    __slots__ = ("_certain", "_facts", "_latest", "_lock", "entity", "given_back", "partition", "span")

    def __init__(self, facts: Facts, entity: EntityLedger, partition: int | None, span: Span) -> None:
        self._facts = facts
        self.entity = entity
        self.partition = partition
        self.span = span
        self.given_back = INFINITY  # from when it may have been given back
        self._lock = stamp_ms(entity.options.lock_ms)
        self._certain = span.began + self._lock
        self._latest = span.ended + self._lock

    @property
    def client(self) -> str:
        return self.span.event.client

    def renewed(self, span: Span) -> None:
        self._certain = max(self._certain, span.began + self._lock)
        self._latest = max(self._latest, span.ended + self._lock)

    def maybe_renewed(self) -> None:
        self._latest = INFINITY

    def certainly_held_at(self, stamp: int) -> bool:
        certain = self._certain - stamp_ms(self._facts.slack_ms)
        if stamp >= min(certain, self.given_back):
            return False
        return stamp < self._facts.outages.first_possible(self.entity.name, self.partition, self.span.began)

    def why_lost(self, stamp: int) -> str | None:
        """Why the lock was certainly gone at this stamp; None where it may have been there."""
        if stamp > self._latest + stamp_ms(self._facts.slack_ms + 1):  # clocks are read to a millisecond
            return "its lock had run out"
        if self._facts.outages.certain_between(self.entity.name, self.partition, self.span.ended, stamp):
            return "a restart or a fencing had ended its lock"
        return None
