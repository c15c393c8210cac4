"""Writes Python values as AMQP 1.0, each in its smallest form.

A value that does not fit its type is our own bug, never the peer's. Lists are never written as list0, since
older SDKs index into the field list and cannot read that form (docs/protocol/amqp.md#full-lists).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Final, cast

from polybus.amqp.types import (
    AmqpArray,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Long8,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from polybus.errors import BugError

_U16: Final = struct.Struct(">H").pack
_I16: Final = struct.Struct(">h").pack
_U32: Final = struct.Struct(">I").pack
_I32: Final = struct.Struct(">i").pack
_F32: Final = struct.Struct(">f").pack
_U64: Final = struct.Struct(">Q").pack
_I64: Final = struct.Struct(">q").pack
_F64: Final = struct.Struct(">d").pack

Writer = Callable[[bytearray, object], None]


def encode(value: object) -> bytes:
    """One AMQP value."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: object) -> None:
    """Appends one AMQP value to `out`."""
    if value is None:
        out.append(0x40)
        return
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise BugError(f"{type(value).__name__} has no AMQP type")
    try:
        writer(out, value)
    except (struct.error, OverflowError) as wrong:
        raise BugError(f"{value!r} does not fit {type(value).__name__}") from wrong


def long8(number: int) -> Long8:
    """A long that is written in eight bytes: SDKs read some numbers only in that form.

    docs/protocol/amqp.md#session-lock-end.
    """
    return Long8(number)


def _bool(out: bytearray, value: object) -> None:
    out.append(0x41 if value else 0x42)


def _long(out: bytearray, value: object) -> None:
    number = cast(int, value)
    if -128 <= number <= 127:
        out.append(0x55)
        out.append(number & 0xFF)
    else:
        out.append(0x81)
        out += _I64(number)


def _long8(out: bytearray, value: object) -> None:
    out.append(0x81)
    out += _I64(value)


def _int(out: bytearray, value: object) -> None:
    number = cast(int, value)
    if -128 <= number <= 127:
        out.append(0x54)
        out.append(number & 0xFF)
    else:
        out.append(0x71)
        out += _I32(number)


def _short(out: bytearray, value: object) -> None:
    out.append(0x61)
    out += _I16(value)


def _byte(out: bytearray, value: object) -> None:
    out.append(0x51)
    out += struct.pack(">b", value)


def _ulong(out: bytearray, value: object) -> None:
    number = cast(int, value)
    if 0 <= number <= 255:
        if number:
            out.append(0x53)
            out.append(number)
        else:
            out.append(0x44)
    else:
        out.append(0x80)
        out += _U64(number)


def _uint(out: bytearray, value: object) -> None:
    number = cast(int, value)
    if 0 <= number <= 255:
        if number:
            out.append(0x52)
            out.append(number)
        else:
            out.append(0x43)
    else:
        out.append(0x70)
        out += _U32(number)


def _ushort(out: bytearray, value: object) -> None:
    out.append(0x60)
    out += _U16(value)


def _ubyte(out: bytearray, value: object) -> None:
    out.append(0x50)
    out += struct.pack(">B", value)


def _double(out: bytearray, value: object) -> None:
    out.append(0x82)
    out += _F64(value)


def _float(out: bytearray, value: object) -> None:
    out.append(0x72)
    out += _F32(value)


def _timestamp(out: bytearray, value: object) -> None:
    out.append(0x83)
    out += _I64(value)


def _char(out: bytearray, value: object) -> None:
    out.append(0x73)
    out += _U32(ord(cast(str, value)))


def _uuid(out: bytearray, value: object) -> None:
    out.append(0x98)
    out += cast(uuid.UUID, value).bytes


def _decimal32(out: bytearray, value: object) -> None:
    out.append(0x74)
    out += _exactly(value, 4)


def _decimal64(out: bytearray, value: object) -> None:
    out.append(0x84)
    out += _exactly(value, 8)


def _decimal128(out: bytearray, value: object) -> None:
    out.append(0x94)
    out += _exactly(value, 16)


def _exactly(value: object, width: int) -> bytes:
    raw = cast(bytes, value)
    if len(raw) != width:
        raise BugError(f"{value!r} does not have {width} bytes")
    return raw


def _string(out: bytearray, value: object) -> None:
    _variable(out, 0xA1, cast(str, value).encode())


def _symbol(out: bytearray, value: object) -> None:
    _variable(out, 0xA3, cast(str, value).encode())


def _binary(out: bytearray, value: object) -> None:
    _variable(out, 0xA0, bytes(cast("bytes | bytearray | memoryview", value)))


def _variable(out: bytearray, code: int, raw: bytes) -> None:
    size = len(raw)
    if size <= 255:
        out.append(code)
        out.append(size)
    else:
        out.append(code + 0x10)
        out += _U32(size)
    out += raw


def _list(out: bytearray, value: object) -> None:
    items = cast("Sequence[object]", value)
    body = bytearray()
    for item in items:
        encode_into(body, item)
    _compound(out, 0xC0, len(items), body)


def _map(out: bytearray, value: object) -> None:
    items = cast("dict[object, object]", value)
    body = bytearray()
    for key, item in items.items():
        encode_into(body, key)
        encode_into(body, item)
    _compound(out, 0xC1, 2 * len(items), body)


def _compound(out: bytearray, code: int, count: int, body: bytearray) -> None:
    size = len(body)
    if size < 255 and count <= 255:
        out.append(code)
        out.append(size + 1)
        out.append(count)
    else:
        out.append(code + 0x10)
        out += _U32(size + 4)
        out += _U32(count)
    out += body


def _described(out: bytearray, value: object) -> None:
    described = cast(Described, value)
    out.append(0x00)
    encode_into(out, described.descriptor)
    encode_into(out, described.value)


def _array(out: bytearray, value: object) -> None:
    array = cast(AmqpArray, value)
    body = bytearray()
    if array.descriptor is not None:
        body.append(0x00)
        encode_into(body, array.descriptor)
    body.append(array.constructor)
    for item in array.items:
        body += _item(array.constructor, item)
    _compound(out, 0xE0, len(array.items), body)


def _item(constructor: int, item: object) -> bytes:
    """The bytes of one array item, which the array's constructor, and not the item, gives its form."""
    fixed = _FIXED.get(constructor)
    if fixed is not None:
        return b"" if fixed == "" else struct.pack(fixed, item)
    encoded = encode(item)
    if encoded[0] == constructor:
        return encoded[1:]
    if encoded[0] == constructor - 0x10 and constructor >= 0xB0:
        return _widened(constructor, encoded)
    if constructor == 0x41 or constructor == 0x42 or constructor == 0x45:
        return b""
    raise BugError(f"{item!r} does not fit an array of 0x{constructor:02x}")


def _widened(constructor: int, encoded: bytes) -> bytes:
    """The same value with four-byte size and count instead of one-byte ones."""
    if constructor < 0xD0:
        return _U32(encoded[1]) + encoded[2:]
    return _U32(encoded[1] + 3) + _U32(encoded[2]) + encoded[3:]


_FIXED: Final[dict[int, str]] = {
    0x40: "",
    0x43: "",
    0x44: "",
    0x50: ">B",
    0x51: ">b",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x56: ">?",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
}

_WRITERS: Final[dict[type, Writer]] = {
    bool: _bool,
    int: _long,
    Long8: _long8,
    Int: _int,
    Short: _short,
    Byte: _byte,
    ULong: _ulong,
    UInt: _uint,
    UShort: _ushort,
    UByte: _ubyte,
    float: _double,
    Float32: _float,
    Timestamp: _timestamp,
    Char: _char,
    uuid.UUID: _uuid,
    Decimal32: _decimal32,
    Decimal64: _decimal64,
    Decimal128: _decimal128,
    str: _string,
    Symbol: _symbol,
    bytes: _binary,
    bytearray: _binary,
    memoryview: _binary,
    list: _list,
    tuple: _list,
    dict: _map,
    Described: _described,
    AmqpArray: _array,
}
