"""Frames as messages: each row once, in every kind of delivery."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.sdk.python.bus import text
from tests.spark.kit import Kit


def _forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the sink's commit and before Spark wrote that down."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)


def test_a_stream_from_queue_to_queue_arrives_once_also_when_its_last_batch_is_repeated(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    sent = kit.fill(origin, 300)
    frame = kit.stream(origin, maxMessagesPerTrigger=150).select("body", "partition_key", "message_id")
    kit.to_bus(frame, target)
    _forget_last_commit(kit.folder / "checkpoint")
    kit.to_bus(frame, target)
    received = kit.drain(target, len(sent))
    assert sorted(text(message) for message in received) == sorted(sent)
    assert {message.partition_key for message in received} == {f"key {number}" for number in range(50)}
    assert kit.read(target).count() == 0


def test_a_new_checkpoint_takes_the_producer_over_and_the_old_one_is_fenced(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    kit.fill(origin, 20)
    first = kit.stream(origin, cursor="one").select("body")
    kit.to_bus(first, target, "one", producerName=target)
    kit.to_bus(kit.stream(origin, cursor="two").select("body"), target, "two", producerName=target)
    kit.fill(origin, 20, first=20)
    with pytest.raises(StreamingQueryException, match="has taken the producer"):
        kit.to_bus(first, target, "one", producerName=target)
    assert kit.read(target).count() == 40


def test_idempotent_rows_are_there_once_also_after_a_shuffle_is_repeated(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to", requires_duplicate_detection=True)
    kit.fill(origin, 100)
    frame = kit.stream(origin).select("body").repartition(2)
    kit.to_bus(frame, target, delivery="idempotent")
    _forget_last_commit(kit.folder / "checkpoint")
    kit.to_bus(frame, target, delivery="idempotent")
    assert kit.read(target).count() == 100


def test_at_least_once_sends_again_what_is_repeated(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    kit.fill(origin, 40)
    frame = kit.stream(origin).select("body")
    kit.to_bus(frame, target, delivery="atLeastOnce")
    _forget_last_commit(kit.folder / "checkpoint")
    kit.to_bus(frame, target, delivery="atLeastOnce")
    assert kit.read(target).count() == 80


def test_columns_become_the_parts_of_a_message(kit: Kit) -> None:
    queue = kit.queue(requires_session=True)
    frame = kit.spark.sql(
        "select 'hello' as body, 's1' as session_id, 'm1' as message_id, 'sub' as subject, 'corr' as correlation_id,"
        " 'text/plain' as content_type, map('a', '1') as properties, 42 as extra, 3600 as time_to_live"
    )
    kit.write(frame, queue, unknownColumns="properties")
    (row,) = kit.read(queue).collect()
    assert (bytes(row.body), row.session_id, row.message_id, row.subject) == (b"hello", "s1", "m1", "sub")
    assert (row.correlation_id, row.content_type, row.properties) == ("corr", "text/plain", {"a": "1", "extra": "42"})
    assert (row.expires_at - row.enqueued_time).total_seconds() == 3600


def test_a_row_that_breaks_a_rule_is_shown_in_the_error_and_nothing_is_sent(kit: Kit) -> None:
    queue = kit.queue()
    frame = kit.spark.sql(
        "select 'good' as body, 'k' as session_id union all select 'odd', repeat('x', 200)"
    ).coalesce(1)
    with pytest.raises(PySparkException, match=r"more than 128 characters.*odd"):
        kit.write(frame, queue)
    assert kit.read(queue).count() == 0


def test_bad_rows_are_put_aside_with_their_reason(kit: Kit) -> None:
    queue, aside = kit.queue(), kit.queue("-bad")
    frame = kit.spark.sql(
        "select 'good' as body, 'k' as message_id union all select 'long', repeat('x', 200)"
        " union all select repeat('y', 300000), 'huge' union all select cast(null as string), 'none'"
    ).coalesce(1)
    kit.write(frame, queue, badRows=aside)
    assert [bytes(row.body) for row in kit.read(queue).collect()] == [b"good"]
    found = {
        json.loads(row.body.decode())["message_id"][:4] if len(row.body) < 1000 else "huge": row.properties["reason"]
        for row in kit.read(aside).collect()
    }
    assert "more than 128" in found["xxxx"]
    assert "null" in found["none"]
    assert "300" in found["huge"]
