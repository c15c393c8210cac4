"""What can become of a delivery: outcomes, transactional states, and the error they may carry.

Every one is written as a full list, nulls explicit, behind a smallulong descriptor (docs/protocol/amqp.md#full-lists).
AMQP 1.0 §2.8.14, §3.4, §4.5.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.encoder import encode_into
from polybus.amqp.fields import (
    ULONG_MAX,
    at,
    bool_at,
    bytes_at,
    described_list,
    invalid,
    map_at,
    number_at,
    text_at,
    uint_at,
)
from polybus.amqp.types import Described, Symbol, UInt, ULong


class AmqpError:
    """Condition, description and details of a refusal. AMQP 1.0 §2.8.14."""

    __slots__ = ("condition", "description", "info")

    def __init__(
        self, condition: str, description: str | None = None, info: dict[object, object] | None = None
    ) -> None:
        self.condition = condition
        self.description = description
        self.info = info

    def described(self) -> Described:
        fields: list[object] = [Symbol(self.condition), self.description, self.info]
        return Described(ULong(0x1D), fields)

    def __repr__(self) -> str:
        return f"AmqpError({self.condition!r}, {self.description!r})"


def error_from(value: object) -> AmqpError | None:
    """The error in a field that may be null."""
    if value is None:
        return None
    code, fields = described_list(value)
    condition = text_at(fields, 0)
    if code != 0x1D or condition is None:
        raise invalid("an error is expected")
    return AmqpError(str(condition), text_at(fields, 1), map_at(fields, 2))


def error_described(error: AmqpError | None) -> object:
    return None if error is None else error.described()


class DeliveryState:
    """Base of everything that a disposition or a transfer can say about a delivery."""

    terminal = True

    def code(self) -> int:
        raise NotImplementedError

    def fields(self) -> list[object]:
        return []

    def described(self) -> Described:
        return Described(ULong(self.code()), self.fields())

    def encoded(self) -> bytes:
        out = bytearray()
        encode_into(out, self.described())
        return bytes(out)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.fields()))})"


class Received(DeliveryState):
    """How far a delivery has come; not an outcome. AMQP 1.0 §3.4.1."""

    terminal = False

    def __init__(self, section_number: int, section_offset: int) -> None:
        self.section_number = section_number
        self.section_offset = section_offset

    def code(self) -> int:
        return 0x23

    def fields(self) -> list[object]:
        return [UInt(self.section_number), ULong(self.section_offset)]


class Accepted(DeliveryState):
    def code(self) -> int:
        return 0x24


class Rejected(DeliveryState):
    def __init__(self, error: AmqpError | None = None) -> None:
        self.error = error

    def code(self) -> int:
        return 0x25

    def fields(self) -> list[object]:
        return [error_described(self.error)]


class Released(DeliveryState):
    def code(self) -> int:
        return 0x26


class Modified(DeliveryState):
    def __init__(
        self,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[object, object] | None = None,
    ) -> None:
        self.delivery_failed = delivery_failed
        self.undeliverable_here = undeliverable_here
        self.message_annotations = message_annotations

    def code(self) -> int:
        return 0x27

    def fields(self) -> list[object]:
        return [self.delivery_failed, self.undeliverable_here, self.message_annotations]


class Declared(DeliveryState):
    """The outcome of a declare: the transaction's name. Only a coordinator says it. AMQP 1.0 §4.5.7."""

    terminal = False

    def __init__(self, txn_id: bytes) -> None:
        self.txn_id = txn_id

    def code(self) -> int:
        return 0x33

    def fields(self) -> list[object]:
        return [self.txn_id]


class TransactionalState(DeliveryState):
    """A state that holds only if its transaction commits. AMQP 1.0 §4.5.8."""

    def __init__(self, txn_id: bytes, outcome: DeliveryState | None) -> None:
        self.txn_id = txn_id
        self.outcome = outcome

    def code(self) -> int:
        return 0x34

    def fields(self) -> list[object]:
        return [self.txn_id, None if self.outcome is None else self.outcome.described()]


class Declare:
    """The body of a message that begins a transaction. AMQP 1.0 §4.5.4."""

    def __init__(self, global_id: object = None) -> None:
        self.global_id = global_id

    def described(self) -> Described:
        return Described(ULong(0x31), [self.global_id])


class Discharge:
    """The body of a message that ends a transaction, by rolling it back if `fail`. AMQP 1.0 §4.5.5."""

    def __init__(self, txn_id: bytes, fail: bool = False) -> None:
        self.txn_id = txn_id
        self.fail = fail

    def described(self) -> Described:
        return Described(ULong(0x32), [self.txn_id, self.fail])


ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
ACCEPTED_BYTES: Final = b"\x00\x53\x24\xc0\x01\x00"
RELEASED_BYTES: Final = b"\x00\x53\x26\xc0\x01\x00"
MODIFIED_BYTES: Final = b"\x00\x53\x27\xc0\x04\x03\x42\x42\x40"
REJECTED_BYTES: Final = b"\x00\x53\x25\xc0\x02\x01\x40"
"""Rejected without an error: the confirmation of a dead-lettering (docs/protocol/amqp.md#confirmations)."""


def state_from(value: object) -> DeliveryState | None:
    """The delivery state in a field that may be null."""
    if value is None:
        return None
    code, fields = described_list(value)
    if code == 0x24:
        return ACCEPTED
    if code == 0x25:
        return Rejected(error_from(at(fields, 0)))
    if code == 0x26:
        return RELEASED
    if code == 0x27:
        return Modified(bool_at(fields, 0), bool_at(fields, 1), map_at(fields, 2))
    if code == 0x34:
        return _transactional_from(fields)
    if code == 0x23:
        return Received(uint_at(fields, 0) or 0, number_at(fields, 1, ULONG_MAX) or 0)
    if code == 0x33:
        return Declared(_txn_id_at(fields))
    raise invalid("the delivery state is unknown")


def _transactional_from(fields: list[object]) -> TransactionalState:
    outcome = state_from(at(fields, 1))
    if isinstance(outcome, (TransactionalState, Declared, Received)):
        raise invalid("a transactional state holds an outcome")
    return TransactionalState(_txn_id_at(fields), outcome)


def _txn_id_at(fields: list[object]) -> bytes:
    txn_id = bytes_at(fields, 0)
    if txn_id is None:
        raise invalid("the transaction's id is missing")
    return txn_id


def transaction_request(value: object) -> Declare | Discharge:
    """The declare or discharge that a coordinator's message holds as its value."""
    code, fields = described_list(value)
    if code == 0x31:
        return Declare(at(fields, 0))
    if code == 0x32:
        return Discharge(_txn_id_at(fields), bool_at(fields, 1))
    raise invalid("a coordinator understands declare and discharge")
