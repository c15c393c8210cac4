"""A value with its XML Schema type, as rules have them for parameters and for correlation properties.

The sender's text is kept, so that management clients get back what they sent; `python` gives the value to
compare with. Types matter for matching: an `int` 1 and a `string` "1" are different (docs/protocol/atom.md#rules).
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from polybus.namespace.entities import timespan

Scalar = str | bool | int | float | Decimal | datetime.datetime | datetime.timedelta | uuid.UUID | bytes

_INTEGER_BITS = {
    "byte": (True, 8),
    "unsignedByte": (False, 8),
    "short": (True, 16),
    "unsignedShort": (False, 16),
    "int": (True, 32),
    "unsignedInt": (False, 32),
    "long": (True, 64),
    "unsignedLong": (False, 64),
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_SPECIAL_FLOATS = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
_DATE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_LONGEST_NUMBER = 64


@dataclass(frozen=True)
class TypedValue:
    """`type` is the local name in XML Schema or in .NET's serialization namespace, `text` as it was sent."""

    type: str
    text: str

    def __post_init__(self) -> None:
        _parse(self.type, self.text)

    @property
    def python(self) -> Scalar:
        return _parse(self.type, self.text)

    @classmethod
    def of(cls, value: Scalar) -> TypedValue:
        """The typed value of a Python value: integers by size, as the SDKs choose."""
        return cls(*_type_and_text(value))


def _parse(type_name: str, text: str) -> Scalar:
    if type_name in _INTEGER_BITS:
        return _integer(type_name, text)
    reader = _READERS.get(type_name)
    if reader is None:
        raise ValueError(f"values of type {type_name[:40]!r} are not supported")
    return reader(text)


def _integer(type_name: str, text: str) -> int:
    signed, bits = _INTEGER_BITS[type_name]
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not of type {type_name}")
    value = int(text)
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not lowest <= value <= highest:
        raise ValueError(f"{value} is out of the range of type {type_name}")
    return value


def _boolean(text: str) -> bool:
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if value is None:
        raise ValueError(f"{text[:40]!r} is not of type boolean")
    return value


def _float(text: str) -> float:
    if text in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[text]
    # Python's own SDK writes its infinities in lower case.
    if text in ("inf", "-inf", "nan"):
        return float(text)
    if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not of type double")
    return float(text)


def _decimal(text: str) -> Decimal:
    try:
        if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
            raise InvalidOperation
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:40]!r} is not of type decimal") from None


def date_time_from_text(text: str) -> datetime.datetime:
    """The moment of an `xs:dateTime`, without a zone if it has none; ValueError if it is none."""
    match = _DATE_TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        moment = datetime.datetime.fromisoformat(match[1] + (match[3] or "").replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not of type dateTime") from None
    return moment.replace(microsecond=int((match[2] or "0")[:6].ljust(6, "0")))


def _duration(text: str) -> datetime.timedelta:
    try:
        return datetime.timedelta(microseconds=timespan.ticks_from_text(text) // 10)
    except OverflowError:
        raise ValueError(f"{text[:40]!r} is too long a duration") from None


def _guid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text if len(text) <= 38 else "")
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not of type guid") from None


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the value is not of type base64Binary") from None


def _char(text: str) -> str:
    # .NET's serializer writes a char as the number of its UTF-16 unit.
    value = int(text) if re.fullmatch(r"[0-9]{1,5}", text) else 0x10000
    if value > 0xFFFF:
        raise ValueError(f"{text[:40]!r} is not of type char")
    return chr(value)


_READERS: dict[str, Callable[[str], Scalar]] = {
    "string": str,
    "anyURI": str,
    "boolean": _boolean,
    "double": _float,
    "float": _float,
    "decimal": _decimal,
    "dateTime": date_time_from_text,
    "duration": _duration,
    "guid": _guid,
    "base64Binary": _binary,
    "char": _char,
}


def _type_and_text(value: Scalar) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", "true" if value else "false"
    if isinstance(value, int):
        return _integer_type(value), str(value)
    if isinstance(value, float):
        return "double", _float_text(value)
    if isinstance(value, str):
        return "string", value
    return _rarer_type_and_text(value)


def _integer_type(value: int) -> str:
    if -(2**31) <= value < 2**31:
        return "int"
    return "unsignedLong" if value >= 2**63 else "long"


def _rarer_type_and_text(
    value: Decimal | datetime.datetime | datetime.timedelta | uuid.UUID | bytes,
) -> tuple[str, str]:
    if isinstance(value, datetime.datetime):
        return "dateTime", value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.timedelta):
        return "duration", timespan.text_from_ticks(value // datetime.timedelta(microseconds=1) * 10)
    if isinstance(value, uuid.UUID):
        return "guid", str(value)
    if isinstance(value, bytes):
        return "base64Binary", base64.b64encode(value).decode("ascii")
    return "decimal", str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(value)
