"""What passes between a partition's broker and its messaging store: rows, batches of changes, and reads."""

from __future__ import annotations

from typing import Final

Row = tuple[bytes, bytes]

NO_LIMIT: Final = 1 << 62


class Batch:
    """What one commit writes: range deletes first, then puts and deletes in the order they were added."""

    __slots__ = ("bytes", "ops", "ranges")

    def __init__(self) -> None:
        self.ranges: list[tuple[bytes, bytes]] = []
        self.ops: list[tuple[bytes, bytes | None]] = []
        self.bytes = 0

    def put(self, key: bytes, value: bytes) -> None:
        self.ops.append((key, value))
        self.bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self.ops.append((key, None))
        self.bytes += len(key)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Removes start <= key < end, as it stood before this batch."""
        self.ranges.append((start, end))

    def __bool__(self) -> bool:
        return bool(self.ops or self.ranges)


class Get:
    """Asks for the values of these keys; the answer has the same length, None where there is none."""

    __slots__ = ("keys",)

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys


class Scan:
    """Asks for the rows with start <= key < end in key order, at most `limit` rows and about `max_bytes`.

    At least one row is given where there is one, whatever its size.
    """

    __slots__ = ("end", "limit", "max_bytes", "start")

    def __init__(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> None:
        self.start = start
        self.end = end
        self.limit = limit
        self.max_bytes = max_bytes


Read = Get | Scan
