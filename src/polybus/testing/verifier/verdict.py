"""What the verifier says: findings by kind, which are faults, and a report, which is not."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from polybus.numbering import counter_of, partition_of

SHOWN_PER_KIND: Final = 5
"""A summary shows this many findings of a kind: one cause often has thousands, and the first ones tell it."""


class FindingKind:
    """The kinds of fault that a history can prove."""

    LOST: Final = "lost"  # acknowledged, and nowhere to be found
    INVENTED: Final = "invented"  # there, but never sent, or more often than it was sent
    DUPLICATED: Final = "duplicated"  # consumed twice, both acknowledged
    DUPLICATE_ACCEPTED: Final = "duplicate_accepted"  # inside the window of duplicate detection
    CANCELLED: Final = "cancelled"  # still there although its cancellation was acknowledged
    ORDER: Final = "order"  # inside a session or a partition key, or against one client's sends
    NUMBERS: Final = "numbers"  # a sequence number used twice, or with the wrong partition
    TWO_HOLDERS: Final = "two_holders"  # of one message or one session at one time
    SETTLED_LATE: Final = "settled_late"  # settled or renewed without the lock, and acknowledged
    REDELIVERED: Final = "redelivered"  # delivered after an acknowledged settlement had taken it away
    DELIVERY_COUNT: Final = "delivery_count"  # fell, did not rise with an abandon, or went over the maximum
    TORN: Final = "torn"  # a transaction or a batch that happened in part, or although rolled back
    COUNTERS: Final = "counters"  # differ from the contents
    CORRUPTED: Final = "corrupted"  # another body, session or key than was sent
    EARLY: Final = "early"  # delivered before it was due
    EXPIRED: Final = "expired"  # delivered after its time-to-live


@dataclass(frozen=True, slots=True)
class Finding:
    """One proven fault."""

    kind: str
    entity: str
    detail: str
    message_id: str | None = None
    number: int | None = None
    client: str | None = None
    at_ms: int | None = None

    def __str__(self) -> str:
        parts = [self.entity]
        if self.message_id is not None:
            parts.append(f"message {self.message_id}")
        if self.number is not None:
            parts.append(f"number {partition_of(self.number)}:{counter_of(self.number)}")
        if self.client is not None:
            parts.append(f"client {self.client}")
        if self.at_ms is not None:
            parts.append(f"at {self.at_ms} ms")
        return f"{', '.join(parts)}: {self.detail}"


@dataclass(slots=True)
class Verdict:
    """Findings, in the order in which the checks made them, and counts of what the run did."""

    findings: list[Finding] = field(default_factory=list)
    report: dict[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.findings

    def by_kind(self) -> dict[str, list[Finding]]:
        kinds: dict[str, list[Finding]] = {}
        for finding in self.findings:
            kinds.setdefault(finding.kind, []).append(finding)
        return kinds

    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}

    def as_dict(self) -> dict[str, Any]:
        """For machines: JSON-ready and complete."""
        return {
            "clean": self.clean,
            "findings": {kind: [asdict(f) for f in found] for kind, found in self.by_kind().items()},
            "report": dict(self.report),
        }

    def summary(self) -> str:
        """For people: a line for each kind, its first findings, and the report."""
        lines = ["clean: no findings" if self.clean else f"NOT CLEAN: {len(self.findings)} findings"]
        for kind, found in self.by_kind().items():
            lines.append(f"{kind}: {len(found)}")
            lines += [f"  {finding}" for finding in found[:SHOWN_PER_KIND]]
            if len(found) > SHOWN_PER_KIND:
                lines.append(f"  and {len(found) - SHOWN_PER_KIND} more")
        lines.append(", ".join(f"{name} {count}" for name, count in self.report.items()))
        return "\n".join(lines)
