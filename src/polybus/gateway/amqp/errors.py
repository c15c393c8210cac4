"""The bus's errors in AMQP's words: condition, description and a tracking id that the log has too.

What the bus refuses on purpose keeps its condition and text. Anything else is our own bug: the peer hears that
something failed inside and nothing more. docs/protocol/errors.md#conditions.
"""

from __future__ import annotations

import itertools
from typing import Final

from polybus.amqp.outcomes import AmqpError, Rejected
from polybus.errors import BusError, ProtocolError

INTERNAL: Final = "amqp:internal-error"
_INTERNAL_TEXT: Final = "The bus was unable to process the request; please retry the operation."
_numbers: Final = itertools.count(1)


def condition_of(error: Exception) -> str:
    return error.condition if isinstance(error, (BusError, ProtocolError)) else INTERNAL


def description_of(error: Exception) -> str:
    return error.description if isinstance(error, (BusError, ProtocolError)) else _INTERNAL_TEXT


def is_bug(error: Exception) -> bool:
    """Whether the error was not raised on purpose."""
    return not isinstance(error, (BusError, ProtocolError))


def new_tracking_id(connection_id: str) -> str:
    """Names one refusal, in the text that the client gets and in the log."""
    return f"{connection_id}_{next(_numbers)}"


def amqp_error(error: Exception, tracking_id: str) -> AmqpError:
    """The error as it travels in a detach, a close or a rejected."""
    text = description_of(error)
    return AmqpError(condition_of(error), f"{text} TrackingId:{tracking_id}" if text else f"TrackingId:{tracking_id}")


def rejected(error: Exception, tracking_id: str) -> Rejected:
    """The outcome that refuses a delivery; its error always has its three fields.

    docs/protocol/amqp.md#answers-to-sends.
    """
    return Rejected(amqp_error(error, tracking_id))
