"""Our codec against qpid-proton's, in both directions, for generated values."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

proton = pytest.importorskip("proton")

from polybus.amqp.codec import decode, encode  # noqa: E402
from polybus.amqp.types import (  # noqa: E402
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
from tests.unit.amqp.values import VALUES  # noqa: E402

TO_PROTON = {
    Symbol: proton.symbol,
    Char: proton.char,
    UByte: proton.ubyte,
    UShort: proton.ushort,
    UInt: proton.uint,
    ULong: proton.ulong,
    Byte: proton.byte,
    Short: proton.short,
    Int: proton.int32,
    Timestamp: proton.timestamp,
    Float32: proton.float32,
    Decimal32: lambda raw: proton.decimal32(int.from_bytes(raw, "big")),
    Decimal64: lambda raw: proton.decimal64(int.from_bytes(raw, "big")),
    Decimal128: proton.decimal128,
}
FROM_PROTON = {
    proton.symbol: Symbol,
    proton.char: Char,
    proton.ubyte: UByte,
    proton.ushort: UShort,
    proton.uint: UInt,
    proton.ulong: ULong,
    proton.byte: Byte,
    proton.short: Short,
    proton.int32: Int,
    proton.timestamp: Timestamp,
    proton.float32: Float32,
    proton.decimal32: lambda number: Decimal32(int(number).to_bytes(4, "big")),
    proton.decimal64: lambda number: Decimal64(int(number).to_bytes(8, "big")),
    proton.decimal128: lambda raw: Decimal128(bytes(raw)),
    memoryview: bytes,
}
ARRAY_TYPES = {
    0x56: proton.Data.BOOL,
    0x70: proton.Data.UINT,
    0x81: proton.Data.LONG,
    0x98: proton.Data.UUID,
    0xA0: proton.Data.BINARY,
    0xB1: proton.Data.STRING,
    0xB3: proton.Data.SYMBOL,
}


def to_proton(value: object) -> object:
    if isinstance(value, list):
        return [to_proton(item) for item in value]
    if isinstance(value, dict):
        return {to_proton(key): to_proton(item) for key, item in value.items()}
    if isinstance(value, Described):
        return proton.Described(to_proton(value.descriptor), to_proton(value.value))
    if isinstance(value, AmqpArray):
        items = [to_proton(item) for item in value.items]
        return proton.Array(proton.UNDESCRIBED, ARRAY_TYPES[value.constructor], *items)
    convert = TO_PROTON.get(type(value))
    return value if convert is None else convert(value)


def neutral(value: object) -> object:
    """A value with the names of its types, whichever library it is from; widths of arrays do not count."""
    if isinstance(value, (list, tuple)):
        return ["list", *map(neutral, value)]
    if isinstance(value, dict):
        return ["map", *[(neutral(key), neutral(item)) for key, item in value.items()]]
    if isinstance(value, (Described, proton.Described)):
        return ["described", neutral(value.descriptor), neutral(value.value)]
    if isinstance(value, AmqpArray):
        return ["array", *map(neutral, value.items)]
    if isinstance(value, proton.Array):
        return ["array", *map(neutral, value.elements)]
    if isinstance(value, uuid.UUID):
        return ("UUID", value.bytes)
    convert = FROM_PROTON.get(type(value))
    plain = value if convert is None else convert(value)  # type: ignore[operator]
    return (type(plain).__name__, repr(plain))


def proton_encode(value: object) -> bytes:
    data = proton.Data()
    data.put_object(to_proton(value))
    return bytes(data.encode())


def proton_decode(raw: bytes) -> object:
    """What proton reads, in neutral form: its binaries are views of memory that dies with its Data."""
    data = proton.Data()
    assert data.decode(raw) == len(raw)
    data.rewind()
    assert data.next()
    return neutral(data.get_object())


def is_odd(value: object) -> bool:
    """Whether the value holds what proton cannot give back.

    Those are binary keys, arrays without items, and a described value right inside another one.
    """
    if isinstance(value, AmqpArray):
        return not value.items
    if isinstance(value, (list, tuple)):
        return any(map(is_odd, value))
    if isinstance(value, dict):
        return any(isinstance(key, bytes) or is_odd(item) for key, item in value.items())
    return isinstance(value, Described) and (isinstance(value.value, Described) or is_odd(value.value))


ALIKE = VALUES.filter(lambda value: not is_odd(value))


@settings(max_examples=400, deadline=None)
@given(ALIKE)
def test_proton_reads_what_we_write(value) -> None:
    assert proton_decode(encode(value)) == neutral(value)


@settings(max_examples=400, deadline=None)
@given(ALIKE)
def test_we_read_what_proton_writes(value) -> None:
    raw = proton_encode(value)
    ours, end = decode(raw, 0)
    assert end == len(raw)
    assert neutral(ours) == neutral(value)


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=60))
def test_what_both_can_read_is_the_same(raw) -> None:
    """Noise: where both libraries find a value, it is the same value and ends at the same byte."""
    try:
        ours, end = decode(raw, 0)
    except Exception:
        return
    data = proton.Data()
    try:
        theirs_end = data.decode(raw)
    except proton.ProtonException:
        return
    assert theirs_end == end
    data.rewind()
    data.next()
    try:
        theirs = data.get_object()
    except (TypeError, ValueError):
        return
    if not isinstance(ours, AmqpArray):
        assert neutral(theirs) == neutral(ours)
