"""Every performative reads back what it writes, with the number of fields that older SDKs count on."""

from __future__ import annotations

import pytest

from polybus.amqp.codec import decode, encode
from polybus.amqp.fields import descriptor_code
from polybus.amqp.outcomes import ACCEPTED, AmqpError, Received, state_from
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open
from polybus.amqp.sasl import Init, Mechanisms, SaslOutcome
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.amqp.types import Symbol, UByte, UInt, ULong, symbol_array
from polybus.errors import ProtocolError

ERROR = AmqpError("amqp:not-found", "missing", {Symbol("k"): "v"})
MAP: dict[object, object] = {Symbol("product"): "x"}

FULL = [
    (Open("id", "host", 512, 7, 1000, MAP), Open, 10),
    (Begin(1, 2, 3, 4, 5, MAP), Begin, 8),
    (
        Attach("n", 1, True, Source("s", {Symbol("f"): "v"}), Target("t"), 1, 0, 5, 6, MAP, symbol_array(["c"])),
        Attach,
        14,
    ),
    (Attach("n", 1, False, None, Coordinator(symbol_array(["amqp:local-transactions"]))), Attach, 14),
    (Flow(1, 2, 3, 4, 5, 6, 7, 8, True, True), Flow, 11),
    (Transfer(1, 2, b"t", 3, True, True, ACCEPTED, True), Transfer, 11),
    (Disposition(True, 1, 2, True, ACCEPTED), Disposition, 6),
    (Detach(1, True, ERROR), Detach, 3),
    (End(ERROR), End, 1),
    (Close(ERROR), Close, 1),
    (Mechanisms(["PLAIN", "EXTERNAL"]), Mechanisms, 1),
    (Init("PLAIN", b"secret", "host"), Init, 3),
    (SaslOutcome(3), SaslOutcome, 2),
]


@pytest.mark.parametrize(("performative", "kind", "count"), FULL)
def test_full_performatives_come_back(performative, kind, count) -> None:
    fields = performative.fields()
    assert len(fields) == count
    wire, _ = decode(encode(fields), 0)
    back = kind.from_fields(wire)
    assert encode(back.fields()) == encode(fields)
    assert back.code() == performative.code()


def test_defaults_of_fields_that_are_left_out() -> None:
    opened = Open.from_fields([])
    assert (opened.container_id, opened.max_frame_size, opened.channel_max) == ("", 0xFFFF_FFFF, 0xFFFF)
    assert opened.idle_time_out is None
    assert Begin.from_fields([None, UInt(1), UInt(2), UInt(3)]).handle_max == 0xFFFF_FFFF
    attach = Attach.from_fields(["n", UInt(1), False])
    assert (attach.snd_settle_mode, attach.source, attach.target, attach.properties) == (None, None, None, None)
    assert SaslOutcome.from_fields([]).outcome == 2
    assert Detach.from_fields([UInt(1)]).closed is False


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("open", 0x10),
        ("begin", 0x11),
        ("attach", 0x12),
        ("flow", 0x13),
        ("transfer", 0x14),
        ("disposition", 0x15),
        ("detach", 0x16),
        ("end", 0x17),
        ("close", 0x18),
        ("error", 0x1D),
        ("received", 0x23),
        ("accepted", 0x24),
        ("rejected", 0x25),
        ("released", 0x26),
        ("modified", 0x27),
        ("source", 0x28),
        ("target", 0x29),
        ("coordinator", 0x30),
        ("declare", 0x31),
        ("discharge", 0x32),
        ("declared", 0x33),
        ("transactional-state", 0x34),
        ("sasl-mechanisms", 0x40),
        ("sasl-init", 0x41),
        ("sasl-challenge", 0x42),
        ("sasl-response", 0x43),
        ("sasl-outcome", 0x44),
    ],
)
def test_symbolic_descriptors(name, code) -> None:
    assert descriptor_code(Symbol(f"amqp:{name}:list")) == code
    assert descriptor_code(ULong(code)) == code


@pytest.mark.parametrize("descriptor", [None, UByte(0x24), 5, Symbol("amqp:unknown:list"), b"amqp:open:list"])
def test_unknown_descriptors(descriptor) -> None:
    assert descriptor_code(descriptor) == -1


def test_received_keeps_its_place() -> None:
    state = state_from(decode(Received(3, 1 << 40).encoded(), 0)[0])
    assert isinstance(state, Received)
    assert (state.section_number, state.section_offset) == (3, 1 << 40)


@pytest.mark.parametrize("value", [True, "1", -1, 1 << 32, 1.5, b"1"])
def test_numbers_must_be_numbers_in_range(value) -> None:
    with pytest.raises(ProtocolError) as caught:
        Flow.from_fields([None, value, UInt(0), UInt(0)])
    assert caught.value.condition == "amqp:invalid-field"
