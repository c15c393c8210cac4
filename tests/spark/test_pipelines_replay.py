"""Replays: rows of a lake back into an entity, chosen and paced, each once for each run."""

from __future__ import annotations

import itertools
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polybus.pipelines.epochs import Epoch, last_epoch, send_epoch
from polybus.pipelines.kind import Context
from polybus.pipelines.replay import ReplayKind
from polybus.pipelines.runner import PipelineFailed
from polybus.spark.columns import COLUMNS, arrow_schema
from tests.spark.kit import Kit
from tests.spark.pipelines_kit import checkpoint, declared, run

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def lake(kit: Kit, count: int, seconds: float = 1.0, name: str = "lake") -> None:
    """A folder of rows as somebody else could have written it, one each so many seconds from noon on."""
    empty = dict.fromkeys(COLUMNS)
    rows = [
        {
            **empty,
            "partition": number % 4,
            "position": number,
            "sequence_number": number,
            "delivery_count": 0,
            "enqueued_time": NOON + timedelta(seconds=number * seconds),
            "message_id": f"id {number}",
            "partition_key": f"key {number % 5}",
            "subject": "even" if number % 2 == 0 else "odd",
            "properties": [("number", str(number))],
            "body": f"message {number}".encode(),
        }
        for number in range(count)
    ]
    folder = kit.folder / name
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(tuple(COLUMNS))), folder / "rows.parquet")


def to(queue: str) -> dict[str, Any]:
    """What was sent can be seen when the run is over."""
    return {"entity": queue, "options": {"waitSeconds": 30}}


def replay(queue: str, **fields: Any) -> dict[str, Any]:
    return {"name": "again", "kind": "replay", "from": {"path": "lake"}, "to": to(queue), **fields}


def bodies(kit: Kit, queue: str, state: str = "active") -> list[str]:
    return sorted(bytes(row.body).decode() for row in kit.read(queue, state=state).collect())


def expected(*numbers: int) -> list[str]:
    return sorted(f"message {number}" for number in numbers)


def test_a_run_sends_everything_once_however_often_it_is_started(kit: Kit) -> None:
    queue = kit.queue()
    lake(kit, 100)
    first = run(kit, replay(queue, maxMessages=30))
    assert first.metrics.get("polybus_pipeline_job", pipeline="again", figure="messages") == 100
    again = run(kit, replay(queue, maxMessages=30))
    assert again.metrics.get("polybus_pipeline_job", pipeline="again", figure="messages") == 0
    assert bodies(kit, queue) == expected(*range(100))
    rows = kit.read(queue).collect()
    assert {(row.partition_key, row.subject, row.properties["number"]) for row in rows} == {
        (f"key {n % 5}", "even" if n % 2 == 0 else "odd", str(n)) for n in range(100)
    }


def test_rows_are_chosen_by_time_key_and_sql(kit: Kit) -> None:
    by_time, by_key, by_words, by_query = (kit.queue(f"-{name}") for name in ("time", "key", "where", "sql"))
    lake(kit, 20)
    shared = {"kind": "replay", "from": {"path": "lake"}}
    run(
        kit,
        {
            **shared,
            "name": "t",
            "to": to(by_time),
            "between": {"from": "2026-01-31T12:00:05Z", "to": "2026-01-31T12:00:08Z"},
        },
        {**shared, "name": "k", "to": to(by_key), "keys": ["key 1", "key 2"]},
        {**shared, "name": "w", "to": to(by_words), "where": "subject = 'odd' and position < 6"},
        {
            **shared,
            "name": "q",
            "to": to(by_query),
            "sql": "select upper(cast(body as string)) as body, enqueued_time, 's' as session_id from lake"
            " where position = 3",
        },
    )
    assert bodies(kit, by_time) == expected(5, 6, 7)
    assert bodies(kit, by_key) == expected(*(n for n in range(20) if n % 5 in (1, 2)))
    assert bodies(kit, by_words) == expected(1, 3, 5)
    assert bodies(kit, by_query) == ["MESSAGE 3"]
    (row,) = kit.read(by_query).collect()
    assert row.session_id == "s"


def test_a_run_goes_on_where_it_was_broken_off_whatever_the_lake_has_become(kit: Kit) -> None:
    queue = kit.queue()
    lake(kit, 60)
    pipeline = replay(queue, maxMessages=20)
    kind = declared(kit, pipeline).pipelines[0]
    assert isinstance(kind, ReplayKind)
    folder = checkpoint(kit, "again")
    folder.mkdir(parents=True)
    context = Context(folder, once=True)

    def stop_after_the_first_step(line: str) -> None:
        context.stopping.set()

    context.say = stop_after_the_first_step
    assert kind.run(kit.spark, context) == {"messages": 20}
    lake(kit, 5)
    again = run(kit, pipeline)
    assert again.metrics.get("polybus_pipeline_job", pipeline="again", figure="messages") == 40
    assert bodies(kit, queue) == expected(*range(60))


def test_a_step_that_was_published_and_not_noted_is_not_sent_again(kit: Kit) -> None:
    """The driver dies between publishing and everything after it: the bus remembers the epoch."""
    queue = kit.queue()
    lake(kit, 10)
    frame = kit.spark.read.parquet(str(kit.folder / "lake")).select("body", "message_id")
    (kind,) = declared(kit, replay(queue)).pipelines
    (target,) = kind.entities()
    assert last_epoch(target, "other", "1") == -1
    assert send_epoch(frame, target, Epoch("other", "1", 0))
    assert not send_epoch(frame, target, Epoch("other", "1", 0))
    assert last_epoch(target, "other", "1") == 0
    assert last_epoch(target, "other", "2") == -1
    assert bodies(kit, queue) == expected(*range(10))


def test_a_run_whose_plan_is_lost_is_refused_and_another_name_is_another_run(kit: Kit) -> None:
    queue = kit.queue()
    lake(kit, 10)
    run(kit, replay(queue))
    shutil.rmtree(checkpoint(kit, "again") / "1")
    with pytest.raises(PipelineFailed, match="give the run another name"):
        run(kit, replay(queue))
    assert bodies(kit, queue) == expected(*range(10))
    run(kit, replay(queue, run="2"))
    assert bodies(kit, queue) == sorted(2 * expected(*range(10)))


def test_with_a_speed_rows_are_scheduled_as_far_apart_as_they_were(kit: Kit) -> None:
    queue = kit.queue()
    lake(kit, 10, seconds=3600)
    run(kit, replay(queue, speed=36, window="1h", keepIds=False))
    rows = kit.read(queue, state="active|scheduled", columns="body,state,scheduled_enqueue_time").collect()
    waiting = sorted(row.scheduled_enqueue_time for row in rows if row.state == "scheduled")
    assert {bytes(row.body).decode() for row in rows} == set(expected(*range(10)))
    assert len(waiting) >= 9
    assert {round((after - before).total_seconds()) for before, after in itertools.pairwise(waiting)} == {100}


def test_what_a_capture_wrote_is_replayed_in_order_of_each_key(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to", requires_session=True)
    frame = kit.spark.range(200).selectExpr("cast(id as string) as body", "concat('s', id % 7) as session_id")
    kit.write(frame.coalesce(1), origin)
    run(kit, {"name": "cap", "kind": "capture", "from": origin, "to": {"path": "captured"}, "maxMessages": 50})
    run(kit, {"name": "again", "kind": "replay", "from": {"path": "captured"}, "to": to(target), "maxMessages": 60})
    rows = kit.read(target).orderBy("partition", "position").collect()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.session_id, []).append(int(row.body))
    assert found == {f"s{key}": list(range(key, 200, 7)) for key in range(7)}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"from": {"path": "nowhere"}}, "there is no such folder"),
        ({"sql": "select body from lake"}, "must have the column 'enqueued_time'"),
        ({"where": "no_such_column = 1"}, "no_such_column"),
    ],
)
def test_what_cannot_be_replayed_is_told(kit: Kit, fields: dict[str, Any], said: str) -> None:
    lake(kit, 1)
    with pytest.raises(PipelineFailed, match=said):
        run(kit, replay(kit.queue(), **fields))
