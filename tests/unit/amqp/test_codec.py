"""What is written is read again, with its type; whatever is read is a value or one error."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polybus.amqp.codec import decode, decode_within, encode, encode_into, long8, skip, skip_within
from polybus.amqp.types import AmqpArray, Described, Int, Symbol, UInt
from polybus.errors import ProtocolError
from tests.unit.amqp.values import VALUES


def same(one: object, other: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return same(list(one.items()), list(other.items())) if one else not other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(same, one, other))
    if isinstance(one, Described) and isinstance(other, Described):
        return same(one.descriptor, other.descriptor) and same(one.value, other.value)
    if isinstance(one, AmqpArray) and isinstance(other, AmqpArray):
        return one.constructor == other.constructor and same(one.items, other.items)
    return one == other


@settings(deadline=None)
@given(VALUES)
@example(AmqpArray(0xF0, [AmqpArray(0x54, [Int(1)]), AmqpArray(0x54, [])]))
@example(AmqpArray(0xD0, [[UInt(1), "x"], []]))
@example(AmqpArray(0xC0, [[UInt(1), "x"], []]))
@example(AmqpArray(0xD1, [{Symbol("k"): 1}, {}]))
@example(AmqpArray(0xC1, [{Symbol("k"): 1}, {}]))
@example(AmqpArray(0xA1, ["a", "b"], Symbol("d")))
@example(AmqpArray(0x42, [False, False]))
def test_values_come_back_as_they_went(value) -> None:
    raw = encode(value)
    back, end = decode(raw, 0)
    assert end == len(raw)
    assert same(value, back)
    assert encode(back) == raw


@settings(deadline=None)
@given(VALUES, st.binary(max_size=5), st.binary(max_size=5))
def test_values_are_found_among_other_bytes(value, before, after) -> None:
    out = bytearray(before)
    encode_into(out, value)
    end = len(out)
    raw = bytes(out) + after
    assert skip(raw, len(before)) == end
    assert decode(raw, len(before))[1] == end
    assert skip_within(raw, len(before), end) == end
    assert decode_within(raw, len(before), end)[1] == end


@settings(deadline=None)
@given(VALUES, st.data())
def test_cut_values_are_errors(value, data) -> None:
    raw = encode(value)
    end = data.draw(st.integers(min_value=0, max_value=len(raw) - 1))
    for read in (decode, skip):
        with pytest.raises(ProtocolError):
            read(raw[:end], 0)
    with pytest.raises(ProtocolError):
        decode_within(raw, 0, end)
    with pytest.raises(ProtocolError):
        skip_within(raw, 0, end)


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, (1 << 63) - 1, -(1 << 63)])
def test_long8_is_always_wide(number) -> None:
    raw = encode(long8(number))
    assert (raw[0], len(raw)) == (0x81, 9)
    assert decode(raw, 0) == (number, 9)
