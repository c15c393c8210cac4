"""The one seam between the bus and its messaging stores.

A messaging store is an ordered map from bytes to bytes with atomic, durable batches. Everything above it
(queues, sessions, indexes) is keys and values made by `partition.records`; everything below it (files,
databases, syncs) lives in this room and nowhere else. Calls block; `store.driver` moves them off the event
loop where they can be slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from polybus.rows import NO_LIMIT, Batch, Get, Read, Row, Scan
from polybus.store.lease import Lease

__all__ = ["NO_LIMIT", "Batch", "Get", "Read", "Row", "Scan", "Store"]


class Copy(ABC):
    """A copy of a store in the making, in steps, so that those of several stores can show one moment.

    Making the copy does what takes long beforehand, `fix` chooses the moment and is quick, `save` writes while the
    store goes on. `close` leaves nothing behind but what `save` has written.
    """

    @abstractmethod
    def fix(self) -> None: ...

    @abstractmethod
    def save(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Store(ABC):
    """One messaging store. `commit` is called by one thread at a time; reads may come from any thread."""

    url: str
    """How the user named it, without secrets."""
    store_id: bytes
    """16 bytes written into the store when it was made; the catalogue records placement by it."""
    reads_block: bool
    """True where a read may wait on a disk or a network: the caller then keeps it off the event loop."""
    volatile: bool = False
    """True where everything is gone when the process ends."""
    lease: Lease | None = None
    """Until when this process may act as the store's owner; None where nobody else can be."""
    epoch: int = 0
    """Raised with each opening by whoever may be another owner; 0 where there is only one."""
    unsafe: bool
    """True where `commit` returns before the data is safe; shown in health and metrics."""

    @abstractmethod
    def get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    @abstractmethod
    def scan(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Row]: ...

    @abstractmethod
    def commit(self, batch: Batch) -> None:
        """Writes the batch, all or nothing, and returns only when it is synced.

        StoreFull: nothing was written and the store goes on. Any other failure fences the store: every
        later commit raises StoreFenced until it is opened again, for after a failed sync nobody knows what
        the disk holds.
        """

    def begin(self, batch: Batch) -> bool:
        """The first half of a commit, where a store has one that waits for nothing: everything but the sync. `finish`
        must follow, on any thread. False where there is nothing of the kind, or no time for it: nothing was done, and
        `commit` is to be called instead. It fails as `commit` does.
        """
        del batch
        return False

    def finish(self, batch: Batch) -> None:
        """The second half of a commit that was begun: what `commit` promises holds when this returns."""
        raise AssertionError(f"no commit of {batch} was begun")

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Free space where it can be known, else None."""

    def reclaim(self) -> None:
        """Gives back what rows still take that are deleted, as far as that takes little space itself. Called while
        space is short."""
        return

    @abstractmethod
    def copy(self, target: Path) -> Copy:
        """A copy into the folder `target`, which must not exist, about to be made."""

    def checkpoint(self, target: Path) -> None:
        """Writes a consistent copy of the store into the folder `target`, which must not exist."""
        copy = self.copy(target)
        try:
            copy.fix()
            copy.save()
        finally:
            copy.close()

    @abstractmethod
    def close(self) -> None: ...
