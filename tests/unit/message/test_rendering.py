from __future__ import annotations

from uuid import UUID

import pytest
from librt.strings import BytesWriter

from polybus.amqp.codec import decode, encode
from polybus.amqp.types import Int, Symbol, Timestamp, UByte, UInt
from polybus.message.message import Message, build
from polybus.message.overlay import NO_TTL, Overlay, overlay_from_bytes
from polybus.message.rendering import Marks, generated_id, merged_properties, render, render_into

PLAIN = Marks(5, 1000, 3)


def sections(message: Message, marks: Marks) -> dict[int, object]:
    raw = render(message, marks)
    found: dict[int, object] = {}
    pos = 0
    while pos < len(raw):
        assert raw[pos : pos + 2] == b"\x00\x53"
        code = raw[pos + 2]
        found[code], pos = decode(raw, pos + 3)
    assert list(found) == sorted(found)
    return found


def test_annotations_have_the_types_that_the_sdks_cast_to() -> None:
    marks = Marks(1 << 52, 1_700_000_000_000, 7, 0, 1, 1_700_000_060_000)
    raw = render(build(b"x", message_id="m"), marks)
    annotations = sections(build(b"x", message_id="m"), marks)[0x72]
    assert isinstance(annotations, dict)
    assert {str(name): (type(value), value) for name, value in annotations.items()} == {
        "x-opt-sequence-number": (int, 1 << 52),
        "x-opt-enqueued-time": (Timestamp, 1_700_000_000_000),
        "x-opt-enqueue-sequence-number": (int, 7),
        "x-opt-message-state": (Int, 1),
        "x-opt-locked-until": (Timestamp, 1_700_000_060_000),
    }
    assert all(type(name) is Symbol for name in annotations)
    # Longs leave in eight bytes whatever their size: JavaScript reads only that form (docs/protocol/amqp.md#annotations).
    assert b"x-opt-enqueue-sequence-number\x81" + (7).to_bytes(8, "big") in raw


def test_without_a_lock_there_is_no_end_of_it() -> None:
    annotations = sections(build(b"x"), PLAIN)[0x72]
    assert isinstance(annotations, dict)
    assert "x-opt-locked-until" not in annotations


def test_the_header_says_how_often_it_was_tried_and_how_long_it_lives() -> None:
    header = [None, None, UInt(5000), None, UInt(2)]
    assert sections(build(b"x", ttl_ms=5000), Marks(1, 1, 0, 2))[0x70] == header
    assert sections(build(b"x"), PLAIN)[0x70] == [None, None, None, None, UInt(0)]
    raw = b"\x00\x53\x70" + encode([True, UByte(0), None]) + build(b"x").raw
    assert sections(Message(raw), PLAIN)[0x70] == [True, UByte(0), None, None, UInt(0)]
    assert sections(build(b"x", ttl_ms=1 << 40), PLAIN)[0x70] == [None, None, UInt(0xFFFFFFFF), None, UInt(0)]


def test_the_overlays_time_to_live_takes_the_senders_place() -> None:
    overlay = Overlay()
    overlay.ttl_ms = 0
    assert sections(build(b"x", ttl_ms=9), Marks(1, 1, 0, 0, 0, 0, overlay))[0x70] == [
        None,
        None,
        UInt(0),
        None,
        UInt(0),
    ]
    overlay.ttl_ms = NO_TTL
    assert sections(build(b"x", ttl_ms=9), Marks(1, 1, 0, 0, 0, 0, overlay))[0x70] == [
        None,
        None,
        None,
        None,
        UInt(0),
    ]


def test_the_bare_message_is_byte_for_byte_the_senders() -> None:
    message = build(b"body", message_id="m", subject="s", application={"a": 1}, ttl_ms=5, partition_key="p")
    assert render_into(BytesWriter(), message, PLAIN) == message.raw[message.bare_at :]


@pytest.mark.parametrize("fields", [None, [], [None], [None, b"user", "to"], [None] * 13, [None, None, "x" * 300]])
def test_a_missing_id_is_put_in_and_the_rest_left_alone(fields: list[object] | None) -> None:
    raw = b"" if fields is None else b"\x00\x53\x73" + encode(fields)
    message = Message(raw + b"\x00\x53\x75\xa0\x04body")
    found = sections(message, PLAIN)
    properties = found[0x73]
    assert isinstance(properties, list)
    assert properties[0] == generated_id(PLAIN) == f"{3:032x}"
    assert properties[1:] == (fields or [None])[1:]
    assert found[0x75] == b"body"


def test_list0_properties_get_an_id_too() -> None:
    assert sections(Message(b"\x00\x53\x73\x45\x00\x53\x75\xa0\x01x"), PLAIN)[0x73] == [generated_id(PLAIN)]


def test_a_generated_id_stays_the_same_when_the_message_dies_becomes_active_or_is_forwarded() -> None:
    assert generated_id(Marks(9, 0)) == generated_id(Marks(15, 0, 9)) == f"{9:032x}"


def test_dead_letter_properties_are_merged_and_say_where_from() -> None:
    overlay = Overlay()
    overlay.change({"DeadLetterReason": "why", "kept": "changed", "gone": None})
    overlay.dead_letter_source = "q"
    marks = Marks(1, 1, 0, 0, 0, 0, overlay)
    message = build(b"x", message_id="m", subject="s", application={"kept": 1, "gone": 2, "own": 3.5})
    found = sections(message, marks)
    assert found[0x74] == {"own": 3.5, "DeadLetterReason": "why", "kept": "changed"}
    assert found[0x74] == merged_properties(message, overlay)
    assert found[0x73] == message.properties()
    assert found[0x75] == b"x"
    annotations = found[0x72]
    assert isinstance(annotations, dict)
    assert annotations["x-opt-deadletter-source"] == "q"
    assert type(annotations["x-opt-deadletter-source"]) is str


def test_properties_are_added_where_there_were_none() -> None:
    overlay = Overlay()
    overlay.change({Symbol("a"): 1})
    found = sections(Message(b"\x00\x53\x75\xa0\x01x"), Marks(1, 1, 0, 0, 0, 0, overlay))
    application = found[0x74]
    assert application == {"a": 1}
    assert [type(name) for name in application] == [str]  # type: ignore[attr-defined]


def test_fields_that_a_rule_changed_or_took_away() -> None:
    overlay = Overlay()
    overlay.fields = {0: None, 3: "new", 10: "session"}
    message = build(b"x", message_id="m", subject="old", to="t", application={"a": 1})
    found = sections(message, Marks(4, 1, 0, 0, 0, 0, overlay))
    assert found[0x73] == [f"{4:032x}", None, "t", "new", *[None] * 6, "session", None, None]
    assert found[0x74] == {"a": 1}


def test_values_that_are_not_touched_keep_their_bytes() -> None:
    array = (
        b"\xe0\x0a\x02\xc0\x03\x02\x45\x45\x03\x02\x45\x45"  # an array of lists, which nobody would write again so
    )
    raw = b"\x00\x53\x74\xc1" + bytes([len(array) + 4, 2]) + b"\xa1\x01a" + array + b"\x00\x53\x75\xa0\x01x"
    overlay = Overlay()
    overlay.change({"b": 1})
    assert array in render(Message(raw), Marks(1, 1, 0, 0, 0, 0, overlay))


def test_clients_that_send_received_messages_again_do_not_forge_our_annotations() -> None:
    received = {
        Symbol("x-opt-sequence-number"): 99,
        Symbol("x-opt-enqueued-time"): 5,
        Symbol("x-opt-locked-until"): Timestamp(1),
        Symbol("x-opt-message-state"): 2,
        Symbol("x-opt-enqueue-sequence-number"): 3,
        Symbol("x-opt-deadletter-source"): "forged",
        Symbol("x-opt-partition-id"): 3,
        Symbol("x-opt-mine"): [1, 2],
        "string-key": 4,
        Symbol("x-opt-partition-key"): Symbol("p"),
        Symbol("x-opt-scheduled-enqueue-time"): 77,
    }
    raw = b"\x00\x53\x72" + encode(received) + build(b"x", message_id="m").raw
    annotations = sections(Message(raw), PLAIN)[0x72]
    assert isinstance(annotations, dict)
    assert {str(name): (type(value).__name__, value) for name, value in annotations.items()} == {
        "x-opt-sequence-number": ("int", 5),
        "x-opt-enqueued-time": ("Timestamp", 1000),
        "x-opt-enqueue-sequence-number": ("int", 3),
        "x-opt-message-state": ("Int", 0),
        "x-opt-partition-key": ("str", "p"),
        "x-opt-scheduled-enqueue-time": ("Timestamp", 77),
        "x-opt-mine": ("list", [1, 2]),
        "string-key": ("int", 4),
    }
    assert all(type(name) is Symbol for name in annotations)


def test_annotations_too_many_for_the_short_form() -> None:
    own: dict[object, object] = {Symbol(f"custom-{number}"): "x" * 50 for number in range(200)}
    raw = b"\x00\x53\x72" + encode(own) + build(b"x").raw
    annotations = sections(Message(raw), PLAIN)[0x72]
    assert isinstance(annotations, dict)
    assert len(annotations) == 204


def test_a_lock_token_travels_in_the_delivery_annotations() -> None:
    found = sections(build(b"x"), Marks(1, 1, 0, 0, 0, 0, None, bytes(range(16))))
    annotations = found[0x71]
    assert isinstance(annotations, dict)
    assert annotations["x-opt-lock-token"].bytes == bytes(range(16))
    assert sections(build(b"x"), PLAIN)[0x71] == {}


def test_the_senders_delivery_annotations_go_out_beside_the_brokers() -> None:
    sent: dict[object, object] = {Symbol("x-opt-lock-token"): UUID(int=7), "hop": [1], Symbol("x-opt-mine"): "kept"}
    raw = b"\x00\x53\x71" + encode(sent) + build(b"x", message_id="m").raw
    token = bytes(range(16))
    marked = Marks(1, 1, 0, 0, 0, 0, None, token)
    assert sections(Message(raw), marked)[0x71] == {
        "x-opt-lock-token": UUID(bytes=token),
        "hop": [1],
        "x-opt-mine": "kept",
    }
    assert sections(Message(raw), PLAIN)[0x71] == {"hop": [1], "x-opt-mine": "kept"}


def test_a_session_id_is_shown_as_the_partition_key() -> None:
    own = sections(build(b"x", session_id="s"), PLAIN)[0x72]
    assert isinstance(own, dict)
    assert own["x-opt-partition-key"] == "s"
    both = sections(build(b"x", session_id="s", partition_key="p"), PLAIN)[0x72]
    assert isinstance(both, dict)
    assert both["x-opt-partition-key"] == "p"
    changed = Overlay()
    changed.fields = {10: "other"}
    moved = sections(build(b"x", session_id="s"), Marks(1, 1, 0, 0, 0, 0, changed))[0x72]
    assert isinstance(moved, dict)
    assert moved["x-opt-partition-key"] == "other"


def test_an_overlay_is_read_as_it_was_written() -> None:
    overlay = Overlay()
    overlay.change({"a": 1, "b": None, "c": "x", "d": Timestamp(5)})
    overlay.application["null"] = None
    overlay.fields = {3: "label", 6: None}
    overlay.dead_letter_source, overlay.hops, overlay.ttl_ms = "q", 2, 77
    for other in (overlay_from_bytes(overlay.to_bytes()), overlay.copy()):
        for name in ("application", "dead_letter_source", "fields", "hops", "ttl_ms"):
            assert getattr(other, name) == getattr(overlay, name)
        assert type(other.application["d"]) is Timestamp
        assert other.application is not overlay.application
