"""Judges histories: `verify(histories, final_state)` says what a bus did wrong, and only what is certain.

Give it what every client recorded (polybus.testing.history) and what was found in the bus at the end. The
verdict is clean, or lists findings by kind. A finding is proof of a fault of the bus, given that the
histories are true; a clean verdict is worth what the histories recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polybus.testing.history import OK, SENDS, UNKNOWN, Event, Op
from polybus.testing.verifier.accounting import Accounting
from polybus.testing.verifier.check import Check, Facts, Handler
from polybus.testing.verifier.contents import EntityContents, EntityOptions, FinalState, StoredMessage
from polybus.testing.verifier.counters import Counters
from polybus.testing.verifier.ledger import Ledger
from polybus.testing.verifier.locks import MessageLocks, Redelivery
from polybus.testing.verifier.numbers import Integrity, Numbers
from polybus.testing.verifier.order import KeyOrder, SendOrder
from polybus.testing.verifier.session_order import SessionOrder
from polybus.testing.verifier.sessions import SessionLocks
from polybus.testing.verifier.timeline import Outages, Span, timeline
from polybus.testing.verifier.timing import Timing
from polybus.testing.verifier.transactions import Atomicity
from polybus.testing.verifier.verdict import Finding, FindingKind, Verdict

__all__ = [
    "EntityContents",
    "EntityOptions",
    "FinalState",
    "Finding",
    "FindingKind",
    "StoredMessage",
    "Verdict",
    "verify",
]

_CHECKS: tuple[type[Check], ...] = (
    Accounting,
    MessageLocks,
    SessionLocks,
    Redelivery,
    SendOrder,
    KeyOrder,
    SessionOrder,
    Numbers,
    Integrity,
    Timing,
    Atomicity,
    Counters,
)


def verify(histories: Sequence[Iterable[Event]], final_state: FinalState, *, slack_ms: int = 0) -> Verdict:
    """Judges what clients recorded against what was found at the end.

    One history is taken in the order of its recording; several are merged by time. `slack_ms` is how far a
    client's reading of the bus's clocks may be off: 0 in a simulation, a few milliseconds on one machine.
    """
    spans = timeline(histories)
    ledger = Ledger(spans, final_state)
    verdict = Verdict(report=_report(spans, ledger))
    facts = Facts(ledger, Outages(spans), slack_ms)
    checks = [check(facts, verdict) for check in _CHECKS]
    _feed(spans, checks)
    for check in checks:
        check.finish()
    return verdict


def _feed(spans: list[Span], checks: list[Check]) -> None:
    handlers: dict[str, list[Handler]] = {}
    for check in checks:
        for op, handler in check.handlers().items():
            handlers.setdefault(op, []).append(handler)
    for span in spans:
        for handle in handlers.get(span.event.op, ()):
            handle(span)


def _report(spans: list[Span], ledger: Ledger) -> dict[str, int]:
    """What the run did, so that a reader sees whether a clean verdict means anything."""
    sends = [ledger.outcome(span.event) for span in spans if span.event.op in SENDS]
    deliveries = [len(copy.deliveries) for _, record in ledger.records() for copy in record.copies.values()]
    return {
        "events": len(spans),
        "sends": len(sends),
        "acknowledged": sends.count(OK),
        "unknown": sends.count(UNKNOWN),
        "deliveries": sum(deliveries),
        "redeliveries": sum(count - 1 for count in deliveries if count > 1),
        "consumed": sum(len(c.consumed) for _, record in ledger.records() for c in record.copies.values()),
        "transactions": len(ledger.transactions),
        "committed": sum(transaction.outcome == OK for transaction in ledger.transactions.values()),
        "outages": sum(span.event.op in (Op.RESTART, Op.FENCED) for span in spans),
        "stored": sum(len(contents.messages) for contents in ledger.final.entities.values()),
        "recovered": 0,
        "vanished": 0,
        "expired": 0,
    }
