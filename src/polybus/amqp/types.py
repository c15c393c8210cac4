"""The AMQP 1.0 types that Python has no word for, so that a value decoded and encoded again keeps its type.

Natural Python stands for itself: None, bool, int (long), float (double), bytes (binary), str (string),
uuid.UUID, list and dict. Everything else is a thin subclass here, equal to its plain value. AMQP 1.0 §1.6.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(native_class=False)
class Symbol(str):
    """A symbolic value; equal to the string of the same text (docs/protocol/amqp.md#symbols). AMQP 1.0 §1.6.21."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Char(str):
    """One Unicode character. AMQP 1.0 §1.6.16."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class UByte(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class UShort(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class UInt(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class ULong(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class Byte(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class Short(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class Int(int):
    __slots__ = ()


@mypyc_attr(native_class=False)
class Long8(int):
    """A long that leaves in its 8-byte form whatever its size; see `codec.long8`."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Timestamp(int):
    """Milliseconds since the Unix epoch. AMQP 1.0 §1.6.17."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Float32(float):
    """A single-precision number; a plain float is a double."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Decimal32(bytes):
    """The four raw bytes of an IEEE 754 decimal, carried through; `message.decimals` tells the number."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Decimal64(bytes):
    __slots__ = ()


@mypyc_attr(native_class=False)
class Decimal128(bytes):
    __slots__ = ()


class Described:
    """A value with its descriptor. AMQP 1.0 §1.2."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return False
        return self.descriptor == other.descriptor and self.value == other.value

    def __hash__(self) -> int:
        return hash((Described, str(self.descriptor)))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class AmqpArray:
    """Items of one constructor; `descriptor` is None when they are not described. AMQP 1.0 §1.6.24."""

    __slots__ = ("constructor", "descriptor", "items")

    def __init__(self, constructor: int, items: list[object], descriptor: object = None) -> None:
        self.constructor = constructor
        self.items = items
        self.descriptor = descriptor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AmqpArray):
            return False
        return (
            self.constructor == other.constructor
            and self.descriptor == other.descriptor
            and self.items == other.items
        )

    def __hash__(self) -> int:
        return hash((AmqpArray, self.constructor, len(self.items)))

    def __repr__(self) -> str:
        return f"AmqpArray(0x{self.constructor:02x}, {self.items!r})"


def symbol_array(names: list[str]) -> AmqpArray:
    """The array of sym32 that peers expect wherever a `multiple` symbol field is sent (docs/protocol/amqp.md#sasl)."""
    items: list[object] = [Symbol(name) for name in names]
    return AmqpArray(0xB3, items)


def symbols(value: object) -> list[str]:
    """The names in a `multiple` symbol field, which may be null, one symbol or an array. AMQP 1.0 §1.4."""
    if isinstance(value, AmqpArray):
        return [str(item) for item in value.items if isinstance(item, str)]
    return [str(value)] if isinstance(value, str) else []
