"""A bounded read of what an entity holds, in each state, and what filters save."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.errors import PySparkException

from polybus.hashing import partition_for
from tests.spark.kit import Kit


def test_a_batch_read_gives_every_message_once(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 1_000)
    frame = kit.read(queue)
    rows = frame.collect()
    assert sorted(bytes(row.body).decode() for row in rows) == sorted(sent)
    assert {row.partition for row in rows} == {row.sequence_number >> 48 for row in rows}
    assert all(row.partition == partition_for(row.partition_key, 16) for row in rows)
    assert frame.columns[:3] == ["partition", "position", "sequence_number"]


def test_filters_narrow_what_is_read_and_change_nothing_about_the_answer(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 200)
    whole = kit.read(queue).collect()
    some = sorted(row.sequence_number for row in whole)[50]
    later = max(row.enqueued_time for row in whole) + timedelta(seconds=1)
    pushed = kit.read(queue, pushFilters="true")
    assert pushed.where(f"sequence_number >= {some}").count() == 150
    assert pushed.where("partition = 3").count() == sum(row.partition == 3 for row in whole)
    assert pushed.where(pushed.enqueued_time > later).count() == 0
    assert pushed.where("partition_key = 'key 7'").count() == 4


def test_every_state_can_be_read(kit: Kit) -> None:
    queue = kit.queue(enable_partitioning=False)
    soon = datetime.now(UTC) + timedelta(hours=1)
    kit.send(queue, [ServiceBusMessage(body, message_id=body) for body in ("dead", "deferred", "active", "gone")])
    kit.send(queue, [ServiceBusMessage("scheduled", scheduled_enqueue_time_utc=soon)])
    with kit.sdk.get_queue_receiver(queue) as receiver:
        held = {str(each): each for each in receiver.receive_messages(max_message_count=4, max_wait_time=10)}
        receiver.dead_letter_message(held["dead"], reason="broken", error_description="in two")
        receiver.defer_message(held["deferred"])
        receiver.complete_message(held["gone"])
        receiver.abandon_message(held["active"])
    rows = kit.read(queue, state="active|deferred|scheduled|dead-lettered").collect()
    assert sorted((row.state, bytes(row.body).decode()) for row in rows) == [
        ("active", "active"),
        ("dead-lettered", "dead"),
        ("deferred", "deferred"),
        ("scheduled", "scheduled"),
    ]
    (dead,) = kit.read(f"{queue}/$DeadLetterQueue").collect()
    assert (dead.dead_letter_reason, dead.dead_letter_description) == ("broken", "in two")


def test_an_entity_that_is_not_there_is_named(kit: Kit) -> None:
    with pytest.raises(PySparkException, match="nowhere"):
        kit.read("nowhere").collect()
