"""What goes wrong while a rule is evaluated against one message.

The service shows these as the name and text of a .NET exception, in the dead-letter reason and description
(docs/protocol/semantics.md#dead-letter-reasons), so each carries such a pair. A wrong text is another matter: that is
`errors.RuleSyntaxError`, raised when the rule is made.
"""

from __future__ import annotations

from polybus.errors import PolybusError


class RuleEvaluationError(PolybusError):
    """A filter or an action failed on a message. `reason` and `description` are for the dead-letter queue."""

    def __init__(self, reason: str, description: str) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description
        self.kept = False
        """Whether the message is dead-lettered even where subscriptions do not ask for it: nobody has judged it."""


def divided_by_zero() -> RuleEvaluationError:
    return RuleEvaluationError("DivideByZeroException", "Attempted to divide by zero.")


def overflowed() -> RuleEvaluationError:
    return RuleEvaluationError("OverflowException", "Arithmetic operation resulted in an overflow.")


def out_of_range(description: str) -> RuleEvaluationError:
    return RuleEvaluationError("ArgumentOutOfRangeException", description)


def filter_failed(description: str) -> RuleEvaluationError:
    return RuleEvaluationError("FilterException", description)


def budget_spent() -> RuleEvaluationError:
    error = RuleEvaluationError("FilterException", "The rules of the topic take too long for this message.")
    error.kept = True
    return error


def action_failed(description: str) -> RuleEvaluationError:
    return RuleEvaluationError("RuleActionException", description)
