"""Which messages a bulk verb is about: by state, by time, by a condition in the language of rules."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_ACTIVE
from polybus.message.view import View
from polybus.rules import Filter, RuleEvaluationError

_NO_ID = UUID(int=0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """All that is given must hold. Times are milliseconds since 1970; from is included, before is not."""

    states: tuple[int, ...] = (STATE_ACTIVE,)
    enqueued_from_ms: int = 0
    enqueued_before_ms: int | None = None
    due_from_ms: int = 0
    due_before_ms: int | None = None
    condition: Filter | None = None

    def takes(self, peeked: Peeked) -> bool:
        marks = peeked.marks
        if marks.state not in self.states:
            return False
        if not _within(marks.enqueued_ms, self.enqueued_from_ms, self.enqueued_before_ms):
            return False
        if not _within(peeked.message.scheduled_ms, self.due_from_ms, self.due_before_ms):
            return False
        return self.condition is None or holds(self.condition, peeked)


def holds(condition: Filter, peeked: Peeked) -> bool:
    """Whether the condition is true of the message; one that cannot be evaluated is not."""
    try:
        return condition.matches(View(peeked.message, peeked.marks), _no_id)
    except RuleEvaluationError:
        return False


def _no_id() -> UUID:
    """A message is chosen by what it has, so that choosing it twice gives the same answer."""
    return _NO_ID


def _within(time_ms: int, from_ms: int, before_ms: int | None) -> bool:
    return time_ms >= from_ms and (before_ms is None or time_ms < before_ms)
