"""SQL actions: what is changed, in which type, in which order, and what fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from rules_kit import NOON, SOME_ID, Ids, Message

from polybus.errors import BugError
from polybus.rules import REMOVED, PropertyChange, RuleEvaluationError, SqlAction, Value


def changes(text: str, user: dict[str, Value] | None = None, **system: Value) -> dict[str, object]:
    """The changes by name, system properties with their prefix."""
    made = SqlAction(text).apply(Message(user, **system), Ids())
    return {("sys." if change.scope == "sys" else "") + change.name: change.value for change in made}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET a = 1", {"a": 1}),
        ("set user.a = 'x'", {"a": "x"}),
        ("SET [a b] = 1.5", {"a b": 1.5}),
        ("SET a = TRUE;", {"a": True}),
        ("SET a = 1; SET b = 2", {"a": 1, "b": 2}),
        ("SET a = 1, SET b = 2", {"a": 1, "b": 2}),
        ("SET a = 1;, SET b = 2;", {"a": 1, "b": 2}),
        ("SET a = 1 SET b = 2 REMOVE color", {"a": 1, "b": 2, "color": REMOVED}),
        ("SET a = quantity * 2 + 1", {"a": 41}),
        ("SET a = color + '-' + color", {"a": "blue-blue"}),
        ("SET a = p('col' + 'or')", {"a": "blue"}),
        ("SET a = sys.Label", {"a": "order"}),
        ("SET a = newid()", {"a": Ids()()}),
        ("SET a = 1; SET a = a + 1; SET a = a * 10", {"a": 20}),
        ("SET a = 1; SET b = a + 1", {"a": 1, "b": 2}),
        ("SET a = 1; REMOVE a", {"a": REMOVED}),
        ("REMOVE color; SET b = color", {"color": REMOVED}),
        ("REMOVE color; SET color = 5", {"color": 5}),
        ("REMOVE missing", {}),
        ("SET a = missing", {}),
        ("SET a = missing + 1", {}),
        ("SET a = color - 1", {}),
        ("SET color = missing", {}),
        ("SET a = NULL", {"a": None}),
        ("SET color = NULL", {"color": None}),
        ("SET color = NULL; SET b = color", {"color": None}),
        ("SET set = 1 REMOVE remove", {"set": 1}),
        ("SET COLOR = 'red'", {"color": "red"}),
        ("REMOVE Color", {"color": REMOVED}),
        ("SET sys.Label = 'new'", {"sys.label": "new"}),
        ("SET sys.Subject = 'new'; SET a = sys.Label", {"sys.label": "new", "a": "new"}),
        ("SET sys.To = 5", {"sys.to": "5"}),
        ("SET sys.SessionId = quantity", {"sys.sessionid": "20"}),
        ("SET sys.CorrelationId = newid()", {"sys.correlationid": str(Ids()())}),
        ("SET sys.Label = missing", {}),
        ("SET sys.Label = NULL", {"sys.label": REMOVED}),
        ("REMOVE sys.Label; SET a = sys.Label", {"sys.label": REMOVED}),
        ("SET sys.TimeToLive = '00:05:00'", {"sys.timetolive": timedelta(minutes=5)}),
        ("SET sys.TimeToLive = due - due", {"sys.timetolive": timedelta(0)}),
        ("SET sys.ScheduledEnqueueTimeUtc = due", {"sys.scheduledenqueuetimeutc": NOON}),
    ],
)
def test_action(text: str, expected: dict[str, object]) -> None:
    assert changes(text, {"color": "blue", "quantity": 20, "due": NOON}, label="order") == expected


LONG = "x" * 129


@pytest.mark.parametrize(
    ("present", "given", "expected"),
    [
        ("x", 5, "5"),
        ("x", 5.0, "5"),
        ("x", 5.25, "5.25"),
        ("x", True, "True"),
        ("x", Decimal("1.50"), "1.50"),
        ("x", SOME_ID, str(SOME_ID)),
        ("x", NOON, "2026-03-01T12:00:00+00:00"),
        ("x", timedelta(days=1, hours=2, microseconds=5), "1.02:00:00.0000050"),
        ("x", -timedelta(seconds=1), "-00:00:01"),
        ("x", b"\x01", b"\x01"),
        (1, 2.5, 2),
        (1, 3.5, 4),
        (1, Decimal("7.9"), 8),
        (1, "17", 17),
        (1, " -17 ", -17),
        (1, "17.5", "17.5"),
        (1, "1_7", "1_7"),
        (1, "x", "x"),
        (1, True, 1),
        (1, 1e300, 1e300),
        (1, float("nan"), "nan"),
        (1, Decimal("1E+999999"), Decimal("1E+999999")),
        (1, "9" * 5000, "9" * 5000),
        (1.5, 2, 2.0),
        (1.5, "2.5", 2.5),
        (1.5, True, 1.0),
        (1.5, Decimal("0.25"), 0.25),
        (1.5, "nan", "nan"),
        (Decimal(1), 2, Decimal(2)),
        (Decimal(1), 0.1, Decimal("0.1")),
        (Decimal(1), "0.10", Decimal("0.10")),
        (Decimal(1), float("inf"), "inf"),
        (True, 0, False),
        (True, 2, True),
        (True, "FALSE", False),
        (True, "no", "no"),
        (SOME_ID, str(SOME_ID).upper(), SOME_ID),
        (SOME_ID, "x", "x"),
        (NOON, "2026-03-01T12:00:00Z", NOON),
        (NOON, "2026-03-01T12:00:00", NOON),
        (NOON, "2026-03-01T14:00:00+02:00", NOON),
        (NOON, "soon", "soon"),
        (NOON, 5, 5),
        (timedelta(0), "1.02:03:04.5", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        (timedelta(0), "-00:01", -timedelta(minutes=1)),
        (timedelta(0), "24:00:00", "24:00:00"),
        (timedelta(0), "1:2:3:4", "1:2:3:4"),
        (timedelta(0), "9" * 5000 + ".00:00", "9" * 5000 + ".00:00"),
        (timedelta(0), "²:00:00", "²:00:00"),
        (b"x", "y", "y"),
        (None, "y", "y"),
    ],
)
def test_set_keeps_the_type_of_the_property_where_it_can(present: Value, given: Value, expected: Value) -> None:
    found = SqlAction("SET a = b").apply(Message({"a": present, "b": given}))[0].value
    assert type(found) is type(expected) or expected in ("nan", "inf")
    assert found == expected or str(found) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SET a = 1 / 0", "DivideByZeroException"),
        ("SET a = 9223372036854775807; SET a = a + 1", "OverflowException"),
        ("SET sys.TimeToLive = 5", "RuleActionException"),
        ("SET sys.TimeToLive = 'soon'", "RuleActionException"),
        ("SET sys.ScheduledEnqueueTimeUtc = TRUE", "RuleActionException"),
        ("SET sys.Label = raw", "RuleActionException"),
        ("SET sys.SessionId = long", "ArgumentOutOfRangeException"),
        ("SET sys.MessageId = long", "ArgumentOutOfRangeException"),
        ("SET a = long;" + "SET a = a + a;" * 10, "ArgumentOutOfRangeException"),
    ],
)
def test_action_fails(text: str, reason: str) -> None:
    with pytest.raises(RuleEvaluationError) as failure:
        SqlAction(text).apply(Message({"raw": b"\x00", "long": LONG}))
    assert failure.value.reason == reason


def test_other_strings_may_be_long() -> None:
    assert changes("SET sys.Label = long", {"long": LONG}) == {"sys.label": LONG}


def test_the_message_itself_is_not_touched() -> None:
    message = Message({"color": "blue", "size": 1}, label="old")
    SqlAction("SET color = 'red'; REMOVE size; SET new = 1; SET sys.Label = 'x'").apply(message)
    assert message.user() == {"color": "blue", "size": 1}
    assert message.system("label") == "old"


def test_parameters_of_an_action() -> None:
    action = SqlAction("SET a = @when", {"@when": datetime(2026, 1, 1)})
    assert action.apply(Message()) == [PropertyChange("user", "a", datetime(2026, 1, 1, tzinfo=UTC))]


def test_actions_and_changes_are_equal_by_what_they_say() -> None:
    assert SqlAction("SET a = @p", {"p": 1}) == SqlAction("SET a = @p", {"p": 1})
    assert SqlAction("SET a = @p", {"p": 1}) != SqlAction("SET a = @p", {"p": True})
    assert SqlAction("SET a = 1") != SqlAction("SET a = 2")
    assert hash(SqlAction("SET a = 1")) == hash(SqlAction("SET a = 1"))
    assert SqlAction("SET a = 1").text == "SET a = 1"
    assert PropertyChange("user", "a", 1) == PropertyChange("user", "a", 1)
    assert PropertyChange("user", "a", 1) != PropertyChange("user", "a", 1.0)
    assert PropertyChange("user", "a", REMOVED) != PropertyChange("user", "a", None)
    assert len({PropertyChange("sys", "label", "x"), PropertyChange("sys", "label", "x")}) == 1
    assert repr(PropertyChange("user", "a", REMOVED)) == "Change('user', 'a', REMOVED)"
    assert repr(SqlAction("SET a = 1")) == "SqlAction('SET a = 1')"


def test_new_ids_need_a_source() -> None:
    with pytest.raises(BugError, match="no source of ids"):
        SqlAction("SET a = newid()").apply(Message())
