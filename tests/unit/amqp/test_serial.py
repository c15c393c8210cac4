"""Serial numbers, the settlement ranges and the buffer of unread bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.amqp.inbox import Inbox
from polybus.amqp.outbox import Settlements, serial_distance
from polybus.amqp.outcomes import ACCEPTED_BYTES, RELEASED_BYTES
from tests.protocol.peer import parse_frame


@pytest.mark.parametrize(
    ("first", "last", "distance"),
    [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, -1),
        (0xFFFF_FFFF, 0, 1),
        (0, 0xFFFF_FFFF, -1),
        (5, 5 + 0x7FFF_FFFF, 0x7FFF_FFFF),
        (0, 0x8000_0000, -0x8000_0000),
    ],
)
def test_distance(first, last, distance) -> None:
    assert serial_distance(first, last) == distance


@given(st.lists(st.tuples(st.integers(min_value=0, max_value=6), st.booleans()), max_size=40))
def test_ranges_say_exactly_what_was_settled(settled) -> None:
    out: list[bytes] = []
    settlements = Settlements(out, 3, True)
    expected = []
    for delivery_id, accepted in settled:
        settlements.add(delivery_id, ACCEPTED_BYTES if accepted else RELEASED_BYTES)
        expected.append((delivery_id, 0x24 if accepted else 0x26))
    settlements.flush()
    said = []
    for raw in out:
        one = parse_frame(raw)
        assert (one.channel, one.fields[0], one.fields[3]) == (3, True, True)
        said += [(number, one.fields[4].descriptor) for number in range(one.fields[1], one.fields[2] + 1)]
    assert said == expected


def test_ranges_do_not_cross_the_wrap() -> None:
    out: list[bytes] = []
    settlements = Settlements(out, 0, False)
    settlements.add(0xFFFF_FFFF, ACCEPTED_BYTES)
    settlements.add(0, ACCEPTED_BYTES)
    settlements.flush()
    settlements.flush()
    assert len(out) == 2


def test_inbox_hands_out_what_is_whole() -> None:
    inbox = Inbox()
    assert inbox.join(b"abc") == b"abc"
    inbox.keep(b"c", 3)
    assert inbox.join(b"d") == b""
    assert inbox.join(b"") == b""
    assert inbox.join(b"ef") == b"cdef"
    assert inbox.join(b"g") == b"g"
    inbox.keep(b"h", 100)
    assert inbox.take() == b"h"
    assert inbox.take() == b""
