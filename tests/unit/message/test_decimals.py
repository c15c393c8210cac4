"""AMQP's decimals: zero, one, the largest, the smallest, and what is no number, in each of the three widths."""

from __future__ import annotations

from decimal import Decimal

import pytest

from polybus.amqp.types import Decimal128
from polybus.message.decimals import decimal_of
from polybus.message.message import build
from polybus.message.rendering import Marks
from polybus.message.view import View
from polybus.rules import SqlFilter


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        ("32800000", "0E0"),
        ("32800001", "1"),
        ("b2800001", "-1"),
        ("31800085", "1.33"),
        ("77f8967f", "9999999E90"),
        ("6cb8967f", "9999999"),
        ("00000001", "1E-101"),
        ("31c0000000000000", "0E0"),
        ("31c0000000000001", "1"),
        ("b1a000000000000f", "-1.5"),
        ("77fb86f26fc0ffff", "9999999999999999E369"),
        ("30400000000000000000000000000000", "0E0"),
        ("30400000000000000000000000000001", "1"),
        ("b03c00000000000000000000000003e7", "-9.99"),
        ("5fffed09bead87c0378d8e63ffffffff", "9999999999999999999999999999999999E6111"),
        ("78000000", "Infinity"),
        ("f800000000000000", "-Infinity"),
    ],
)
def test_the_number_in_the_bytes(raw: str, number: str) -> None:
    assert decimal_of(bytes.fromhex(raw)) == Decimal(number)


@pytest.mark.parametrize("raw", ["7c000000", "7e00000000000000", "fc000000000000000000000000000000"])
def test_what_is_no_number(raw: str) -> None:
    assert decimal_of(bytes.fromhex(raw)).is_nan()


def test_more_digits_than_there_may_be_are_zero() -> None:
    assert decimal_of(bytes.fromhex("6cb89680")) == 0


def test_a_filter_compares_a_decimal() -> None:
    price = Decimal128(bytes.fromhex("303c00000000000000000000000003e7"))
    view = View(build(b"x", application={"price": price}), Marks(1, 0, 1, 0, 0, 0, None))
    assert SqlFilter("price > 9 AND price < 10 AND price = 9.99").matches(view)
