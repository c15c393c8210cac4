"""Batches are taken apart in several turns of the loop, in order and whole; what they hold is the same as at once."""

from __future__ import annotations

import itertools

import pytest

from polybus import limits
from polybus.errors import PolybusError
from polybus.gateway.amqp.sent_messages import Batch, batch_messages
from polybus.gateway.http.properties import parse_json
from polybus.message.message import build


def batch_of(count: int) -> bytes:
    raws = [build(str(number).encode()).raw for number in range(count)]
    return b"".join(b"\x00\x53\x75\xa0" + bytes((len(raw),)) + raw for raw in raws)


def test_a_batch_is_taken_apart_a_few_messages_at_a_time() -> None:
    batch = Batch(batch_of(1_000))
    sizes = [0]
    while not batch.take_apart():
        sizes.append(len(batch.messages))
    assert max(after - before for before, after in itertools.pairwise(sizes)) <= limits.AMQP_TURN_DISPOSED
    assert [message.raw for message in batch.messages] == [m.raw for m in batch_messages(batch_of(1_000))]
    assert len(batch.messages) == 1_000


def test_a_batch_has_as_many_messages_as_the_cloud_takes() -> None:
    assert len(batch_messages(batch_of(limits.AMQP_BATCH_MESSAGES))) == 4_500
    with pytest.raises(PolybusError, match="4500"):
        batch_messages(batch_of(limits.AMQP_BATCH_MESSAGES + 1))


def test_a_long_text_of_json_has_few_values() -> None:
    dense = "[" + "1," * (limits.JSON_DENSE_BYTES // 2) + "1]"
    with pytest.raises(PolybusError, match="too many values"):
        parse_json(dense, "body")
    with pytest.raises(PolybusError, match="too many values"):
        parse_json(dense.encode(), "body")
    long = '["' + "x" * (2 * limits.JSON_DENSE_BYTES) + '"]'
    assert len(parse_json(long, "body")[0]) == 2 * limits.JSON_DENSE_BYTES
