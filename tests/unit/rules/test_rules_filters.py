"""Correlation filters and what the kinds of filter have in common."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest
from rules_kit import NOON, SOME_ID, Message

from polybus.errors import ArgumentError
from polybus.rules import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter, Value

FIELDS = {
    "correlation_id": "correlationid",
    "message_id": "messageid",
    "to": "to",
    "reply_to": "replyto",
    "label": "label",
    "session_id": "sessionid",
    "reply_to_session_id": "replytosessionid",
    "content_type": "contenttype",
}


@pytest.mark.parametrize(("field", "name"), FIELDS.items())
def test_each_field_is_compared_exactly(field: str, name: str) -> None:
    wanted = CorrelationFilter(**{field: "Value"})  # type: ignore[arg-type]
    assert wanted.matches(Message(**{name: "Value"}))
    assert not wanted.matches(Message(**{name: "value"}))
    assert not wanted.matches(Message(**{name: "Values"}))
    assert not wanted.matches(Message())
    assert not wanted.matches(Message({name: "Value"}))
    assert wanted.fields() == {name: "Value"}


def test_all_that_is_given_must_be_equal() -> None:
    wanted = CorrelationFilter(label="a", to="b", properties={"x": 1})
    assert wanted.matches(Message({"x": 1, "y": 2}, label="a", to="b"))
    assert not wanted.matches(Message({"x": 1}, label="a", to="c"))
    assert not wanted.matches(Message({"x": 2}, label="a", to="b"))
    assert not wanted.matches(Message({}, label="a", to="b"))
    assert not wanted.matches(Message({"X": 1}, label="a", to="b")), "names are exact here"


@pytest.mark.parametrize(
    ("wanted", "found", "equal"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, Decimal(1), True),
        (1.5, Decimal("1.5"), True),
        (2**64, Decimal(2**64), True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (False, True, False),
        (0, False, False),
        ("1", 1, False),
        ("a", "a", True),
        ("a", "A", False),
        ("a", b"a", False),
        (b"a", b"a", True),
        (SOME_ID, SOME_ID, True),
        (SOME_ID, str(SOME_ID), False),
        (NOON, NOON, True),
        (NOON.replace(tzinfo=None), NOON, True),
        (NOON, NOON + timedelta(seconds=1), False),
        (timedelta(hours=1), timedelta(minutes=60), True),
        (math.nan, math.nan, False),
        (Decimal("NaN"), Decimal("NaN"), False),
        (1, Decimal("sNaN"), False),
        (2**53 + 1, float(2**53), False),
        ("a", None, False),
    ],
)
def test_properties_are_compared_by_type_and_value(wanted: Value, found: Value, equal: bool) -> None:
    assert CorrelationFilter(properties={"x": wanted}).matches(Message({"x": found})) is equal


def test_an_empty_correlation_filter_is_refused() -> None:
    for empty in ({}, {"properties": {}}, {"properties": {"x": None}}):
        with pytest.raises(ArgumentError, match="at least one field or property"):
            CorrelationFilter(**empty)


def test_an_empty_string_is_a_value() -> None:
    assert CorrelationFilter(label="").matches(Message(label=""))
    assert not CorrelationFilter(label="").matches(Message())


def test_a_property_of_another_type_is_refused() -> None:
    with pytest.raises(ArgumentError, match="The property 'x' has a value of type list"):
        CorrelationFilter(properties={"x": []})


def test_texts() -> None:
    assert str(TrueFilter()) == "1=1"
    assert str(FalseFilter()) == "1=0"
    assert SqlFilter("a = 1").text == "a = 1"
    assert repr(SqlFilter("a = 1")) == "SqlFilter('a = 1')"
    properties = {"a]b": 1, "flag": True, "raw": b"\x01", "no": 1.5}
    assert (
        CorrelationFilter(label="it's", to="x", properties=properties).text
        == "sys.to = 'x' AND sys.label = 'it''s' AND [a]]b] = 1 AND [flag] = TRUE AND [raw] = '01' AND [no] = 1.5"
    )


def test_filters_are_equal_by_what_they_say() -> None:
    alike = [
        [TrueFilter(), TrueFilter()],
        [FalseFilter(), FalseFilter()],
        [SqlFilter("a = 1"), SqlFilter("a = 1")],
        [SqlFilter("a = 1", ignore_case=True), SqlFilter("a = 1", ignore_case=True)],
        [SqlFilter("a = @p", {"p": 1}), SqlFilter("a = @p", {"p": 1})],
        [SqlFilter("a = @p", {"p": 1.0}), SqlFilter("a = @p", {"p": 1.0})],
        [CorrelationFilter(label="x"), CorrelationFilter(label="x")],
        [CorrelationFilter(properties={"a": 1, "b": 2}), CorrelationFilter(properties={"b": 2, "a": 1})],
        [CorrelationFilter(properties={"a": True}), CorrelationFilter(properties={"a": True})],
    ]
    for at, (one, other) in enumerate(alike):
        assert one == other
        assert hash(one) == hash(other)
        assert all(one != different for different, _ in alike[at + 1 :])


def test_what_is_the_same_for_every_message_is_known_beforehand() -> None:
    assert TrueFilter().verdict is True
    assert FalseFilter().verdict is False
    assert SqlFilter("1=1").verdict is True
    assert SqlFilter("1=0 OR 2>1").verdict is True
    assert SqlFilter("'a' LIKE '%' AND @p IN (1, 2)", {"p": 2}).verdict is True
    assert SqlFilter("NULL").verdict is False
    assert SqlFilter("NOT TRUE").verdict is False
    assert SqlFilter("a = 1").verdict is None
    assert SqlFilter("1/0 = 1").verdict is None, "it fails on each message"
    assert SqlFilter("newid() = newid()").verdict is None
    assert CorrelationFilter(label="x").verdict is None
    assert TrueFilter().matches(Message())
    assert not FalseFilter().matches(Message())
