"""What happened to messages, read from the bus into a table: each event once.

Tasks read the partitions' events from where the last run ended. A run is written under its number, and the journal
says how far it came only when it is written: a run that dies in between is done again under the same number. Where the
journal is lost, the table itself tells how far it goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from polybus.limits import EVENTS_KEPT, EVENTS_PER_READ
from polybus.pipelines.places import EntityReference

SCHEMA: Final = (
    "entity_id string, partition int, event bigint, sequence_number bigint, change string, time timestamp,"
    " delivery_count int, reason string, enqueued_time timestamp"
)


@dataclass(frozen=True)
class Journal:
    """How far events were read."""

    entity_id: str
    run: int
    next: dict[int, int]
    """Partition to the first event that was not read."""

    def first(self, partition: int) -> int:
        return self.next.get(partition, 1)


def load_journal(path: Path, entity_id: str) -> Journal | None:
    """The journal; its places count only for the same entity, for another one numbers its events anew."""
    if not path.exists():
        return None
    told = json.loads(path.read_text())
    places = {int(index): first for index, first in told["next"].items()} if told["entity_id"] == entity_id else {}
    return Journal(entity_id, told["run"], places)


def run_folder(table: Path, run: int) -> Path:
    return table / f"run={run:012d}"


def last_run(table: Path) -> int:
    """The last run that was written to its end; 0 where there is none. Spark marks what is whole."""
    found = [path for path in table.glob("run=*") if (path / "_SUCCESS").exists()]
    return max((int(path.name.partition("=")[2]) for path in found), default=0)


def save_journal(path: Path, journal: Journal) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps({"entity_id": journal.entity_id, "run": journal.run, "next": journal.next}))
    beside.replace(path)


def advanced(journal: Journal, spans: Mapping[int, tuple[int, int]]) -> tuple[Journal, int]:
    """The journal after a run that read from a first to a last event of each partition, and how many were gone.

    Events go when there are too many of them. What went before the first run was nobody's.
    """
    lost = sum(max(first - journal.next[index], 0) for index, (first, _) in spans.items() if index in journal.next)
    places = {**journal.next, **{index: last + 1 for index, (_, last) in spans.items()}}
    return Journal(journal.entity_id, journal.run + 1, dict(sorted(places.items()))), lost


def read_batches(entity: EntityReference, entity_id: str, batches: Iterator[Any]) -> Iterator[Any]:
    """For `mapInArrow`: rows (partition, first) in, events out."""
    bus = entity.open(retry_seconds=30)
    try:
        for batch in batches:
            for row in batch.to_pylist():
                for page in _pages(bus, row["partition"], row["first"]):
                    yield _arrow(entity_id, row["partition"], page)
    finally:
        bus.close()


def _pages(bus: Any, partition: int, first: int) -> Iterator[list[dict[str, Any]]]:
    """Events from one on, to the end; a bus that writes faster than this reads is left at some point."""
    last = first + EVENTS_KEPT
    while first < last:
        told = bus.events(partition, first, EVENTS_PER_READ)
        if not told["events"]:
            return
        yield told["events"]
        first = told["next"]


def _arrow(entity_id: str, partition: int, events: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    def times(name: str) -> Any:
        return pa.array([datetime.fromisoformat(event[name]) for event in events], pa.timestamp("us", tz="UTC"))

    columns = {
        "entity_id": pa.array([entity_id] * len(events), pa.string()),
        "partition": pa.array([partition] * len(events), pa.int32()),
        "event": pa.array([event["event"] for event in events], pa.int64()),
        "sequence_number": pa.array([event["sequence_number"] for event in events], pa.int64()),
        "change": pa.array([event["change"] for event in events], pa.string()),
        "time": times("time"),
        "delivery_count": pa.array([event["delivery_count"] for event in events], pa.int32()),
        "reason": pa.array([event["reason"] for event in events], pa.string()),
        "enqueued_time": times("enqueued_time"),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
