from __future__ import annotations

import uuid

import pytest

from polybus.amqp.codec import encode
from polybus.amqp.types import Described, Symbol, Timestamp, UByte, UInt, ULong
from polybus.errors import ArgumentOutOfRange, ProtocolError
from polybus.message.message import Message, build

DATA = b"\x00\x53\x75\xa0\x01x"


def section(code: int, value: object) -> bytes:
    return b"\x00\x53" + bytes([code]) + encode(value)


def message(*sections: bytes) -> Message:
    return Message(b"".join(sections) + DATA)


def test_the_header_is_read() -> None:
    found = message(section(0x70, [True, UByte(7), UInt(5000), None, UInt(3)]))
    assert (found.durable, found.priority, found.ttl_ms) == (True, 7, 5000)
    plain = message()
    assert (plain.durable, plain.priority, plain.ttl_ms) == (False, -1, -1)


@pytest.mark.parametrize("fields", [[], [None], [False], [None, None, None, None, None]])
def test_a_header_may_be_short_and_empty(fields: list[object]) -> None:
    found = message(section(0x70, fields))
    assert (found.durable, found.priority, found.ttl_ms) == (False, -1, -1)
    assert message(b"\x00\x53\x70\x45").ttl_ms == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("id", "id"),
        (ULong(7), "7"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x01\xff", "01ff"),
        (None, None),
    ],
)
def test_message_ids_of_all_types_have_a_text(value: object, text: str | None) -> None:
    assert message(section(0x73, [value])).message_id == text


def test_properties_are_found_at_their_places() -> None:
    fields = ["id", b"user", "to", "subject", "reply", "corr", Symbol("type"), Symbol("enc"), None, None, "group"]
    found = message(section(0x73, fields))
    assert (found.message_id, found.session_id) == ("id", "group")
    assert found.properties() == [*fields, None, None]
    assert message().properties() == [None] * 13


def test_annotations_that_matter_are_read() -> None:
    found = message(
        section(
            0x72,
            {
                Symbol("x-opt-partition-key"): "p",
                Symbol("x-opt-via-partition-key"): "v",
                Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5),
            },
        )
    )
    assert (found.partition_key, found.via_partition_key, found.scheduled_ms) == ("p", "v", 5)


def test_scheduled_times_are_kept_within_what_can_be_stored() -> None:
    for value, expected in ((-5, 0), ((1 << 64) - 1, 253_402_300_799_999)):
        annotation = ULong(value) if value > 0 else Timestamp(value)
        assert message(section(0x72, {Symbol("x-opt-scheduled-enqueue-time"): annotation})).scheduled_ms == expected


def test_a_long_time_to_live_is_the_difference_of_two_times() -> None:
    header = section(0x70, [None, None, UInt(0xFFFFFFFF)])
    times = [None] * 8 + [Timestamp(10_000_000_000), Timestamp(1000)]
    assert message(header, section(0x73, times)).ttl_ms == 9_999_999_000
    assert message(header).ttl_ms == 0xFFFFFFFF
    assert message(section(0x70, [None, None, UInt(5)]), section(0x73, times)).ttl_ms == 5


def test_keys_longer_than_128_characters_are_refused() -> None:
    assert build(b"", message_id="ä" * 128).message_id == "ä" * 128
    for name in ("message_id", "session_id", "partition_key"):
        with pytest.raises(ArgumentOutOfRange):
            build(b"", **{name: "x" * 129})  # type: ignore[arg-type]


def test_all_data_sections_of_a_body_are_its_body_wherever_it_begins() -> None:
    for before in (b"", section(0x73, ["id"]), section(0x70, [True])):
        found = Message(
            before + b"\x00\x53\x75\xa0\x01a" + b"\x00\x53\x75\xa0\x01b" + section(0x78, {Symbol("f"): 1})
        )
        assert found.body() == [(0x75, b"a"), (0x75, b"b")]


def test_bodies_of_other_kinds() -> None:
    assert Message(section(0x77, {"a": [1]})).body() == [(0x77, {"a": [1]})]
    assert Message(section(0x76, [1]) + section(0x76, [2])).body() == [(0x76, [1]), (0x76, [2])]
    assert Message(b"").body() == []
    assert Message(section(0x73, ["id"])).body() == []


def test_descriptors_may_be_written_at_length() -> None:
    long = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00"
    found = Message(long + b"\x73" + encode(["id"]) + long + b"\x75" + encode(b"x"))
    assert (found.message_id, found.body()) == ("id", [(0x75, b"x")])


BAD = {
    "not a section": b"\x01",
    "a section cut after its descriptor": b"\x00\x53\x75",
    "an unknown section": b"\x00\x53\x79\x40",
    "a frame's code": b"\x00\x53\x14\x45",
    "a descriptor that is no number": b"\x00\xa3\x01x\x40",
    "sections out of order": section(0x73, ["id"]) + section(0x70, [True]) + DATA,
    "two headers": section(0x70, [True]) * 2 + DATA,
    "two values": section(0x77, 1) * 2,
    "data behind a value": section(0x77, 1) + DATA,
    "data that is no binary": section(0x75, "text"),
    "data longer than the message": b"\x00\x53\x75\xb0\xff\xff\xff\xff",
    "a size cut short": b"\x00\x53\x75\xb0\x00\x00",
    "a sequence that is no list": section(0x76, {}),
    "a header that is no list": section(0x70, {}) + DATA,
    "a header with six fields": section(0x70, [None] * 6) + DATA,
    "a header that lies about its fields": b"\x00\x53\x70\xc0\x02\x05\x41" + DATA,
    "annotations that are no map": section(0x72, []) + DATA,
    "an annotation twice": b"\x00\x53\x72\xc1\x09\x04\xa3\x01a\x41\xa3\x01a\x41" + DATA,
    "properties that are no list": section(0x73, {}) + DATA,
    "fourteen properties": section(0x73, [None] * 14) + DATA,
    "a property that is a list": section(0x73, [None, None, ["to"]]) + DATA,
    "a described property": section(0x73, [None, None, Described(Symbol("a"), 1)]) + DATA,
    "a property that is not UTF-8": b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01\xff" + DATA,
    "properties with bytes left over": b"\x00\x53\x73\xc0\x03\x01\x40\x40" + DATA,
    "application properties that are no map": section(0x74, ["a"]) + DATA,
    "application properties that cannot be decoded": b"\x00\x53\x74\xc1\x04\x02\xa1\x01\xff\x40" + DATA,
    "a footer that is no map": DATA + section(0x78, []),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_what_is_malformed_is_one_protocol_error(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        Message(raw)


def test_a_body_of_too_many_sections_is_refused() -> None:
    Message(b"\x00\x53\x75\xa0\x00" * 4096)
    with pytest.raises(ProtocolError, match="4096 sections"):
        Message(b"\x00\x53\x75\xa0\x00" * 4097)


def test_what_was_checked_once_is_read_the_same_when_it_is_trusted() -> None:
    raw = build(
        b"body",
        message_id="m",
        session_id="s",
        partition_key="s",
        subject="l",
        ttl_ms=1 << 40,
        scheduled_ms=9,
        application={"a": 1},
    ).raw
    one, other = Message(raw), Message(raw, True)
    for name in (
        *("annotations_at", "application_at", "bare_at", "body_at", "properties_at", "size"),
        *("durable", "priority", "ttl_ms", "scheduled_ms"),
        *("message_id", "session_id", "partition_key", "via_partition_key"),
    ):
        assert (name, getattr(one, name)) == (name, getattr(other, name))
    assert one.ttl_ms == 1 << 40
    assert other.application_properties() == {"a": 1}
