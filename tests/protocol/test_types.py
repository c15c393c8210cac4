"""The type system on the wire: one vector for each encoding. AMQP 1.0 §1.6."""

from __future__ import annotations

import math
import uuid

import pytest

from polybus.amqp.codec import decode, encode, long8, skip
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
from polybus.errors import BugError, ProtocolError
from polybus.limits import AMQP_NESTING, AMQP_ZERO_WIDTH_ITEMS

SOME_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

READ = [
    ("40", None, type(None)),
    ("41", True, bool),
    ("42", False, bool),
    ("5601", True, bool),
    ("5600", False, bool),
    ("50ff", 255, UByte),
    ("60ffff", 65535, UShort),
    ("70ffffffff", 4294967295, UInt),
    ("5280", 128, UInt),
    ("43", 0, UInt),
    ("80ffffffffffffffff", 18446744073709551615, ULong),
    ("5380", 128, ULong),
    ("44", 0, ULong),
    ("5180", -128, Byte),
    ("618000", -32768, Short),
    ("7180000000", -2147483648, Int),
    ("54ff", -1, Int),
    ("818000000000000000", -9223372036854775808, int),
    ("55ff", -1, int),
    ("723fc00000", 1.5, Float32),
    ("823ff8000000000000", 1.5, float),
    ("7401020304", b"\x01\x02\x03\x04", Decimal32),
    ("840102030405060708", b"\x01\x02\x03\x04\x05\x06\x07\x08", Decimal64),
    ("94" + "07" * 16, b"\x07" * 16, Decimal128),
    ("730001f600", "\U0001f600", Char),
    ("83fffffffffffffffe", -2, Timestamp),
    ("9800112233445566778899aabbccddeeff", SOME_UUID, uuid.UUID),
    ("a00201ff", b"\x01\xff", bytes),
    ("b00000000201ff", b"\x01\xff", bytes),
    ("a103c3a962", "éb", str),
    ("b100000003c3a962", "éb", str),
    ("a3026162", "ab", Symbol),
    ("b3000000026162", "ab", Symbol),
    ("45", [], list),
    ("c00100", [], list),
    ("c003024041", [None, True], list),
    ("d000000006000000024041", [None, True], list),
    ("c10100", {}, dict),
    ("c10502a1016b41", {"k": True}, dict),
    ("d10000000800000002a1016b41", {"k": True}, dict),
    ("e0040252" + "0102", AmqpArray(0x52, [UInt(1), UInt(2)]), AmqpArray),
    ("f0000000070000000252" + "0102", AmqpArray(0x52, [UInt(1), UInt(2)]), AmqpArray),
    ("e0020043", AmqpArray(0x43, []), AmqpArray),
    ("e00100", AmqpArray(0x40, []), AmqpArray),
    ("e0050100532445", AmqpArray(0x45, [[]], ULong(0x24)), AmqpArray),
    ("00532440", Described(ULong(0x24), None), Described),
    ("0000532440" + "41", Described(Described(ULong(0x24), None), True), Described),
]


@pytest.mark.parametrize(("wire", "value", "kind"), READ)
def test_every_encoding_is_read(wire, value, kind) -> None:
    raw = bytes.fromhex(wire)
    assert decode(raw, 0) == (value, len(raw))
    assert type(decode(raw, 0)[0]) is kind
    assert skip(raw, 0) == len(raw)
    assert decode(b"?" + raw + b"?", 1) == (value, len(raw) + 1)


WRITTEN = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (127, "557f"),
    (-128, "5580"),
    (128, "810000000000000080"),
    (long8(5), "810000000000000005"),
    (Int(5), "5405"),
    (Int(200), "71000000c8"),
    (Short(5), "610005"),
    (Byte(-1), "51ff"),
    (ULong(0), "44"),
    (ULong(255), "53ff"),
    (ULong(256), "800000000000000100"),
    (UInt(0), "43"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (UShort(1), "600001"),
    (UByte(1), "5001"),
    (1.5, "823ff8000000000000"),
    (Float32(1.5), "723fc00000"),
    (Timestamp(1), "830000000000000001"),
    (Char("a"), "7300000061"),
    (SOME_UUID, "9800112233445566778899aabbccddeeff"),
    ("é", "a102c3a9"),
    (Symbol("ab"), "a3026162"),
    (b"ab", "a0026162"),
    (bytearray(b"ab"), "a0026162"),
    (memoryview(b"ab"), "a0026162"),
    ([], "c00100"),
    ((None,), "c0020140"),
    ({}, "c10100"),
    ({Symbol("k"): 1}, "c10602a3016b5501"),
    (Described(ULong(0x24), []), "005324c00100"),
    (AmqpArray(0xB3, [Symbol("a")]), "e00701b30000000161"),
    (AmqpArray(0x71, [Int(1)]), "e006017100000001"),
]


@pytest.mark.parametrize(("value", "wire"), WRITTEN)
def test_every_type_is_written_in_its_smallest_form(value, wire) -> None:
    assert encode(value).hex() == wire


@pytest.mark.parametrize(("size", "code"), [(255, 0xA0), (256, 0xB0)])
def test_long_values_change_their_form(size, code) -> None:
    for value, offset in ((b"x" * size, 0), ("x" * size, 1), (Symbol("x" * size), 3)):
        raw = encode(value)
        assert raw[0] == code + offset
        assert decode(raw, 0) == (value, len(raw))


@pytest.mark.parametrize("count", [0, 1, 253, 254, 255, 256, 1000])
def test_lists_and_maps_of_any_size(count) -> None:
    items: list[object] = [None] * count
    pairs: dict[object, object] = {UInt(number): True for number in range(count)}
    array = AmqpArray(0x70, [UInt(number) for number in range(count)])
    for value in (items, pairs, array):
        raw = encode(value)
        assert decode(raw, 0) == (value, len(raw))
        assert skip(raw, 0) == len(raw)


def test_nan_keeps_its_bits() -> None:
    for raw in (bytes.fromhex("827ff8000000000001"), bytes.fromhex("82fff8000000000000")):
        value, _ = decode(raw, 0)
        assert isinstance(value, float)
        assert math.isnan(value)
        assert encode(value) == raw


MALFORMED = [
    "",
    "3f",
    "46",
    "57",
    "99",
    "a2",
    "b2",
    "c2",
    "ff",
    "5602",
    "56ff",
    "52",
    "6000",
    "70000000",
    "8000000000000000",
    "98" + "00" * 15,
    "7300110000",
    "730000d800",
    "a0",
    "a001",
    "b0000000",
    "b00000000261",
    "b0ffffffff",
    "a101ff",
    "a102c328",
    "a301ff",
    "c0",
    "c000",
    "c00101",
    "c00200",
    "c003014041",
    "c0030240",
    "d00000000400000001",
    "d000000004ffffffff",
    "d0ffffffff00000000",
    "d0000000",
    "c1020140",
    "c1030240",
    "c1040253",
    "c10504550155",
    "c10904a1016b41a1016b42",
    "c10904550141550142",
    "c10402c00140",
    "c1140298" + "00" * 16 + "40",
    "e0",
    "e00101",
    "e00201",
    "e002ff40",
    "e0020057",
    "e0030152",
    "f0000000050000001140",
    "f000000005ffffffff40",
    "f000000006ffffffff5201",
    "e003020053",
    "00",
    "0040",
    "005324",
    "00" * 200,
]


@pytest.mark.parametrize("wire", MALFORMED)
def test_malformed_values_are_decode_errors(wire) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(bytes.fromhex(wire), 0)
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize("pos", [-1, 1, 2, 1 << 40])
def test_positions_outside_are_decode_errors(pos) -> None:
    for read in (decode, skip):
        with pytest.raises(ProtocolError):
            read(b"\x40", pos)


@pytest.mark.parametrize("wire", ["", "57", "a0", "a005", "b0000000", "b0ffffffff", "00", "0053", "70000000", "c005"])
def test_skip_stays_inside(wire) -> None:
    with pytest.raises(ProtocolError):
        skip(bytes.fromhex(wire), 0)


def nested(depth: int) -> bytes:
    raw = b"\x40"
    for _ in range(depth):
        raw = b"\xd0" + (len(raw) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + raw
    return raw


def test_depth_is_bounded() -> None:
    assert decode(nested(AMQP_NESTING), 0)[1] > 0
    with pytest.raises(ProtocolError):
        decode(nested(AMQP_NESTING + 1), 0)
    with pytest.raises(ProtocolError):
        decode(b"\x00" * (AMQP_NESTING + 1) + b"\x40" * (AMQP_NESTING + 2), 0)


@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_arrays_without_bytes_are_bounded(code) -> None:
    raw = bytes((0xF0, 0, 0, 0, 5, 0, 0, 0, AMQP_ZERO_WIDTH_ITEMS, code))
    value, _ = decode(raw, 0)
    assert isinstance(value, AmqpArray)
    assert len(value.items) == AMQP_ZERO_WIDTH_ITEMS
    assert decode(encode(value), 0)[0] == value
    with pytest.raises(ProtocolError):
        decode(bytes((0xF0, 0, 0, 0, 5, 0, 0, 0, AMQP_ZERO_WIDTH_ITEMS + 1, code)), 0)


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(-1),
        UInt(1 << 32),
        ULong(-1),
        ULong(1 << 64),
        Byte(128),
        Short(40000),
        Int(1 << 31),
        1 << 63,
        Timestamp(1 << 63),
        Decimal32(b"abc"),
        object(),
        {1, 2},
        1j,
        AmqpArray(0xA3, [Symbol("x" * 256)]),
        AmqpArray(0x71, ["text"]),
        AmqpArray(0xA1, [b"binary"]),
        [[UInt(-1)]],
    ],
)
def test_what_does_not_fit_is_our_bug(value) -> None:
    with pytest.raises(BugError):
        encode(value)


def test_symbols_and_strings_are_the_same_key() -> None:
    """docs/protocol/amqp.md#symbols."""
    value, _ = decode(encode({Symbol("k"): 1}), 0)
    assert isinstance(value, dict)
    assert value["k"] == 1


def test_described_and_arrays_compare_by_content() -> None:
    assert Described(ULong(1), [2]) == Described(ULong(1), [2])
    assert Described(ULong(1), [2]) != Described(ULong(1), [3])
    assert Described(ULong(1), None) != 1
    assert AmqpArray(0x54, [Int(1)]) != AmqpArray(0x71, [Int(1)])
    assert AmqpArray(0x54, [Int(1)]) != [1]
    assert hash(Described(ULong(1), [2])) == hash(Described(ULong(1), [2]))
    assert hash(AmqpArray(0x54, [Int(1)])) == hash(AmqpArray(0x54, [Int(1)]))
    assert "0x54" in repr(AmqpArray(0x54, []))
    assert repr(Described(ULong(1), None)) == "Described(1, None)"
