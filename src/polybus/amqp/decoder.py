"""Reads one AMQP value out of bytes, or steps over it.

Whatever a peer sends is either a value or one `amqp:decode-error`. Sizes and counts are compared with the
bytes that are really there before anything is built from them, a nested value must fit into its parent, and
depth is bounded. Nothing is cached or interned that a peer can choose. AMQP 1.0 §1.2, §1.3, §1.6.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

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
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from polybus.errors import ProtocolError
from polybus.limits import AMQP_NESTING, AMQP_ZERO_WIDTH_ITEMS

_U16: Final = struct.Struct(">H").unpack_from
_I16: Final = struct.Struct(">h").unpack_from
_U32: Final = struct.Struct(">I").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_F32: Final = struct.Struct(">f").unpack_from
_U64: Final = struct.Struct(">Q").unpack_from
_I64: Final = struct.Struct(">q").unpack_from
_F64: Final = struct.Struct(">d").unpack_from

_UBYTES: Final = [UByte(n) for n in range(256)]
_UINTS: Final = [UInt(n) for n in range(256)]
_ULONGS: Final = [ULong(n) for n in range(256)]

_VARIABLE8: Final = -1
_VARIABLE32: Final = -2
_DESCRIBED: Final = -3
_UNKNOWN: Final = -4


def _widths() -> list[int]:
    """For each constructor the bytes that follow it: a fixed number, or how the number is found."""
    widths = [_UNKNOWN] * 256
    for codes, width in (
        ((0x00,), _DESCRIBED),
        ((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 0),
        ((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), 1),
        ((0x60, 0x61), 2),
        ((0x70, 0x71, 0x72, 0x73, 0x74), 4),
        ((0x80, 0x81, 0x82, 0x83, 0x84), 8),
        ((0x94, 0x98), 16),
        ((0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0), _VARIABLE8),
        ((0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0), _VARIABLE32),
    ):
        for code in codes:
            widths[code] = width
    return widths


_WIDTHS: Final = _widths()


def u32_at(buf: bytes, pos: i64) -> i64:
    """The unsigned number in these four bytes, which must be there."""
    return i64(read_i32_be(buf, pos)) & 0xFFFF_FFFF


def decode_error(text: str) -> ProtocolError:
    return ProtocolError("amqp:decode-error", text)


def decode(buf: bytes, pos: int) -> tuple[object, int]:
    """The value that starts at `pos`, and the position after it."""
    return _value(buf, pos, len(buf), 0)


def decode_within(buf: bytes, pos: int, end: int) -> tuple[object, int]:
    """Like `decode`, for a value that may not reach beyond `end`."""
    return _value(buf, pos, end, 0)


def skip(buf: bytes, pos: int) -> int:
    """The position after the value that starts at `pos`, without decoding it."""
    return skip_within(buf, pos, len(buf))


def skip_within(buf: bytes, pos: int, end: int) -> int:
    wanted = 1
    while wanted:
        if not 0 <= pos < end:
            raise decode_error("the value is cut short")
        width = _WIDTHS[buf[pos]]
        pos += 1
        if width >= 0:
            pos += width
            wanted -= 1
        elif width == _DESCRIBED:
            wanted += 1
        else:
            pos += _sized(buf, pos, end, width)
            wanted -= 1
    if pos > end:
        raise decode_error("the value is cut short")
    return pos


def _sized(buf: bytes, pos: int, end: int, width: int) -> int:
    """Bytes of a variable-width value at `pos`, its size field included."""
    if width == _VARIABLE8 and pos < end:
        return 1 + buf[pos]
    if width == _VARIABLE32 and pos + 4 <= end:
        size: int = _U32(buf, pos)[0]
        return 4 + size
    raise decode_error("unknown constructor" if width == _UNKNOWN else "the value is cut short")


def _value(buf: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
    if not 0 <= pos < end:
        raise decode_error("the value is cut short")
    code = buf[pos]
    if code == 0:
        return _described(buf, pos + 1, end, depth + 1)
    return _body(code, buf, pos + 1, end, depth)


def _described(buf: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
    if depth > AMQP_NESTING:
        raise decode_error("nested too deep")
    descriptor, pos = _value(buf, pos, end, depth)
    value, pos = _value(buf, pos, end, depth)
    return Described(descriptor, value), pos


def _body(code: int, buf: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
    """The value whose constructor `code` has been read; `pos` is where its bytes begin."""
    width = _WIDTHS[code]
    if width >= 0:
        after = pos + width
        if after > end:
            raise decode_error("the value is cut short")
        return _fixed(code, buf, pos), after
    if width == _VARIABLE8:
        if pos >= end:
            raise decode_error("the value is cut short")
        start = pos + 1
        after = start + buf[pos]
    elif width == _VARIABLE32:
        if pos + 4 > end:
            raise decode_error("the value is cut short")
        start = pos + 4
        after = start + _U32(buf, pos)[0]
    else:
        raise decode_error(f"0x{code:02x} is no constructor")
    if after > end:
        raise decode_error("the value's size reaches beyond its bytes")
    if code < 0xC0:
        return _text(code, buf, start, after), after
    return _compound(code, buf, start, after, depth + 1), after


def _text(code: int, buf: bytes, start: int, after: int) -> object:
    raw = buf[start:after]
    kind = code & 0x0F
    if kind == 0:
        return raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise decode_error("the text is not UTF-8") from None
    # Symbols are ASCII by AMQP 1.0 §1.6.21, but SDKs write property names of any alphabet as symbols.
    return text if kind == 1 else Symbol(text)


def _fixed(code: int, buf: bytes, pos: int) -> object:
    """A value of fixed width; the caller has checked that its bytes are there."""
    if code < 0x50:
        return _empty(code)
    if code < 0x60:
        return _one_byte(code, buf[pos])
    if code < 0x80:
        return _two_or_four(code, buf, pos)
    if code < 0x90:
        return _eight(code, buf, pos)
    raw = buf[pos : pos + 16]
    return uuid.UUID(bytes=raw) if code == 0x98 else Decimal128(raw)


def _empty(code: int) -> object:
    if code == 0x40:
        return None
    if code == 0x41:
        return True
    if code == 0x42:
        return False
    if code == 0x43:
        return _UINTS[0]
    if code == 0x44:
        return _ULONGS[0]
    return []


def _one_byte(code: int, byte: int) -> object:
    if code == 0x52:
        return _UINTS[byte]
    if code == 0x53:
        return _ULONGS[byte]
    if code == 0x50:
        return _UBYTES[byte]
    if code == 0x56:
        if byte > 1:
            raise decode_error("a boolean is neither true nor false")
        return byte == 1
    signed = byte - 256 if byte > 127 else byte
    if code == 0x55:
        return signed
    return Int(signed) if code == 0x54 else Byte(signed)


def _two_or_four(code: int, buf: bytes, pos: int) -> object:
    if code == 0x70:
        return UInt(_U32(buf, pos)[0])
    if code == 0x71:
        return Int(_I32(buf, pos)[0])
    if code == 0x72:
        return Float32(_F32(buf, pos)[0])
    if code == 0x74:
        return Decimal32(buf[pos : pos + 4])
    if code == 0x60:
        return UShort(_U16(buf, pos)[0])
    if code == 0x61:
        return Short(_I16(buf, pos)[0])
    point: int = _U32(buf, pos)[0]
    if point > 0x10FFFF or 0xD800 <= point < 0xE000:
        raise decode_error("the char is no Unicode character")
    return Char(chr(point))


def _eight(code: int, buf: bytes, pos: int) -> object:
    if code == 0x81:
        number: object = _I64(buf, pos)[0]
        return number
    if code == 0x83:
        return Timestamp(_I64(buf, pos)[0])
    if code == 0x80:
        return ULong(_U64(buf, pos)[0])
    if code == 0x82:
        double: object = _F64(buf, pos)[0]
        return double
    return Decimal64(buf[pos : pos + 8])


def _compound(code: int, buf: bytes, pos: int, end: int, depth: int) -> object:
    """A list, map or array whose count starts at `pos` and whose last byte is before `end`."""
    if depth > AMQP_NESTING:
        raise decode_error("nested too deep")
    if code & 0x10:
        if pos + 4 > end:
            raise decode_error("the count is cut short")
        count: int = _U32(buf, pos)[0]
        pos += 4
    else:
        if pos >= end:
            raise decode_error("the count is cut short")
        count = buf[pos]
        pos += 1
    if code >= 0xE0:
        return _array(count, buf, pos, end, depth)
    # Each item of a list or a map takes one byte at least.
    if count > end - pos:
        raise decode_error("more items are announced than bytes are there")
    return _map(count, buf, pos, end, depth) if code & 1 else _list(count, buf, pos, end, depth)


def _list(count: int, buf: bytes, pos: int, end: int, depth: int) -> object:
    items: list[object] = []
    for _ in range(count):
        item, pos = _value(buf, pos, end, depth)
        items.append(item)
    if pos != end:
        raise decode_error("the list's size and its items differ")
    return items


def _map(count: int, buf: bytes, pos: int, end: int, depth: int) -> object:
    if count & 1:
        raise decode_error("the map has a key without a value")
    items: dict[object, object] = {}
    for _ in range(count >> 1):
        key, pos = _value(buf, pos, end, depth)
        # A uuid's hash can be forged, and nobody keys a map by one; compounds cannot be keys in Python.
        if key is not None and not isinstance(key, (str, int, float, bytes)):
            raise decode_error("a map's key is of a type that is not supported")
        if key in items:
            raise decode_error("the map has the same key twice")
        items[key], pos = _value(buf, pos, end, depth)
    if pos != end:
        raise decode_error("the map's size and its items differ")
    return items


def _array(count: int, buf: bytes, pos: int, end: int, depth: int) -> object:
    descriptor: object = None
    if pos < end and buf[pos] == 0:
        descriptor, pos = _value(buf, pos + 1, end, depth)
    if pos >= end:
        if count == 0 and descriptor is None:
            return AmqpArray(0x40, [])
        raise decode_error("the array has no constructor")
    code = buf[pos]
    pos += 1
    width = _WIDTHS[code]
    if width in (_UNKNOWN, _DESCRIBED):
        raise decode_error(f"0x{code:02x} is no constructor of an array")
    if count > (end - pos if width else AMQP_ZERO_WIDTH_ITEMS):
        raise decode_error("more items are announced than bytes are there")
    items: list[object] = []
    for _ in range(count):
        item, pos = _body(code, buf, pos, end, depth)
        items.append(item)
    if pos != end:
        raise decode_error("the array's size and its items differ")
    return AmqpArray(code, items, descriptor)
