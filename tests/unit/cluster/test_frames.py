"""Frames are input: whatever comes, nothing but a ProtocolError leaves the reader, and its memory is bounded."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.cluster import verbs
from polybus.cluster.frames import GREETING, MAGIC, NO_ANSWER, OLDEST, VERSION, Frame, FrameReader, greeting
from polybus.cluster.link import Link
from polybus.cluster.owner import _ASKED, _TOLD, Owner
from polybus.cluster.remote_partition import RemotePartitions
from polybus.errors import PolybusError, ProtocolError
from polybus.limits import CLUSTER_FRAME_BYTES
from polybus.promise import Promise
from tests.unit.cluster.remote_world import RemoteWorld

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8) | st.binary(max_size=24),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
FRAMES = st.builds(
    Frame,
    st.integers(1, verbs.LAST),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 16) - 1),
    st.integers(0, (1 << 64) - 1),
    st.lists(VALUES, max_size=6),
)

EMPTY = b"\x00\x53\x75\xa0\x00"
"""A message without anything in it."""


def fields(frame: Frame) -> tuple[object, ...]:
    return frame.verb, frame.entity_id, frame.index, frame.correlation, frame.value


@given(st.lists(FRAMES, max_size=5), st.integers(0, 1 << 30))
@settings(max_examples=150, deadline=None)
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[Frame], seed: int) -> None:
    data = greeting() + b"".join(frame.to_bytes() for frame in frames)
    reader, found, rng = FrameReader(verbs.LAST), [], Random(seed)
    while data:
        cut = rng.randint(1, len(data))
        found += reader.feed(data[:cut])
        data = data[cut:]
    assert [fields(frame) for frame in found] == [fields(frame) for frame in frames]


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    for start in (b"", greeting()):
        try:
            FrameReader(verbs.LAST).feed(start + data)
        except ProtocolError:
            continue


@given(FRAMES, st.integers(0, 1 << 30))
@settings(max_examples=300, deadline=None)
def test_a_damaged_frame_is_refused_or_read_as_another(frame: Frame, seed: int) -> None:
    data, rng = bytearray(frame.to_bytes()), Random(seed)
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    try:
        FrameReader(verbs.LAST).feed(greeting() + bytes(data))
    except ProtocolError:
        return


def test_a_frame_that_announces_too_much_is_refused_before_it_is_kept() -> None:
    reader = FrameReader(verbs.LAST)
    with pytest.raises(ProtocolError, match="a frame of"):
        reader.feed(greeting() + struct.pack(">I", CLUSTER_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"AMQP\x00\x01\x00\x00",
        GREETING.pack(MAGIC, VERSION + 1, VERSION + 1),
        GREETING.pack(MAGIC, OLDEST - 1, OLDEST - 1),
    ],
)
def test_a_peer_of_another_kind_or_version_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameReader(verbs.LAST).feed(data)


def test_a_newer_peer_that_still_understands_us_is_taken() -> None:
    reader = FrameReader(verbs.LAST)
    assert reader.feed(GREETING.pack(MAGIC, VERSION + 3, VERSION)) == []
    assert reader.version == VERSION


def test_an_older_peer_is_spoken_to_in_its_own_version() -> None:
    reader = FrameReader(verbs.LAST)
    assert reader.feed(GREETING.pack(MAGIC, OLDEST, OLDEST)) == []
    assert reader.version == OLDEST < VERSION


def test_every_verb_of_a_client_is_known_to_its_owner() -> None:
    owners = {verbs.ANSWER, verbs.REFUSAL, verbs.HERE, verbs.SEARCHED} | set(range(verbs.SERVES, verbs.TAKE_SELECTED))
    owners |= {verbs.HELLO, verbs.CALL, verbs.STORE}  # between members, not about a partition
    assert set(_ASKED) | set(_TOLD) == set(range(1, verbs.LAST + 1)) - owners
    assert not set(_ASKED) & set(_TOLD)


@pytest.mark.parametrize("seed", range(6))
def test_nonsense_from_a_client_never_gets_past_its_owners_link(seed: int) -> None:
    """The partition goes on serving others; the link that sent it is cut, or told what is wrong."""
    world = RemoteWorld(1)
    entity = world.queue("q", requires_session=bool(seed % 2))
    rng = Random(seed)
    for _ in range(150):
        link = Link(world.world.loop, lambda data: None, lambda: None)
        Owner(link, lambda entity_id, index: world.hosts.get((entity_id, index)), world.world.clock)
        verb = rng.randint(1, verbs.LAST)
        value: list[object] = [
            rng.choice(
                [0, 1, 5, -1, 1 << 40, "x", b"y", None, [], [1, 2], [[b"k", 1]], {}, True, [b"\x00\x53\x75\xa0\x00"]]
            )
            for _ in range(rng.randint(0, 7))
        ]
        frame = Frame(verb, entity.id, 0, rng.choice((NO_ANSWER, 7)), value)
        try:
            link.feed(greeting() + frame.to_bytes())
        except ProtocolError:
            assert link.closed
        world.run(0.01)
        link.lose()
    world.run(60)
    (number,) = world.sent("q", "still here", session_id="s")
    assert number > 0


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_from_an_owner_never_gets_past_the_link(seed: int) -> None:
    world = RemoteWorld(1)
    entity = world.queue("q")
    rng = Random(seed)
    for _ in range(150):
        link = Link(world.world.loop, lambda data: None, lambda: None)
        remote = RemotePartitions(link).add(entity.id, 0, entity.settings, world.bus.stores[0])
        asked: Promise[object] = remote.log_end(0)  # type: ignore[assignment]
        value: list[object] = [
            rng.choice([0, -1, "x", b"y", None, [], [1], [[1]], {}]) for _ in range(rng.randint(0, 5))
        ]
        verb = rng.choice((verbs.ANSWER, verbs.REFUSAL, *range(verbs.SERVES, verbs.LAST + 1)))
        frame = Frame(verb, entity.id, 0, rng.choice((1, 2, 3, 99)), value)
        try:
            link.feed(greeting() + frame.to_bytes())
        except ProtocolError:
            assert link.closed
        link.lose()
        assert asked.settled
        with pytest.raises(PolybusError):
            asked.result()
            raise ProtocolError("x", "a well-formed answer is no failure")
