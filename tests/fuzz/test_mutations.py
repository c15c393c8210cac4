"""A slice of random input for each run: noise, and valid frames with something changed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.amqp.codec import encode
from polybus.amqp.frames import EMPTY_FRAME, frame
from polybus.amqp.outcomes import ACCEPTED, AmqpError, Modified, Rejected, TransactionalState
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.amqp.types import Symbol
from tests.fuzz.invariants import check_codec, check_connection
from tests.unit.amqp.values import VALUES

FIRST = 1 << 20
RANDOM_ROUNDS = 6_000

SEEDS = [
    frame(1, Transfer(0, 0, b"a", 0), payload=b"one"),
    frame(1, Transfer(0, 1, b"b", 0, more=True), payload=b"two"),
    frame(1, Transfer(0, 1, b"b", 0), payload=b"three"),
    frame(1, Transfer(0, 2, b"c", 0, state=TransactionalState(b"t", None)), payload=b"x"),
    frame(1, Transfer(0, 3, b"d", 0, aborted=True)),
    frame(1, Flow(FIRST, 10, 2, 10, 1, 0, 5)),
    frame(1, Flow(FIRST, 0, 2, 10, 1, 0, 50, drain=True, echo=True)),
    frame(1, Flow(None, 10, 2, 10, echo=True)),
    frame(1, Disposition(True, FIRST, FIRST + 3, False, ACCEPTED)),
    frame(1, Disposition(True, FIRST, None, True, Modified(True, True, {Symbol("a"): 1}))),
    frame(1, Disposition(True, FIRST, None, False, Rejected(AmqpError("a:b", "c", {Symbol("k"): "v"})))),
    frame(1, Disposition(False, 0, 3, True)),
    frame(1, Attach("x", 2, True, Source("q", {Symbol("f"): None}), Target("t"))),
    frame(1, Attach("y", 3, False, Source("q"), Coordinator())),
    frame(1, Detach(0, True)),
    frame(1, Detach(1)),
    frame(1, End(AmqpError("a:b"))),
    frame(2, Begin(5, 1, 1)),
    frame(0, Open("again")),
    frame(0, Close()),
    EMPTY_FRAME,
]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """`data` with a few bytes changed, cut, doubled or moved."""
    raw = bytearray(data)
    for _ in range(rng.randrange(4)):
        place = rng.randrange(len(raw) + 1)
        choice = rng.randrange(4)
        if choice == 0 and place < len(raw):
            raw[place] = rng.choice((0, 1, 0x40, 0x45, 0x7F, 0x80, 0xC0, 0xD0, 0xFF, rng.randrange(256)))
        elif choice == 1:
            del raw[place : place + rng.randrange(4)]
        elif choice == 2:
            raw[place:place] = raw[place : place + rng.randrange(8)]
        else:
            raw[place:place] = bytes((rng.randrange(256),))
    return bytes(raw)


@pytest.mark.parametrize("seed", range(8))
def test_changed_frames_in_any_order(seed) -> None:
    rng = random.Random(seed)
    for _ in range(RANDOM_ROUNDS // 8):
        frames = [rng.choice(SEEDS) for _ in range(rng.randrange(1, 12))]
        changed = b"".join(mutate(one, rng) if rng.random() < 0.4 else one for one in frames)
        check_connection(bytes((rng.randrange(256), rng.randrange(256))) + changed)


NEAR = [0, 1, 2, 3, 5, FIRST, FIRST + 1, FIRST + 3, FIRST - 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]


def traffic(rng: random.Random) -> bytes:
    """A frame of the kinds that come by the thousand, with numbers near those that matter."""
    handle, yes, no = rng.randrange(3), rng.random() < 0.5, rng.random() < 0.1
    choice = rng.randrange(4)
    if choice == 0:
        tag = b"t" * rng.choice((0, 1, 4, 16))
        payload = b"x" * rng.choice((0, 10, 400, 1_001))
        state = TransactionalState(b"t", None) if no else None
        return frame(1, Transfer(0, rng.randrange(6), tag, 0, yes, no, state, no and yes), payload=payload)
    if choice == 1:
        return frame(1, Flow(FIRST, rng.choice((0, 1, 5, 100)), 0, 10, 1, 0, rng.randrange(9), None, no, yes))
    if choice == 2:
        first = rng.choice(NEAR) if no else FIRST + rng.randrange(6)
        last = rng.choice(NEAR) if no else first + rng.randrange(4)
        return frame(1, Disposition(True, first, last & 0xFFFF_FFFF, yes, ACCEPTED))
    if no:
        return frame(1, rng.choice((Detach(handle, yes), Attach("x", handle, yes, Source("q"), Target("t")))))
    return frame(1, Flow(rng.choice(NEAR), rng.choice(NEAR), rng.choice(NEAR), 5, None, echo=yes))


@pytest.mark.parametrize("seed", range(8))
def test_traffic_with_any_numbers(seed) -> None:
    rng = random.Random(seed)
    for _ in range(RANDOM_ROUNDS // 20):
        frames = [traffic(rng) for _ in range(rng.randrange(1, 60))]
        check_connection(bytes((4 + 5 * rng.randrange(50), rng.randrange(256))) + b"".join(frames))


@pytest.mark.parametrize("seed", range(4))
def test_changed_values(seed) -> None:
    rng = random.Random(seed)
    values = [one[8:] for one in SEEDS if len(one) > 8] + [encode([[{Symbol("k"): [1, "x"]}]] * 3)]
    for _ in range(RANDOM_ROUNDS):
        check_codec(mutate(rng.choice(values), rng))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise_for_the_codec(data) -> None:
    check_codec(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_noise_for_the_connection(data) -> None:
    check_connection(data)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(range(0x10, 0x19)), VALUES, st.integers(min_value=0, max_value=4))
def test_any_value_as_a_performative(code, value, start) -> None:
    body = b"\x00\x53" + bytes((code,)) + encode(value)
    raw = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x01" + body
    check_connection(bytes((start, 255)) + raw)
