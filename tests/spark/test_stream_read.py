"""Messages as a stream: each once, whatever happens to the query, and nobody else disturbed."""

from __future__ import annotations

import json
import threading

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.kit import Kit


def test_a_stream_gives_each_message_once_over_several_runs(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 500)
    query = kit.to_files(kit.stream(queue, maxMessagesPerTrigger=200))
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in batches] == [200, 200, 100]
    sent |= kit.fill(queue, 100, first=500)
    kit.to_files(kit.stream(queue, maxMessagesPerTrigger=200))
    assert kit.files() == sorted(sent)


def test_a_batch_that_ended_is_acknowledged_and_the_progress_tells_the_lag(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 90)
    query = kit.run(kit.stream(queue, maxMessagesPerTrigger=50), "noop")
    cursor = kit.bus(queue).cursor("spark")
    ends = {end.index: end.stable_end for end in kit.bus(queue).log().ends}
    assert cursor is not None
    assert cursor.positions == ends
    first = next(progress for progress in query.recentProgress if progress["numInputRows"])
    latest = first["sources"][0]["latestOffset"]
    told = latest if isinstance(latest, dict) else json.loads(latest)
    assert sum(told["p"].values()) == 90


def test_what_receivers_settle_meanwhile_is_read_all_the_same(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 20)
    kit.to_files(kit.stream(queue))
    sent = kit.fill(queue, 150, first=20)
    received = kit.drain(queue, 170)
    assert len(received) == 170
    kit.to_files(kit.stream(queue))
    assert kit.files() == sorted(sent | {f"message {number}" for number in range(20)})


def test_a_lost_checkpoint_goes_on_from_the_cursor(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 60)
    kit.run(kit.stream(queue), "noop", "first")
    more = kit.fill(queue, 40, first=60)
    kit.to_files(kit.stream(queue, takeLease="true"), checkpoint="second")
    assert kit.files() == sorted(more)


def test_with_a_cursor_for_each_checkpoint_a_fresh_one_reads_everything_again(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 30)
    kit.run(kit.stream(queue, cursorPerCheckpoint="true"), "noop", "first")
    sent = kit.fill(queue, 10, first=30) | {f"message {number}" for number in range(30)}
    kit.to_files(kit.stream(queue, cursorPerCheckpoint="true"), checkpoint="second")
    assert kit.files() == sorted(sent)
    again = kit.run(kit.stream(queue, cursorPerCheckpoint="true"), "noop", "first")
    assert sum(progress["numInputRows"] for progress in again.recentProgress) == 10
    names = [each["name"] for each in kit.bus(queue).cursors()]
    assert len(names) == 2
    assert all(name.startswith("spark-") for name in names)


def test_a_first_batch_that_is_repeated_leaves_one_cursor(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 10)
    stream = kit.stream(queue, cursorPerCheckpoint="true")
    kit.run(stream, "noop")
    for path in (kit.folder / "checkpoint" / "commits").iterdir():
        path.unlink()
    again = kit.run(stream, "noop")
    assert sum(progress["numInputRows"] for progress in again.recentProgress) == 10
    assert len(kit.bus(queue).cursors()) == 1


def test_an_entity_created_again_is_a_loss_unless_that_was_agreed(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 10)
    kit.to_files(kit.stream(queue))
    kit.admin.delete_queue(queue)
    kit.queue()
    sent |= kit.fill(queue, 30, first=10)
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        kit.to_files(kit.stream(queue))
    kit.to_files(kit.stream(queue, failOnDataLoss="false"))
    assert kit.files() == sorted(sent)


def test_a_second_query_cannot_have_the_same_cursor(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 10)
    frame = kit.stream(queue)
    running = frame.writeStream.format("noop").option("checkpointLocation", str(kit.folder / "one")).start()
    running.processAllAvailable()
    with pytest.raises(StreamingQueryException, match="Each query needs a cursor of its own"):
        kit.run(kit.stream(queue), "noop", "two")
    kit.fill(queue, 10, first=10)
    running.processAllAvailable()
    assert running.exception() is None
    running.stop()


def test_receivers_and_a_stream_work_the_same_queue_at_once(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 100)
    query = (
        kit.stream(queue, maxMessagesPerTrigger=60)
        .writeStream.format("parquet")
        .option("path", str(kit.folder / "out"))
        .option("checkpointLocation", str(kit.folder / "checkpoint"))
        .start()
    )
    query.processAllAvailable()  # from here on the cursor holds what receivers complete
    received: list[str] = []
    worker = threading.Thread(target=lambda: received.extend(str(each) for each in kit.drain(queue, 300)))
    worker.start()
    sent |= kit.fill(queue, 200, first=100)
    worker.join()
    query.processAllAvailable()
    query.stop()
    assert sorted(received) == sorted(sent)
    assert kit.files() == sorted(sent)


def test_a_topic_and_a_subscription_can_be_streamed(kit: Kit) -> None:
    topic = kit.topic("all")
    kit.to_files(kit.stream(topic), "topic", "topic-checkpoint")  # a topic keeps a log from its first cursor on
    sent = kit.fill(topic, 40)
    kit.to_files(kit.stream(topic), "topic", "topic-checkpoint")
    kit.to_files(kit.stream(f"{topic}/Subscriptions/all"), "subscription", "subscription-checkpoint")
    assert kit.files("topic") == sorted(sent)
    assert kit.files("subscription") == sorted(sent)
