"""What a sender may write over HTTP and what a receiver reads: properties, types, headers, bodies."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.amqp.types import Symbol, Timestamp
from polybus.errors import ArgumentError
from polybus.gateway.http.header_names import is_custom, is_header_name, is_header_text
from polybus.gateway.http.properties import (
    INFINITE_SECONDS,
    broker_properties,
    custom_properties,
    json_properties,
    message_from,
)
from polybus.gateway.http.rendering import http_date, message_headers
from polybus.message.columns import body_of
from polybus.message.message import Message, build
from polybus.message.overlay import Overlay
from polybus.message.rendering import STATE_DEFERRED, Marks

MOMENT_MS = 1_299_228_577_000


def read(properties: object) -> Message:
    return message_from(b"x", properties, {}, None)


def headers_of(message: Message, marks: Marks | None = None, expires_ms: int = 0) -> dict[str, str]:
    found = message_headers(message, marks or Marks(5, 1_000), expires_ms=expires_ms, delivery_count=1, token=None)
    return dict(found)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("MessageId", "message_id"), ("SessionId", "session_id"), ("PartitionKey", "partition_key")],
)
@pytest.mark.parametrize(("given_value", "expected"), [("x", "x"), (5, "5"), (1.5, "1.5"), ("", "")])
def test_texts_are_read_from_what_clients_write(
    name: str, attribute: str, given_value: object, expected: str
) -> None:
    assert getattr(read({name: given_value}), attribute) == expected
    assert getattr(read({name.lower(): given_value}), attribute) == expected


@pytest.mark.parametrize("value", [True, {}, [], [1]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="MessageId"):
        read({"MessageId": value})


@pytest.mark.parametrize(
    ("value", "ttl_ms"),
    [
        (1, 1_000),
        (0.25, 250),
        (0.0001, 1),
        ("90", 90_000),
        (" 1.5 ", 1_500),
        ("1e3", 1_000_000),
        (5_000_000_000, 5_000_000_000_000),
        (INFINITE_SECONDS, -1),
        (1e300, -1),
        (None, -1),
    ],
)
def test_a_time_to_live_is_seconds(value: object, ttl_ms: int) -> None:
    assert read({"TimeToLive": value}).ttl_ms == ttl_ms


@pytest.mark.parametrize("value", [0, -1, True, "soon", "", "nan", "1,5", {}, float("inf")])
def test_a_time_to_live_must_be_one(value: object) -> None:
    with pytest.raises(ArgumentError, match="TimeToLive"):
        read({"TimeToLive": value})


@pytest.mark.parametrize(
    ("value", "ttl_ms"),
    [("00:00:40", 40_000), ("1.02:03:04", 93_784_000), ("0.00:00:00.5", 500), ("10675199.02:48:05.4775807", -1)],
)
def test_a_time_span_is_days_and_hours(value: str, ttl_ms: int) -> None:
    assert read({"TimeToLiveTimeSpan": value}).ttl_ms == ttl_ms


@pytest.mark.parametrize("value", ["", "40", "00:00:00", "1:2", "x.00:00:01", 5, "-1.00:00:00"])
def test_a_time_span_must_be_one(value: object) -> None:
    with pytest.raises(ArgumentError, match="TimeToLiveTimeSpan"):
        read({"TimeToLiveTimeSpan": value})


@pytest.mark.parametrize(
    "value",
    [
        "Fri, 04 Mar 2011 08:49:37 GMT",
        "Friday, 04-Mar-11 08:49:37 GMT",
        "2011-03-04T08:49:37Z",
        "2011-03-04T08:49:37.000",
        "2011-03-04T09:49:37+01:00",
    ],
)
def test_a_schedule_is_a_date_of_http_or_of_iso(value: str) -> None:
    assert read({"ScheduledEnqueueTimeUtc": value}).scheduled_ms == MOMENT_MS


@pytest.mark.parametrize("value", [5, "", "tomorrow", "Fri, 99 Mar 2011 08:49:37 GMT", {}])
def test_a_schedule_must_be_a_date(value: object) -> None:
    with pytest.raises(ArgumentError, match="ScheduledEnqueueTimeUtc"):
        read({"ScheduledEnqueueTimeUtc": value})


def test_unknown_and_read_only_keys_are_ignored() -> None:
    message = read(
        {"DeliveryCount": {}, "SequenceNumber": "x", "LockToken": 5, "Colour": [], "ForcePersistence": True}
    )
    assert message.message_id is not None


@pytest.mark.parametrize("header", ["", "x", "[1]", "5", "null2", "{", '{"a":NaN}', "[" * 100_000])
def test_broker_properties_must_be_an_object(header: str) -> None:
    with pytest.raises(ArgumentError):
        message_from(b"", broker_properties(header), {}, None)


def test_broker_properties_may_be_utf8_or_latin1() -> None:
    text = '{"Label": "gr\u00fcn"}'
    for raw in (text.encode(), text.encode("latin-1")):
        assert broker_properties(raw.decode("latin-1")) == {"Label": "gr\u00fcn"}
    assert broker_properties(None) is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"text"', "text"),
        ('""', ""),
        ('"5"', "5"),
        ('"true"', "true"),
        ('"a\\"b\\\\c"', 'a"b\\c'),
        ('"C:\\temp"', "C:\\temp"),
        ('"Fri, 04 Mar 2011 08:49:37 GMT"', MOMENT_MS),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", 9.223372036854775808e18),
        ("1.5", 1.5),
        ("-1e3", -1000.0),
        (".5", 0.5),
        ("1e999", "1e999"),
        ("nan", "nan"),
        ("0x10", "0x10"),
        ("", ""),
        ('"', '"'),
        ("bare words", "bare words"),
    ],
)
def test_the_shape_of_a_header_is_its_type(written: str, value: object) -> None:
    found = custom_properties([("Name", written.encode())])
    assert found == {"Name": value}
    assert type(found["Name"]) is (Timestamp if value == MOMENT_MS else type(value))


@pytest.mark.parametrize("written", ["bare", "True", "nan", "1e999", ""])
def test_strictness_refuses_bare_words(written: str) -> None:
    with pytest.raises(ArgumentError, match="Name"):
        custom_properties([("Name", written.encode())], strict=True)


def test_of_a_header_that_comes_twice_the_first_counts() -> None:
    assert custom_properties([("A", b"1"), ("a", b"2"), ("b", b"3")]) == {"A": 1, "b": 3}


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "CONTENT-TYPE",
        "content-foo",
        "Authorization",
        "BrokerProperties",
        "x-ms-retrypolicy",
        "Accept-Charset",
        "Set-Cookie",
        "Access-Control-Allow-Origin",
        "Location",
        "traceparent",
        "If-None-Match",
        "X-Forwarded-For",
    ],
)
def test_headers_of_http_are_not_custom(name: str) -> None:
    assert not is_custom(name)
    assert custom_properties([(name, b"1")]) == {}
    assert headers_of(build(b"x", application={name: "1"})).get(name) != '"1"'


@pytest.mark.parametrize("value", [{"a": [1]}, {"a": {}}, {"a": 1 << 64}, [], "x", 5])
def test_user_properties_are_plain(value: object) -> None:
    with pytest.raises(ArgumentError):
        json_properties(value)


def test_what_goes_out_comes_in_the_same() -> None:
    properties: dict[str, object] = {"s": 'a"\\b', "i": -5, "f": 1.5, "t": True, "d": Timestamp(MOMENT_MS), "e": ""}
    shown = headers_of(build(b"x", application=properties))
    again = custom_properties([(name, value.encode()) for name, value in shown.items()])
    assert again == properties


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=5))
def test_whatever_a_property_is_its_header_is_safe(properties: dict[str, str]) -> None:
    shown = headers_of(build(b"x", application=dict(properties)))
    for name, value in shown.items():
        assert is_header_name(name)
        assert is_header_text(value)
        assert not set(value) & {"\r", "\n", "\x00"}
    for name, value in properties.items():
        if is_header_name(name) and is_custom(name) and is_header_text(f'"{value}"'):
            again = custom_properties([(name, shown[name].encode())])[name]
            assert again == value or isinstance(again, Timestamp)


def test_kinds_that_a_header_has_no_form_for() -> None:
    guid = UUID(int=5)
    shown = headers_of(build(b"x", application={"g": guid, "b": b"\x00", "n": None}))
    assert shown["g"] == f'"{guid}"'
    assert "b" not in shown
    assert "n" not in shown


def test_the_brokers_own_properties() -> None:
    overlay = Overlay()
    overlay.dead_letter_source = "orders"
    overlay.fields[3] = "changed"
    marks = Marks(7, MOMENT_MS, 3, 2, STATE_DEFERRED, 0, overlay)
    message = build(b"x", subject="subject", correlation_id="c", scheduled_ms=MOMENT_MS)
    shown = headers_of(message, marks, MOMENT_MS + 1_500)
    found = json.loads(shown["BrokerProperties"])
    assert found == {
        "CorrelationId": "c",
        "DeadLetterSource": "orders",
        "DeliveryCount": 1,
        "EnqueuedSequenceNumber": 3,
        "EnqueuedTimeUtc": "Fri, 04 Mar 2011 08:49:37 GMT",
        "Label": "changed",
        "MessageId": f"{3:032x}",
        "ScheduledEnqueueTimeUtc": "Fri, 04 Mar 2011 08:49:37 GMT",
        "SequenceNumber": 7,
        "State": "Deferred",
        "TimeToLive": 1.5,
    }
    assert ": " not in shown["BrokerProperties"].replace("GMT", "")


def test_dates_never_leave_the_calendar() -> None:
    assert http_date(1 << 60) == "Fri, 31 Dec 9999 23:59:59 GMT"


@pytest.mark.parametrize(
    ("sections", "body"),
    [
        (b"\x00\x53\x75\xa0\x02hi", b"hi"),
        (b"\x00\x53\x75\xb0\x00\x00\x00\x02hi", b"hi"),
        (b"\x00\x53\x75\xa0\x02hi\x00\x53\x75\xa0\x01!", b"hi!"),
        (b"\x00\x53\x77\xa1\x02hi", b"hi"),
        (b"\x00\x53\x77\xa0\x02hi", b"hi"),
        (b"\x00\x53\x77\x54\x05", b"5"),
        (b"\x00\x53\x77\x40", b"null"),
        (b"\x00\x53\x76\xc0\x03\x01\xa1\x00", b'[[""]]'),
        (b"", b""),
        (b"\x00\x53\x75\xa0\x02hi\x00\x53\x78\xc1\x01\x00", b"hi"),
    ],
)
def test_bodies_of_every_kind_become_bytes(sections: bytes, body: bytes) -> None:
    assert body_of(Message(sections)) == body


def test_a_content_type_that_no_header_can_carry_is_not_shown() -> None:
    message = build(b"x", content_type="text/plain\r\nEvil: 1")
    assert headers_of(message)["Content-Type"] == "application/atom+xml;type=entry;charset=utf-8"
    assert headers_of(build(b"x", content_type="text/plain"))["Content-Type"] == "text/plain"
    assert isinstance(build(b"x", content_type="a").properties()[6], Symbol)
