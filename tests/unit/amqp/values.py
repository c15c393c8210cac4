"""Generated AMQP values of every type."""

from __future__ import annotations

from hypothesis import strategies as st

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


def between(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(min_value=low, max_value=high)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)

UNSIGNED = [
    between(0, 255).map(UByte),
    between(0, 65_535).map(UShort),
    between(0, 4_294_967_295).map(UInt),
    between(0, 18_446_744_073_709_551_615).map(ULong),
]
SIGNED = [
    between(-128, 127).map(Byte),
    between(-32_768, 32_767).map(Short),
    between(-(1 << 31), (1 << 31) - 1).map(Int),
    between(-(1 << 63), (1 << 63) - 1),
    between(-(1 << 63), (1 << 63) - 1).map(Timestamp),
]
FLOATS = [
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float32),
]
DECIMALS = [
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
]
TEXTS = [
    TEXT,
    ASCII.map(Symbol),
    st.binary(max_size=300),
    st.characters(exclude_categories=["Cs"]).map(Char),
]
SCALARS = st.one_of(st.none(), st.booleans(), st.uuids(), *UNSIGNED, *SIGNED, *FLOATS, *DECIMALS, *TEXTS)
KEYS = st.one_of(TEXT, ASCII.map(Symbol), between(0, 1 << 63).map(ULong), st.binary(max_size=30))

ARRAYS = st.one_of(
    st.lists(ASCII.map(Symbol), max_size=20).map(lambda items: AmqpArray(0xB3, list(items))),
    st.lists(TEXT, max_size=20).map(lambda items: AmqpArray(0xB1, list(items))),
    st.lists(st.binary(max_size=255), max_size=20).map(lambda items: AmqpArray(0xA0, list(items))),
    st.lists(between(-(1 << 63), (1 << 63) - 1), max_size=50).map(lambda items: AmqpArray(0x81, list(items))),
    st.lists(between(0, (1 << 32) - 1).map(UInt), max_size=50).map(lambda items: AmqpArray(0x70, list(items))),
    st.lists(st.uuids(), max_size=20).map(lambda items: AmqpArray(0x98, list(items))),
    st.lists(st.booleans(), max_size=20).map(lambda items: AmqpArray(0x56, list(items))),
)


def compounds(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(inner, max_size=8),
        st.dictionaries(KEYS, inner, max_size=6),
        st.builds(Described, st.one_of(between(0, 1 << 40).map(ULong), ASCII.map(Symbol)), inner),
    )


VALUES: st.SearchStrategy[object] = st.recursive(st.one_of(SCALARS, ARRAYS), compounds, max_leaves=20)
