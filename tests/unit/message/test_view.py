from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from polybus.amqp.types import Char, Decimal64, Decimal128, Float32, Int, Symbol, Timestamp, UByte, ULong
from polybus.message.message import Message, build
from polybus.message.overlay import Overlay
from polybus.message.rendering import Marks
from polybus.message.view import RuleValue, View, rule_value

WHEN = datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)
WHEN_MS = 1_700_000_000_001


def test_system_properties_by_name() -> None:
    message = build(
        b"x" * 10,
        message_id="m",
        session_id="s",
        subject="l",
        correlation_id="c",
        content_type="t",
        to="to",
        reply_to="r",
        reply_to_session_id="rs",
        ttl_ms=5000,
        scheduled_ms=WHEN_MS,
    )
    view = View(message, Marks(5, WHEN_MS, 3, 2))
    expected: dict[str, RuleValue] = {
        "messageid": "m",
        "sessionid": "s",
        "partitionkey": "s",
        "label": "l",
        "correlationid": "c",
        "contenttype": "t",
        "to": "to",
        "replyto": "r",
        "replytosessionid": "rs",
        "timetolive": timedelta(seconds=5),
        "expiresatutc": WHEN + timedelta(seconds=5),
        "enqueuedtimeutc": WHEN,
        "scheduledenqueuetimeutc": WHEN,
        "sequencenumber": 5,
        "enqueuedsequencenumber": 3,
        "deliverycount": 2,
        "size": message.size,
        "state": "Active",
        "viapartitionkey": None,
        "deadlettersource": None,
        "locktoken": None,
    }
    for name, value in expected.items():
        assert (name, view.system(name)) == (name, value)
        assert type(view.system(name)) is type(value)


def test_what_is_not_set_is_none() -> None:
    view = View(build(b""), Marks(1, 1))
    for name in ("messageid", "sessionid", "label", "timetolive", "expiresatutc", "scheduledenqueuetimeutc"):
        assert view.system(name) is None


def test_the_overlay_is_seen() -> None:
    overlay = Overlay()
    overlay.change({"a": 2, "b": None})
    overlay.fields = {3: "new", 10: None}
    overlay.dead_letter_source, overlay.ttl_ms = "q", 1000
    view = View(build(b"", subject="old", session_id="s", application={"a": 1, "b": 1}), Marks(1, 1, overlay=overlay))
    assert view.user() == {"a": 2}
    assert (view.system("label"), view.system("sessionid"), view.system("deadlettersource")) == ("new", None, "q")
    assert view.system("timetolive") == timedelta(seconds=1)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, None),
        (True, True),
        (Int(-5), -5),
        (UByte(5), 5),
        (ULong((1 << 63) - 1), (1 << 63) - 1),
        (ULong(1 << 63), Decimal(1 << 63)),
        (Float32(1.5), 1.5),
        ("text", "text"),
        (Symbol("symbol"), "symbol"),
        (Char("c"), "c"),
        (b"bytes", b"bytes"),
        (uuid.UUID(int=5), uuid.UUID(int=5)),
        (Timestamp(WHEN_MS), WHEN),
        (Timestamp(-(1 << 63)), datetime(1, 1, 1, tzinfo=UTC)),
        (Timestamp((1 << 63) - 1), datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (Decimal64(bytes(8)), Decimal("0E-398")),
        (Decimal128(bytes.fromhex("303c00000000000000000000000003e7")), Decimal("9.99")),
        ([1], None),
        ({"a": 1}, None),
    ],
)
def test_values_in_the_types_of_the_rules(value: object, seen: RuleValue) -> None:
    assert rule_value(value) == seen
    assert type(rule_value(value)) is type(seen)


def test_a_time_to_live_beyond_all_calendars_has_an_end() -> None:
    view = View(build(b"", ttl_ms=1 << 61), Marks(1, WHEN_MS))
    assert view.system("expiresatutc") == datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    assert isinstance(view.system("timetolive"), timedelta)


def test_ids_that_are_no_strings_are_text() -> None:
    from polybus.amqp.codec import encode

    raw = b"\x00\x53\x73" + encode([ULong(7), None, None, None, None, uuid.UUID(int=1)]) + b"\x00\x53\x75\xa0\x00"
    view = View(Message(raw), Marks(1, 1))
    assert (view.system("messageid"), view.system("correlationid")) == ("7", str(uuid.UUID(int=1)))
