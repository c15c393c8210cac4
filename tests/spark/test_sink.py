"""Frames as messages: each row once, in every kind of delivery."""

from __future__ import annotations

import json
import shutil

import pytest
from azure.servicebus import ServiceBusSubQueue
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.sdk.python.bus import text
from tests.spark.kit import Kit


def _bodies(kit: Kit, queue: str, count: int) -> list[str]:
    return sorted(text(message) for message in kit.drain(queue, count))


def _nothing_left(kit: Kit, queue: str) -> bool:
    return kit.read(queue).count() == 0


def test_a_stream_from_queue_to_queue_arrives_once_also_when_its_last_batch_is_repeated(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    sent = kit.fill(origin, 300)
    frame = kit.stream(origin, maxMessagesPerTrigger=150).select("body", "partition_key", "message_id")
    kit.to_bus(frame, target)
    commits = kit.folder / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{last}*"):
        path.unlink()  # as if the driver had died between publishing and writing that down
    kit.to_bus(frame, target)
    assert _bodies(kit, target, len(sent)) == sorted(sent)
    assert _nothing_left(kit, target)


def test_a_new_checkpoint_takes_the_producer_over(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    kit.fill(origin, 20)
    first = kit.stream(origin, cursor="one").select("body")
    kit.to_bus(first, target, "one", producerName="copy")
    kit.to_bus(kit.stream(origin, cursor="two").select("body"), target, "two", producerName="copy")
    kit.fill(origin, 20, first=20)
    with pytest.raises(PySparkException, match="has taken the producer 'copy' over"):
        kit.to_bus(first, target, "one", producerName="copy")
    assert kit.read(target).count() == 40


def test_idempotent_rows_are_sent_once_however_often_the_batch_runs(kit: Kit) -> None:
    target = kit.queue(requires_duplicate_detection=True)
    origin = kit.queue("-from")
    kit.fill(origin, 100)
    frame = kit.stream(origin).selectExpr("body", "partition_key", "partition % 2 as half")
    counted = frame.groupBy("half").count().selectExpr("cast(count as string) as body", "cast(half as string) as message_id")
    plain = frame.drop("half").repartition(2)
    for name, rows, mode in (("counted", counted, "complete"), ("plain", plain, "append")):
        query = (
            rows.writeStream.format("servicebus")
            .options(**kit._options(target, {"delivery": "idempotent", "waitSeconds": 30}))
            .outputMode(mode)
            .trigger(availableNow=True)
        )
        del query, name
    kit.to_bus(plain, target, "plain", delivery="idempotent")
    shutil.rmtree(kit.folder / "plain" / "commits")
    kit.to_bus(plain, target, "plain", delivery="idempotent")
    assert kit.read(target).count() == 100
