"""What is sent arrives as it was: bodies, properties, headers, annotations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties

from tests.sdk.python.bus import Bus, receive_one
from tests.sdk.python.table import Table

table = Table("bodies")

ID = UUID("11111111-2222-3333-4444-555555555555")
TIME = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
TIME_MS = int(TIME.timestamp() * 1000)


def round_trip(bus: Bus, message: object):
    queue = bus.queue()
    queue.sender().send_messages(message)
    receiver = queue.receiver()
    received = receive_one(receiver)
    receiver.complete_message(received)
    return received


@table.behaviour()
def text_body(bus: Bus) -> None:
    received = round_trip(bus, ServiceBusMessage("grüße, 世界"))
    assert received.body_type is AmqpMessageBodyType.DATA
    assert b"".join(received.body).decode() == "grüße, 世界"
    assert str(received) == "grüße, 世界"


@table.behaviour()
def binary_body(bus: Bus) -> None:
    body = bytes(range(256))
    assert b"".join(round_trip(bus, ServiceBusMessage(body)).body) == body


@table.behaviour()
def empty_body(bus: Bus) -> None:
    received = round_trip(bus, ServiceBusMessage(b""))
    assert received.body_type is AmqpMessageBodyType.DATA
    assert b"".join(received.body) == b""


@table.behaviour()
def no_body(bus: Bus) -> None:
    received = round_trip(bus, ServiceBusMessage(None))
    assert received.body_type is AmqpMessageBodyType.VALUE
    assert received.body is None


@table.behaviour()
def several_data_sections(bus: Bus) -> None:
    received = round_trip(bus, AmqpAnnotatedMessage(data_body=[b"one", b"", b"three"]))
    assert list(received.body) == [b"one", b"", b"three"]


@table.behaviour()
def sequence_body(bus: Bus) -> None:
    received = round_trip(bus, AmqpAnnotatedMessage(sequence_body=[[1, b"two", True], [None, 4.5]]))
    assert received.body_type is AmqpMessageBodyType.SEQUENCE
    assert list(received.body) == [[1, b"two", True], [None, 4.5]]


@table.behaviour()
def value_body_of_every_type(bus: Bus) -> None:
    queue = bus.queue()
    sender, receiver = queue.sender(), queue.receiver()
    for value, expected in (
        (True, True),
        (7, 7),
        (-3, -3),
        (2.5, 2.5),
        ("text", b"text"),
        (b"bytes", b"bytes"),
        (ID, ID),
        (TIME, TIME_MS),
        ([1, "x", [2]], [1, b"x", [2]]),
        ({"k": {"n": 1}}, {b"k": {b"n": 1}}),
    ):
        sender.send_messages(AmqpAnnotatedMessage(value_body=value))
        received = receive_one(receiver)
        assert received.body_type is AmqpMessageBodyType.VALUE
        assert received.body == expected
        receiver.complete_message(received)


@table.behaviour()
def application_properties_of_every_type(bus: Bus) -> None:
    properties = {
        "text": "ü",
        "whole": 42,
        "negative": -1,
        "real": 2.5,
        "yes": True,
        "no": False,
        "id": ID,
        "time": TIME,
        "nothing": None,
        "empty": "",
    }
    received = round_trip(bus, ServiceBusMessage("x", application_properties=dict(properties)))
    expected = {name.encode(): value for name, value in properties.items()}
    expected |= {b"text": "ü".encode(), b"time": TIME_MS, b"empty": b""}
    assert received.application_properties == expected


@table.behaviour()
def properties_and_bodies_of_every_amqp_type(bus: Bus) -> None:
    """Types that Python has no name for; the SDK takes them as pairs."""
    values = {
        "UBYTE": 200,
        "BYTE": -100,
        "USHORT": 60_000,
        "SHORT": -30_000,
        "UINT": 4_000_000_000,
        "INT": -2_000_000_000,
        "ULONG": 1 << 63,
        "LONG": -(1 << 62),
        "FLOAT": 0.5,
        "DOUBLE": 1e300,
        "TIMESTAMP": TIME_MS,
        "SYMBOL": b"symbol",
        "BINARY": b"\x00\xff",
    }
    pairs = {name: {"TYPE": name, "VALUE": value} for name, value in values.items()}
    received = round_trip(bus, AmqpAnnotatedMessage(value_body=pairs, application_properties=dict(pairs)))
    expected = {name.encode(): value for name, value in values.items()}
    assert received.application_properties == expected
    assert received.body == expected


@table.behaviour()
def named_properties(bus: Bus) -> None:
    named = {
        "message_id": "id-1",
        "correlation_id": "cause-1",
        "content_type": "application/json",
        "subject": "label",
        "to": "there",
        "reply_to": "here",
        "session_id": "group",
        "reply_to_session_id": "answer",
        "partition_key": "group",
    }
    received = round_trip(bus, ServiceBusMessage("x", time_to_live=timedelta(minutes=5), **named))
    assert {name: getattr(received, name) for name in named} == named
    assert received.time_to_live == timedelta(minutes=5)
    assert received.expires_at_utc == received.enqueued_time_utc + timedelta(minutes=5)


@table.behaviour()
def raw_header_and_properties(bus: Bus) -> None:
    received = round_trip(
        bus,
        AmqpAnnotatedMessage(
            data_body=b"x",
            header=AmqpMessageHeader(durable=True, priority=7, time_to_live=60_000),
            properties=AmqpMessageProperties(
                message_id="m", user_id=b"me", content_encoding="gzip", group_id="g", group_sequence=5
            ),
            application_properties={"a": 1},
        ),
    ).raw_amqp_message
    assert (received.header.durable, received.header.priority, received.header.time_to_live) == (True, 7, 60_000)
    assert received.properties.user_id == b"me"
    assert received.properties.content_encoding == b"gzip"
    assert received.properties.group_sequence == 5


@table.behaviour()
def annotations_and_footer(bus: Bus) -> None:
    received = round_trip(
        bus,
        AmqpAnnotatedMessage(
            data_body=b"x",
            annotations={"x-opt-mine": "kept", "other": 5},
            delivery_annotations={"x-opt-hop": "arrives"},
            footer={"signature": "s"},
        ),
    ).raw_amqp_message
    assert received.annotations[b"x-opt-mine"] == b"kept"
    assert received.annotations[b"other"] == 5
    assert received.delivery_annotations[b"x-opt-hop"] == b"arrives"
    assert received.footer == {b"signature": b"s"}


@table.behaviour()
def message_id_that_is_a_uuid(bus: Bus) -> None:
    received = round_trip(bus, AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id=ID)))
    assert received.raw_amqp_message.properties.message_id == ID


@table.behaviour()
def a_message_given_as_a_mapping(bus: Bus) -> None:
    received = round_trip(bus, {"body": "from a mapping", "subject": "s", "application_properties": {"n": 1}})
    assert (str(received), received.subject) == ("from a mapping", "s")
    assert received.application_properties == {b"n": 1}


@table.behaviour()
def a_body_of_many_frames(bus: Bus) -> None:
    body = bytes(range(256)) * 800
    assert b"".join(round_trip(bus, ServiceBusMessage(body)).body) == body


@table.behaviour(differs="C4")
def stamps_of_the_broker(bus: Bus) -> None:
    received = round_trip(bus, ServiceBusMessage("x"))
    assert received.delivery_count == 0
    assert received.sequence_number & 0xFFFF_FFFF_FFFF == 1
    assert 0 <= received.sequence_number >> 48 < (16 if bus.partitioned else 1)
    assert abs(received.enqueued_time_utc - datetime.now(UTC)) < timedelta(minutes=1)
    assert received.dead_letter_reason is None


@table.behaviour(differs="C4", kinds=("plain",))
def a_received_message_sent_again(bus: Bus) -> None:
    """Only where sequence numbers are small: the SDK encodes the old one as a 32-bit number."""
    queue = bus.queue()
    queue.send(ServiceBusMessage("x", message_id="same", application_properties={"a": 1}))
    receiver = queue.receiver()
    first = receive_one(receiver)
    queue.send(first)
    receiver.complete_message(first)
    second = receive_one(receiver)
    assert (second.message_id, second.application_properties) == ("same", {b"a": 1})
    assert second.sequence_number == first.sequence_number + 1


@table.behaviour()
def stamps_that_a_client_sends_are_not_believed(bus: Bus) -> None:
    forged = {
        "x-opt-sequence-number": {"TYPE": "LONG", "VALUE": 4711},
        "x-opt-enqueued-time": {"TYPE": "TIMESTAMP", "VALUE": 4711},
        "x-opt-locked-until": {"TYPE": "TIMESTAMP", "VALUE": 4711},
        "x-opt-deadletter-source": "elsewhere",
        "x-opt-message-state": 2,
    }
    received = round_trip(bus, AmqpAnnotatedMessage(data_body=b"x", annotations=forged))
    assert received.sequence_number & 0xFFFF_FFFF_FFFF == 1
    assert received.enqueued_time_utc > TIME
    assert received.dead_letter_source is None
    assert received.state is ServiceBusMessageState.ACTIVE


@table.behaviour()
def long_names_and_values(bus: Bus) -> None:
    identifier = "i" * 128
    properties = {"p" * 1000: "v" * 30_000}
    received = round_trip(
        bus, ServiceBusMessage("x", message_id=identifier, session_id=identifier, application_properties=properties)
    )
    assert (received.message_id, received.session_id) == (identifier, identifier)
    assert received.application_properties == {b"p" * 1000: b"v" * 30_000}
