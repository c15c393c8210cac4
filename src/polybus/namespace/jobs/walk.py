"""A walk over all messages of a log, page by page and partition by partition, past stores that are away."""

from __future__ import annotations

from polybus.errors import PartitionUnavailable
from polybus.limits import BULK_STEP_BYTES, BULK_STEP_ROWS
from polybus.message.peeked import Peeked
from polybus.namespace.entities.entity import Entity
from polybus.namespace.jobs.choice import Choice
from polybus.namespace.namespace import Namespace
from polybus.numbering import before_first


class Walk:
    def __init__(
        self, namespace: Namespace, entity: Entity, log_id: int, choice: Choice, indexes: list[int], first: int = 1
    ) -> None:
        self.looked = 0
        """Messages that were looked at, chosen or not."""
        self.unreachable: list[int] = []
        """Partitions whose messages, or the rest of them, could not be looked at."""
        self._namespace = namespace
        self._entity = entity
        self._log_id = log_id
        self._choice = choice
        self._indexes = indexes
        self._next = first

    @property
    def done(self) -> bool:
        return not self._indexes

    @property
    def next(self) -> int:
        """The sequence number to begin with, for one who goes on later; while the walk is not done."""
        return max(self._next, before_first(self._indexes[0]))

    def leave(self) -> None:
        """Goes on with the next partition: nothing can be done to this one's messages now."""
        if self._indexes:
            self._indexes.pop(0)

    async def page(self, rows: int = BULK_STEP_ROWS) -> tuple[int, list[Peeked]]:
        """The chosen ones among the next messages, all of one partition, and which partition that is."""
        index = self._indexes[0]
        try:
            peeked = await self._peek(index, rows)
        except PartitionUnavailable:
            self.unreachable.append(index)
            peeked = []
        if peeked:
            self._next = peeked[-1].marks.sequence + 1
        else:
            self._indexes.pop(0)
        self.looked += len(peeked)
        return index, [each for each in peeked if self._choice.takes(each)]

    async def _peek(self, index: int, rows: int) -> list[Peeked]:
        first = max(self._next, before_first(index))
        return await self._entity.partitions[index].peek(self._log_id, first, rows, BULK_STEP_BYTES, None)
