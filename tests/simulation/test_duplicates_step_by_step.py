"""Ids by which duplicates are told, one situation at a time."""

from __future__ import annotations

from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import parse_address
from polybus.partition import records
from polybus.partition.broker import Steps
from polybus.partition.reading import rows_of
from polybus.rows import Scan
from tests.support.inside import host_of
from tests.support.simulation.small_world import Inbox, SmallWorld

WINDOW_MS = 20_000


def watchful(small: SmallWorld, **settings: str) -> Entity:
    return small.queue(
        "q",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window_ms=WINDOW_MS,
        **settings,  # type: ignore[arg-type]
    )


def ids(small: SmallWorld, entity: Entity) -> int:
    """How many ids the store holds."""
    prefix = records.partition_prefix(entity.id, 0) + records.DUPLICATE_IDS

    def count() -> Steps[int]:
        return len(rows_of((yield Scan(prefix, records.after(prefix), 100))))

    return small.answer(host_of(entity.partitions[0]).run(count()))


def test_ids_are_forgotten_where_messages_are_never_locked() -> None:
    """No lock sets a timer there: sending itself has to."""
    small = SmallWorld(1)
    entity = watchful(small)
    box = Inbox(10, deletes=True)
    entity.source(parse_address("q")).want(box)
    for number in range(10):
        small.sent("q", "x", message_id=str(number))
    assert len(box.got) == 10
    assert ids(small, entity) == 10
    small.run(2 * WINDOW_MS / 1000)
    assert ids(small, entity) == 0


def test_ids_are_forgotten_where_messages_only_pass_through() -> None:
    small = SmallWorld(1)
    small.queue("end")
    entity = watchful(small, forward_to="end")
    small.sent("q", "x", message_id="1")
    small.run(2 * WINDOW_MS / 1000)
    assert small.bodies("end") == ["x"]
    assert ids(small, entity) == 0
