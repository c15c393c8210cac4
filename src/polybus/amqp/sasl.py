"""SASL: the frames of the login and the reading of its responses. Who may come in is the caller's decision.

AMQP 1.0 §5.3; docs/protocol/amqp.md#sasl.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.fields import at, bytes_at, invalid, number_at, text_at
from polybus.amqp.performatives import Performative
from polybus.amqp.types import Symbol, UByte, symbol_array, symbols

SASL_MECHANISMS: Final = 0x40
SASL_INIT: Final = 0x41
SASL_CHALLENGE: Final = 0x42
SASL_RESPONSE: Final = 0x43
SASL_OUTCOME: Final = 0x44

MECHANISMS: Final = ["MSSBCBS", "PLAIN", "ANONYMOUS"]
"""What the cloud service offers, in its order: .NET looks for the first, JS takes the first that it knows.
Without EXTERNAL, which is refused here: Proton takes it before all others where it is offered, whatever password it has."""

OK: Final = 0
AUTH: Final = 1
SYS: Final = 2


class Mechanisms(Performative):
    def __init__(self, mechanisms: list[str]) -> None:
        self.mechanisms = mechanisms

    @staticmethod
    def from_fields(fields: list[object]) -> Mechanisms:
        return Mechanisms(symbols(at(fields, 0)))

    def code(self) -> int:
        return SASL_MECHANISMS

    def fields(self) -> list[object]:
        return [symbol_array(self.mechanisms)]


class Init(Performative):
    def __init__(self, mechanism: str, initial_response: bytes = b"", hostname: str | None = None) -> None:
        self.mechanism = mechanism
        self.initial_response = initial_response
        self.hostname = hostname

    @staticmethod
    def from_fields(fields: list[object]) -> Init:
        mechanism = text_at(fields, 0)
        if mechanism is None:
            raise invalid("a login needs a mechanism")
        return Init(str(mechanism), bytes_at(fields, 1) or b"", text_at(fields, 2))

    def code(self) -> int:
        return SASL_INIT

    def fields(self) -> list[object]:
        return [Symbol(self.mechanism), self.initial_response, self.hostname]


class SaslOutcome(Performative):
    def __init__(self, outcome: int) -> None:
        self.outcome = outcome

    @staticmethod
    def from_fields(fields: list[object]) -> SaslOutcome:
        outcome = number_at(fields, 0, 4)
        return SaslOutcome(SYS if outcome is None else outcome)

    def code(self) -> int:
        return SASL_OUTCOME

    def fields(self) -> list[object]:
        return [UByte(self.outcome), None]


def plain_credentials(response: bytes) -> tuple[str, str] | None:
    """User and password of a PLAIN response, or None if it is malformed: an ordinary refusal. RFC 4616 §2."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or not parts[1]:
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None
