"""Hostile text and values: nothing escapes but the two errors of rules, and the work stays linear."""

from __future__ import annotations

from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.errors import RuleSyntaxError
from polybus.limits import RULE_TEXT_CHARACTERS
from polybus.rules import REMOVED, RuleEvaluationError, SqlAction, SqlFilter
from polybus.rules.convert import converted
from polybus.rules.view import SYSTEM_PROPERTIES

WORDS = [
    *"abcx_@'\"[]()=<>!+-*/%,.;#?\\\0\u00e9\u0131\U0001f600 \t\n",
    *["AND ", "OR ", "NOT ", "IN ", "LIKE ", "ESCAPE ", "IS ", "NULL ", "EXISTS", "TRUE ", "FALSE "],
    *["SET ", "REMOVE ", "sys.", "user.", "sys.Label ", "sys.Size ", "newid()", "p(", "property(", "@p "],
    *["'a'", "'%_'", "1", "0", "1.5", "1e3", "9223372036854775807 ", "<>", "<=", ">=", "!=", "[a b]", '"q"'],
]
# Weighted so that many of the texts are nearly right.
texts = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map("".join))

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
)
messages = st.dictionaries(st.sampled_from(["a", "b", "c", "x", "A", "a b", "q"]), values, max_size=6)


class Message:
    def __init__(self, user: dict[str, Any], system: Any = None) -> None:
        self._user = user
        self._system = system

    def system(self, name: str) -> Any:
        assert name in SYSTEM_PROPERTIES.values()
        return self._system

    def user(self) -> dict[str, Any]:
        return self._user


class Ids:
    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> UUID:
        self.taken += 1
        return UUID(int=self.taken)


ANSWERS = (
    True,
    False,
    "ArgumentOutOfRangeException",
    "DivideByZeroException",
    "FilterException",
    "OverflowException",
)


def made(text: str, value: Any) -> SqlFilter | RuleSyntaxError:
    try:
        return SqlFilter(text, {"@p": value})
    except RuleSyntaxError as refusal:
        return refusal


def answer(asked: SqlFilter, message: Message) -> bool | str:
    try:
        return asked.matches(message, Ids())
    except RuleEvaluationError as failure:
        return failure.reason


@settings(max_examples=600, deadline=None)
@given(texts, messages, values)
def test_a_filter_from_any_text_fails_only_as_filters_do(text: str, message: dict[str, Any], value: Any) -> None:
    asked = made(text, value)
    if isinstance(asked, RuleSyntaxError):
        assert 1 <= asked.position <= len(text) + 1
        assert asked.description.startswith(f"Column {asked.position}: found ")
    else:
        assert answer(asked, Message(message, value)) in ANSWERS


SHAPES = [
    "a {0} b = c",
    "a {1} b",
    "a = b {0} c OR a {1} b",
    "a IN (b, c {0} x)",
    "-a {1} b AND +b {1} c",
    "a LIKE b ESCAPE c",
    "a + b LIKE c",
    "p(a) {1} b OR p(a + b) IS NULL",
    "(a {0} b) {0} (c {0} x) {1} @p",
    "sys.Label {0} a {1} @p",
]


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from("+-*/%"),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    messages,
    values,
    st.booleans(),
)
def test_any_values_meet_in_any_operator(
    shape: str, sign: str, test: str, message: dict[str, Any], value: Any, ignore_case: bool
) -> None:
    asked = SqlFilter(shape.format(sign, test), {"@p": value}, ignore_case)
    assert answer(asked, Message(message, value)) in ANSWERS


@settings(max_examples=400, deadline=None)
@given(texts.map(lambda text: "SET a = " + text) | texts, messages, values)
def test_an_action_from_any_text_fails_only_as_actions_do(text: str, message: dict[str, Any], value: Any) -> None:
    before = dict(message)
    try:
        made = SqlAction(text, {"@p": value}).apply(Message(message, value), Ids())
    except (RuleSyntaxError, RuleEvaluationError):
        return
    finally:
        assert list(message) == list(before)
    assert all(change.scope in ("sys", "user") for change in made)


@settings(max_examples=400, deadline=None)
@given(values, values)
def test_set_keeps_the_type_or_the_value(present: Any, value: Any) -> None:
    made = SqlAction("SET a = b").apply(Message({"a": present, "b": value}))
    if value is None:
        assert made == []
        return
    found = made[0].value
    assert found is not REMOVED
    assert type(found) is type(present) or found is value


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=12) | st.from_regex(r"-?(\d{1,4}\.)?\d\d?:\d\d?(:\d\d?(\.\d{1,8})?)?", fullmatch=True))
def test_text_converts_or_does_not(text: str) -> None:
    for sample in (True, 1, 1.5, Decimal(1), UUID(int=0)):
        found = converted(text, type(sample))
        assert found is None or type(found) is type(sample)


@settings(max_examples=200, deadline=None)
@given(st.timedeltas(timedelta(days=-10_675_199), timedelta(days=10_675_199)))
def test_a_duration_survives_as_text(span: Any) -> None:
    assert converted(converted(span, str), type(span)) == span


@pytest.mark.parametrize(
    ("part", "joint", "ids"),
    [
        ("newid() = newid()", " OR ", 2),
        ("newid() <> newid()", " AND ", 2),
        ("newid()", " + ", 1),
        ("NOT(newid() = a)", " OR ", 1),
        ("(newid() IN (newid(), a))", " OR ", 2),
    ],
)
def test_each_part_is_evaluated_once(part: str, joint: str, ids: int) -> None:
    """Counted by what newid() takes: twice the text, twice the work, and no more."""
    for count in (5, 10, 20):
        source = Ids()
        text = joint.join([part] * count) + (" = a" if part == "newid()" else "")
        SqlFilter(text).matches(Message({"a": "x"}), source)
        assert source.taken == ids * count


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["newid() = a", "a = 1", "NOT (", "(", "newid() + newid() = b"]), max_size=12), st.data()
)
def test_no_part_is_evaluated_twice(parts: list[str], data: st.DataObject) -> None:
    text = ""
    opened = 0
    for part in parts:
        opened += part.count("(") - part.count(")")
        text += (
            part if part.endswith("(") and part != "newid()" else part + data.draw(st.sampled_from([" AND ", " OR "]))
        )
    text += "TRUE" + ")" * opened
    source = Ids()
    SqlFilter(text).matches(Message({"a": 1}), source)
    assert source.taken <= text.count("newid()")


def test_the_longest_chains_are_not_deep() -> None:
    for text in (
        "a=1 OR " * 145 + "a=2",
        "a=" + "1+" * 500 + "1",
        "a=" + "1*" * 500 + "1",
        "NOT a=1 AND " * 80 + "a",
    ):
        assert len(text) <= RULE_TEXT_CHARACTERS
        SqlFilter(text).matches(Message({"a": 3}))
