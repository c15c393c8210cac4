"""Messages as the official SDK, qpid-proton and the bus itself encode them: what goes in is what comes out."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import proton
import pytest
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import Header, Properties
from azure.servicebus._pyamqp.message import Message as SdkMessage
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ArgumentOutOfRange, ProtocolError
from polybus.message.message import Message, build
from polybus.message.overlay import Overlay
from polybus.message.rendering import Marks, generated_id, render

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
MAYBE = st.none() | TEXT
NAMES = st.text(st.characters(codec="ascii", exclude_characters="\x00"), min_size=1, max_size=12)
SIMPLE = st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | TEXT | st.uuids() | st.floats(allow_nan=False)
BODIES = st.binary(max_size=300) | st.just(b"x" * 1024)
MARKS = st.builds(
    Marks,
    st.integers(1, 2**62),
    st.integers(0, 2**40),
    st.integers(0, 2**62),
    st.integers(0, 300),
    st.integers(0, 2),
    st.sampled_from([0, 1_700_000_000_000]),
)


def rendered(raw: bytes, marks: Marks) -> bytes:
    return render(Message(raw), marks)


def text(value: object) -> object:
    """The SDK's decoder gives text as bytes."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def sdk_bytes(**parts: Any) -> bytes:
    return bytes(encode_payload(bytearray(), SdkMessage(**parts)))


SDK_PROPERTIES = st.none() | st.builds(
    Properties,
    message_id=MAYBE,
    user_id=st.none() | st.binary(max_size=5),
    to=MAYBE,
    subject=MAYBE,
    reply_to=MAYBE,
    correlation_id=MAYBE,
    content_type=st.none() | NAMES,
    content_encoding=st.none() | NAMES,
    creation_time=st.none() | st.integers(0, 2**40),
    group_id=MAYBE,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    reply_to_group_id=MAYBE,
)
SDK_HEADERS = st.none() | st.builds(
    Header,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    delivery_count=st.none() | st.integers(0, 9),
)


@given(
    SDK_HEADERS,
    SDK_PROPERTIES,
    st.dictionaries(NAMES, SIMPLE, max_size=4),
    st.lists(BODIES, min_size=1, max_size=3),
    MARKS,
)
def test_what_the_sdk_sends_it_receives(
    header: Header | None,
    properties: Properties | None,
    application: dict[str, object],
    data: list[bytes],
    marks: Marks,
) -> None:
    raw = sdk_bytes(header=header, properties=properties, application_properties=application, data=data)
    found = decode_payload(memoryview(rendered(raw, marks)))
    sent = properties or Properties()
    for name in Properties._fields[1:]:
        got = None if found.properties is None else getattr(found.properties, name)
        assert text(got) == text(getattr(sent, name))
    assert text(found.properties.message_id) == (
        sent.message_id if sent.message_id is not None else generated_id(marks)
    )
    assert b"".join(found.data) == b"".join(data)
    got_properties = {text(name): text(value) for name, value in (found.application_properties or {}).items()}
    assert got_properties == {name: text(value) for name, value in application.items()}
    assert found.header.delivery_count == marks.delivery_count
    assert found.header.ttl == (None if header is None else header.ttl)
    assert found.header.priority == (None if header is None else header.priority)
    assert bool(found.header.durable) == bool(header is not None and header.durable)


@given(SIMPLE | st.lists(st.integers(0, 9), max_size=3), MARKS)
def test_value_bodies_of_the_sdk(value: object, marks: Marks) -> None:
    raw = sdk_bytes(value=value)
    found = decode_payload(memoryview(rendered(raw, marks)))
    assert found.value == decode_payload(memoryview(raw)).value


PROTON_VALUES = st.none() | TEXT | st.binary(max_size=300) | st.integers(0, 2**31) | st.lists(TEXT, max_size=3)


@given(
    PROTON_VALUES,
    MAYBE | st.uuids() | st.integers(0, 2**40).map(proton.ulong),
    MAYBE,
    st.dictionaries(NAMES, SIMPLE, max_size=4),
    MARKS,
)
def test_what_proton_sends_proton_receives(
    body: object, message_id: object, subject: str | None, properties: dict[str, object], marks: Marks
) -> None:
    sent = proton.Message(body=body, id=message_id, subject=subject, properties=properties, durable=True)
    found = proton.Message()
    found.decode(rendered(bytes(sent.encode()), marks))
    assert (found.body, found.subject, found.durable) == (sent.body, sent.subject, True)
    assert (found.properties or {}) == properties
    expected = generated_id(marks) if sent.id is None else sent.id
    assert (found.id, type(found.id)) == (expected, type(expected))
    assert found.delivery_count == marks.delivery_count
    annotations = found.annotations
    assert annotations["x-opt-sequence-number"] == marks.sequence
    assert type(annotations["x-opt-enqueued-time"]) is proton.timestamp
    assert type(annotations["x-opt-message-state"]) is proton.int32
    assert ("x-opt-locked-until" in annotations) == bool(marks.locked_until_ms)


@given(
    BODIES,
    st.fixed_dictionaries(
        {},
        optional={
            "message_id": TEXT,
            "session_id": TEXT,
            "partition_key": TEXT,
            "subject": TEXT,
            "correlation_id": TEXT,
            "content_type": NAMES,
            "to": TEXT,
            "reply_to": TEXT,
            "reply_to_session_id": TEXT,
            "ttl_ms": st.integers(0, 2**40),
            "scheduled_ms": st.integers(1, 2**40),
            "application": st.dictionaries(NAMES, SIMPLE, max_size=3),
        },
    ),
    MARKS,
)
def test_what_the_bus_builds_everybody_reads(body: bytes, fields: dict[str, Any], marks: Marks) -> None:
    message = build(body, **fields)
    raw = render(message, marks)
    again = Message(raw)
    session_id = fields.get("session_id")
    assert (again.session_id, again.partition_key) == (session_id, fields.get("partition_key", session_id))
    assert again.scheduled_ms == fields.get("scheduled_ms", 0)
    assert again.ttl_ms == message.ttl_ms == fields.get("ttl_ms", -1)
    assert again.application_properties() == fields.get("application", {})
    found = proton.Message()
    found.decode(raw)
    assert bytes(found.body) == body
    assert (found.subject, found.reply_to) == (fields.get("subject"), fields.get("reply_to"))
    assert b"".join(decode_payload(memoryview(raw)).data) == body


@given(st.dictionaries(NAMES, SIMPLE, max_size=5), st.dictionaries(NAMES, SIMPLE, max_size=5), BODIES, MARKS)
def test_modified_properties_are_merged_for_the_sdk(
    own: dict[str, object], changes: dict[str, object], body: bytes, marks: Marks
) -> None:
    overlay = Overlay()
    overlay.change(changes)
    marks.overlay = overlay
    raw = render(build(body, application=own), marks)
    found = decode_payload(memoryview(raw))
    merged = {**own, **changes}
    expected = {name: text(value) for name, value in merged.items() if value is not None or name not in changes}
    assert {text(name): text(value) for name, value in (found.application_properties or {}).items()} == expected
    assert b"".join(found.data) == body


@given(MARKS, BODIES)
def test_a_message_sent_again_as_received_is_the_same_but_for_our_marks(marks: Marks, body: bytes) -> None:
    first = rendered(build(body, subject="s").raw, marks)
    other = Marks(1, 2)
    assert rendered(first, other) == rendered(render(Message(first), other), other)
    assert Message(first).message_id == generated_id(marks)


SEEDS = [
    build(b"x", message_id="m", session_id="s", ttl_ms=5, scheduled_ms=9, application={"a": 1, "b": "c"}).raw,
    sdk_bytes(header=Header(durable=True, ttl=9), properties=Properties(message_id="m"), data=[b"a", b"b"]),
    bytes(proton.Message(body=["a", {"b": 1}], id=uuid.UUID(int=1), properties={"p": [1]}).encode()),
    b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0\x00\x00\x00\x01x",
]


def judged(raw: bytes) -> None:
    """Either a message that can be shown in every way, or one error of the protocol; nothing else."""
    with contextlib.suppress(ProtocolError, ArgumentOutOfRange):
        message = Message(raw)
        overlay = Overlay()
        overlay.change({"a": 2, "DeadLetterReason": "r"})
        overlay.fields[3] = "label"
        for marks in (Marks(1, 2), Marks(1, 2, overlay=overlay)):
            shown = render(message, marks)
            again = Message(shown)
            assert again.session_id == message.session_id
            assert again.raw[again.body_at :] == message.raw[message.body_at :]
        assert Message(raw, True).application_at == message.application_at


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(raw: bytes) -> None:
    judged(raw)


@given(st.sampled_from(SEEDS), st.data())
def test_damaged_messages_are_messages_or_protocol_errors(seed: bytes, data: st.DataObject) -> None:
    raw = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        action = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if action == "change":
            raw[place] = data.draw(st.integers(0, 255))
        elif action == "cut" and len(raw) > 1:
            del raw[place]
        else:
            raw.insert(place, data.draw(st.sampled_from([0, 0x40, 0x45, 0x53, 0x73, 0xC0, 0xC1, 0xE0, 0xFF])))
    judged(bytes(raw))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_cut_is_a_message_or_a_protocol_error(seed: bytes) -> None:
    for length in range(len(seed)):
        judged(seed[:length])
