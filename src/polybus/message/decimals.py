"""AMQP's decimals as numbers: the bus carries their bytes and only rules calculate with them.

IEEE 754-2008 in its binary integer encoding (AMQP 1.0 §1.6.13 to §1.6.15): a sign, an exponent with a bias, and a
coefficient that is a plain integer; a coefficient that needs one bit more has its exponent two bits further on.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

_FORMATS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}
"""By the number of bytes: bits of the exponent, its bias, digits of the coefficient."""


def decimal_of(raw: bytes) -> Decimal:
    """The number in four, eight or sixteen bytes."""
    exponent_bits, bias, digits = _FORMATS[len(raw)]
    number = int.from_bytes(raw, "big")
    width = 8 * len(raw) - 1
    sign = "-" if number >> width else ""
    kind = number >> width - 5 & 0b11111
    if kind == 0b11111:
        return Decimal("NaN")
    if kind == 0b11110:
        return Decimal(sign + "Infinity")
    below = width - exponent_bits
    coefficient = 0
    if kind >> 3 == 0b11:
        below -= 2
        coefficient = 0b100 << below
    exponent = (number >> below & (1 << exponent_bits) - 1) - bias
    coefficient |= number & (1 << below) - 1
    if coefficient >= 10**digits:
        coefficient = 0  # not canonical, which means zero
    return Decimal(f"{sign}{coefficient}E{exponent}")
