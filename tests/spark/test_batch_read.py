"""A bounded read of what an entity holds."""

from __future__ import annotations

from tests.spark.kit import Kit


def test_a_batch_read_gives_every_message_once(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 1_000)
    frame = kit.read(queue)
    rows = frame.collect()
    assert sorted(bytes(row.body).decode() for row in rows) == sorted(sent)
    assert {row.partition for row in rows} == {row.sequence_number >> 48 for row in rows}
    assert frame.columns[:3] == ["partition", "position", "sequence_number"]
