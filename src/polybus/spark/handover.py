"""Rows that leave the planning process together with the plan of their batch, so that no task has to run Python.

Spark does this for readers of its simple kind: beside the partitions it takes rows, and keeps them where the batch's
one task finds them. Whether a reader is of that kind it asks with `isinstance` after each plan. Ours answers for
itself: it is while it has rows to hand over, and else an ordinary one whose tasks read. A task that does not find the
rows, because an executor was lost, reads them as always. Where Spark has no such kind, tasks read everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from polybus.errors import PolybusError

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as BringsRows
except ImportError:
    BringsRows = None


class Handover:
    """What a stream reader inherits to hand rows over."""

    def __init__(self) -> None:
        self._rows: list[Any] | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self) if self._rows is None or BringsRows is None else BringsRows

    def hand_over(self, read: Callable[[], Iterator[Any]], most_bytes: int) -> bool:
        """Reads a batch of one partition now; False where that fails or is too much, and it is left to a task."""
        self._rows = None
        rows: list[Any] = []
        left = most_bytes
        try:
            for batch in read() if BringsRows is not None else ():
                rows.append(batch)
                left -= batch.nbytes
                if left < 0:
                    return False
        except (PolybusError, OSError):
            return False  # what is the matter a task finds out, and Spark has its own ways to tell
        if rows:
            self._rows = rows
        return bool(rows)

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any] | None:  # noqa: N802, ARG002
        """The rows of the batch that was just planned, once."""
        rows, self._rows = self._rows, None
        return None if rows is None else iter(rows)
