"""What every check shares: the facts it looks at, the place where findings go, how it is fed.

A check that needs the order of things offers `handlers` and is fed every span in order by `verify`; one that
only looks at the sums does its work in `finish`.
"""

from __future__ import annotations

from collections.abc import Callable

from polybus.testing.verifier.ledger import Ledger
from polybus.testing.verifier.timeline import Outages, Span
from polybus.testing.verifier.verdict import Finding, Verdict

Handler = Callable[[Span], None]


class Facts:
    """Everything that checks may look at. `slack_ms` is how far clocks may be apart."""

    def __init__(self, ledger: Ledger, outages: Outages, slack_ms: int) -> None:
        self.ledger = ledger
        self.outages = outages
        self.slack_ms = slack_ms


class Check:
    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        self.facts = facts
        self.ledger = facts.ledger
        self.verdict = verdict

    def handlers(self) -> dict[str, Handler]:
        """What to call with a span, by its operation."""
        return {}

    def finish(self) -> None:
        """Called after the last span."""

    def found(self, kind: str, span: Span, detail: str) -> None:
        """A finding about one event."""
        event = span.event
        message_id, number = self.ledger.identify(event)
        self.verdict.findings.append(
            Finding(kind, event.entity, detail, message_id, number, event.client, event.ended_ms)
        )

    def found_in(
        self, kind: str, entity: str, detail: str, message_id: str | None = None, number: int | None = None
    ) -> None:
        """A finding about an entity or a message as a whole."""
        self.verdict.findings.append(Finding(kind, entity, detail, message_id, number))

    def count(self, name: str, by: int = 1) -> None:
        self.verdict.report[name] = self.verdict.report.get(name, 0) + by
