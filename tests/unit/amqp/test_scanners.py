"""The quick ways through transfers, dispositions and flows agree with the general ones."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.amqp.codec import decode, encode
from polybus.amqp.frames import (
    disposition,
    frame,
    transfer_end,
    transfer_head,
    transfer_prefix,
)
from polybus.amqp.outcomes import ACCEPTED_BYTES, AmqpError, Rejected, state_from
from polybus.amqp.traffic import (
    Disposition,
    DispositionTail,
    Flow,
    Transfer,
    TransferTail,
    frame_fields,
    list_bounds,
    scan_disposition,
    scan_fields,
    scan_transfer,
)
from polybus.amqp.types import AmqpArray, Byte, Int, Long8, UByte, UInt, ULong, UShort
from polybus.errors import ProtocolError

NUMBER = st.integers(min_value=0, max_value=0xFFFF_FFFF)
SMALL = st.integers(min_value=0, max_value=127)
WIDTHS = st.one_of(
    NUMBER.map(UInt),
    NUMBER.map(ULong),
    NUMBER,
    NUMBER.map(Long8),
    SMALL.map(UByte),
    SMALL.map(UShort),
    SMALL.map(Int),
)
FLAG = st.one_of(st.none(), st.booleans())
STATE = st.sampled_from([None, ACCEPTED_BYTES])


def state(raw: bytes | None) -> object:
    return None if raw is None else decode(raw, 0)[0]


def wide(fields: list[object]) -> bytes:
    """The fields as a list32."""
    body = b"".join(encode(field) for field in fields)
    return b"\xd0" + struct.pack(">II", len(body) + 4, len(fields)) + body


@settings(deadline=None)
@given(
    WIDTHS,
    st.one_of(st.none(), WIDTHS),
    st.one_of(st.none(), st.binary(max_size=40)),
    st.one_of(st.none(), WIDTHS),
    st.lists(FLAG, max_size=2),
    STATE,
    st.booleans(),
    st.binary(max_size=50),
)
def test_transfers(handle, delivery_id, tag, message_format, flags, raw_state, large, payload) -> None:
    fields = [handle, delivery_id, tag, message_format, *flags]
    if len(flags) == 2:
        fields += [None, state(raw_state), None, True]
    raw = (wide(fields) if large else encode(fields)) + payload
    expected = Transfer.from_fields(list(fields))
    found_handle, found_id, found_tag, count, place, stop = scan_transfer(raw, 0, len(raw))
    tail = TransferTail(raw[place:stop], count, scan_fields(raw, place, stop, count))
    assert found_handle == expected.handle
    assert found_id == (-1 if expected.delivery_id is None else expected.delivery_id)
    assert found_tag == (expected.delivery_tag or b"")
    assert tail.message_format == (-1 if expected.message_format is None else expected.message_format)
    assert (tail.settled, tail.more, tail.aborted) == (expected.settled, expected.more, expected.aborted)
    assert type(tail.state) is type(expected.state)
    assert raw[stop:] == payload


@settings(deadline=None)
@given(st.booleans(), WIDTHS, st.one_of(st.none(), WIDTHS), FLAG, STATE, st.booleans())
def test_dispositions(role, first, last, settled, raw_state, large) -> None:
    fields = [role, first, last, settled, state(raw_state)]
    raw = wide(fields) if large else encode(fields)
    expected = Disposition.from_fields(list(fields))
    found_role, found_first, found_last, count, place, stop = scan_disposition(raw, 0, len(raw))
    tail = DispositionTail(raw[place:stop], count, scan_fields(raw, place, stop, count))
    assert (found_role, found_first) == (expected.role, expected.first)
    assert found_last == (expected.first if expected.last is None else expected.last)
    assert tail.settled == expected.settled
    assert type(tail.state) is type(expected.state)


@settings(deadline=None)
@given(st.lists(st.one_of(WIDTHS, FLAG, st.text(max_size=5), st.just(AmqpArray(0x51, [Byte(1)]))), max_size=12))
def test_fields(fields) -> None:
    for raw in (encode(fields), wide(fields)):
        assert frame_fields(raw, 0, len(raw)) == fields


@settings(deadline=None)
@given(
    st.binary(min_size=1, max_size=60).map(lambda raw: b"\xc0" + raw),
    st.integers(min_value=0, max_value=61),
)
def test_scanners_raise_nothing_but_protocol_errors(raw, end) -> None:
    """The bytes behind `end` are another frame's and must not be read as fields."""
    for scan in (scan_transfer, scan_disposition, list_bounds):
        try:
            found = scan(raw, 0, min(end, len(raw)))
        except ProtocolError:
            continue
        assert found[-1] <= min(end, len(raw))


def read_transfer(raw: bytes) -> TransferTail:
    _, _, _, count, place, stop = scan_transfer(raw, 0, len(raw))
    return TransferTail(raw[place:stop], count, scan_fields(raw, place, stop, count))


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_transfer_cut_anywhere_is_an_error(cut) -> None:
    raw = encode([UInt(1), UInt(70_000), b"tag", UInt(0), False])
    with pytest.raises(ProtocolError):
        read_transfer(raw[:-cut])


@settings(deadline=None)
@given(
    st.integers(min_value=0, max_value=0xFFFF),
    NUMBER,
    NUMBER,
    st.binary(max_size=32),
    st.booleans(),
    st.booleans(),
    st.binary(max_size=20),
)
def test_quick_transfers_are_what_the_encoder_means(
    channel, handle, delivery_id, tag, settled, more, payload
) -> None:
    head = transfer_head(
        34 + len(tag) + len(payload),
        transfer_prefix(channel, handle, len(tag)),
        delivery_id,
        bytes((0xA0, len(tag))) + tag,
        transfer_end(settled, more),
    )
    written = head + payload
    assert int.from_bytes(written[:4], "big") == len(written)
    general = frame(channel, Transfer(handle, delivery_id, tag, 0, settled, more), payload=payload)
    ours, place = decode(written, 8)
    theirs, _ = decode(general, 8)
    assert written[4:8] == general[4:8]
    assert ours.value[:6] == theirs.value[:6]
    assert ours.value[6:] == [None] * 5
    assert written[place:] == payload


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=0xFFFF), st.booleans(), NUMBER, NUMBER, st.text(max_size=400))
def test_quick_dispositions_are_what_the_encoder_means(channel, role, first, last, text) -> None:
    outcome = Rejected(AmqpError("amqp:not-allowed", text))
    written = disposition(channel, role, first, last, outcome.encoded())
    assert int.from_bytes(written[:4], "big") == len(written)
    general = frame(channel, Disposition(role, first, last, True, outcome))
    assert decode(written, 8)[0] == decode(general, 8)[0]
    assert decode(written, 8)[1] == len(written)
    assert written[4:8] == general[4:8]


def test_flow_round_trip() -> None:
    flow = Flow(1, 2, 3, 4, 5, 6, 7, 8, True, True)
    raw = frame(0, flow)
    back = Flow.from_fields(frame_fields(raw, 11, len(raw)))
    assert vars(back) == vars(flow) if hasattr(back, "__dict__") else back.fields() == flow.fields()


def test_states_from_symbolic_descriptors() -> None:
    raw = b"\x00\xa3\x12amqp:accepted:list\x45"
    assert state_from(decode(raw, 0)[0]).code() == 0x24
