"""Messages taken out by their numbers and sent elsewhere: out of a dead-letter queue, back to where they were."""

from __future__ import annotations

from polybus.errors import PolybusError
from polybus.message.edit import Edit
from polybus.message.message import Message
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.numbering import partition_of


class MoveReport:
    """What became of the numbers that were to be moved."""

    def __init__(self) -> None:
        self.moved: list[int] = []
        self.missing: list[int] = []
        """Gone, or never there."""
        self.locked: list[int] = []
        self.unreachable: list[int] = []
        """In partitions that could not move them now; asking again is safe."""


async def move_messages(
    namespace: Namespace,
    entity: Entity,
    log_id: int,
    numbers: list[int],
    changed: dict[int, Message],
    edits: dict[int, Edit],
    destination: str,
    subscription: int,
) -> MoveReport:
    """Moves messages to an entity, or to one subscription. Those of one partition leave in one batch."""
    del namespace
    report = MoveReport()
    by_partition: dict[int, list[int]] = {}
    for number in dict.fromkeys(numbers):
        by_partition.setdefault(partition_of(number), []).append(number)
    failure: PolybusError | None = None
    for index, own in by_partition.items():
        if index >= len(entity.partitions):
            report.missing += own
            continue
        try:
            moved = await entity.partitions[index].move(log_id, own, changed, edits, destination, subscription)
        except PolybusError as error:
            failure = error
            report.unreachable += own
        else:
            report.moved += moved.moved
            report.missing += moved.missing
            report.locked += moved.locked
    if failure is not None and not report.moved:
        raise failure
    return report
