"""Reads one field of a performative's list: a missing field is null, a wrong type is the peer's error.

Integers may come in any width (docs/protocol/amqp.md#integers): what counts is that the value fits the field.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.types import Described, ULong
from polybus.errors import ProtocolError

UINT_MAX: Final = 0xFFFF_FFFF
ULONG_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF


def invalid(text: str) -> ProtocolError:
    return ProtocolError("amqp:invalid-field", text)


def at(fields: list[object], index: int) -> object:
    return fields[index] if index < len(fields) else None


def number_at(fields: list[object], index: int, maximum: int) -> int | None:
    value = at(fields, index)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(f"field {index} is no number")
    if not 0 <= value <= maximum:
        raise invalid(f"field {index} is out of range")
    return int(value)


def uint_at(fields: list[object], index: int) -> int | None:
    return number_at(fields, index, UINT_MAX)


def needed_uint_at(fields: list[object], index: int) -> int:
    value = number_at(fields, index, UINT_MAX)
    if value is None:
        raise invalid(f"field {index} must not be null")
    return value


def bool_at(fields: list[object], index: int) -> bool:
    """A boolean field; null is false, the default of every one that AMQP defines."""
    value = at(fields, index)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise invalid(f"field {index} is no boolean")
    return value


def text_at(fields: list[object], index: int) -> str | None:
    value = at(fields, index)
    if value is None or isinstance(value, str):
        return value
    raise invalid(f"field {index} is no text")


def bytes_at(fields: list[object], index: int) -> bytes | None:
    value = at(fields, index)
    if value is None or isinstance(value, bytes):
        return value
    raise invalid(f"field {index} is no binary")


def map_at(fields: list[object], index: int) -> dict[object, object] | None:
    value = at(fields, index)
    if value is None or isinstance(value, dict):
        return value
    raise invalid(f"field {index} is no map")


def described_list(value: object) -> tuple[int, list[object]]:
    """Descriptor code and fields of a described list, whichever form its descriptor has."""
    if not isinstance(value, Described):
        raise invalid("a described list is expected")
    code = descriptor_code(value.descriptor)
    if not isinstance(value.value, list):
        raise invalid("a described list is expected")
    return code, value.value


def descriptor_code(descriptor: object) -> int:
    if isinstance(descriptor, ULong):
        return int(descriptor)
    if isinstance(descriptor, str):
        return _NAMES.get(str(descriptor), -1)
    return -1


_NAMES = {
    "amqp:open:list": 0x10,
    "amqp:begin:list": 0x11,
    "amqp:attach:list": 0x12,
    "amqp:flow:list": 0x13,
    "amqp:transfer:list": 0x14,
    "amqp:disposition:list": 0x15,
    "amqp:detach:list": 0x16,
    "amqp:end:list": 0x17,
    "amqp:close:list": 0x18,
    "amqp:error:list": 0x1D,
    "amqp:received:list": 0x23,
    "amqp:accepted:list": 0x24,
    "amqp:rejected:list": 0x25,
    "amqp:released:list": 0x26,
    "amqp:modified:list": 0x27,
    "amqp:source:list": 0x28,
    "amqp:target:list": 0x29,
    "amqp:coordinator:list": 0x30,
    "amqp:declare:list": 0x31,
    "amqp:discharge:list": 0x32,
    "amqp:declared:list": 0x33,
    "amqp:transactional-state:list": 0x34,
    "amqp:sasl-mechanisms:list": 0x40,
    "amqp:sasl-init:list": 0x41,
    "amqp:sasl-challenge:list": 0x42,
    "amqp:sasl-response:list": 0x43,
    "amqp:sasl-outcome:list": 0x44,
}
"""The symbolic descriptors, which a peer may write instead of the numbers. AMQP 1.0 §1.4."""
