"""A messaging store that another member owns: what its owner tells of it, and what can be asked of it.

For whoever shows, probes and places stores it is a store like any other. It never commits here: brokers of its
partitions are where it is open. While its owner cannot be reached it is missing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from polybus.cluster.values import Reader, Values
from polybus.errors import BugError, StoreError
from polybus.hosting.store_host import StoreHost, StoreState
from polybus.limits import MEMBER_START_MS
from polybus.partition.output import Output
from polybus.promise import Loop, Promise, rejected, resolved, spawn
from polybus.rows import Read, Row
from polybus.store.driver import StoreDriver

T = TypeVar("T")


class StoreOwner(Protocol):
    """Whoever keeps the link to the store's owner."""

    def ask_store(self, url: str, verb: str, value: object) -> Promise[object]:
        """Does something with the store at its owner; PartitionUnavailable where that cannot be reached."""


def store_facts(store: StoreHost, faults: object) -> Values:
    """What the owner tells of a store."""
    return [
        store.url,
        store.store_id,
        store.state.value,
        store.last_error,
        store.full,
        store.free_bytes,
        store.unsafe,
        store.openings,
        store.commits,
        store.committed_bytes,
        store.commit_failures,
        faults,
    ]


class RemoteStore(StoreHost):
    def __init__(self, url: str, loop: Loop, owner: StoreOwner) -> None:
        super().__init__(url, loop, _never)
        self.elsewhere = True
        self.last_error = UNREACHED
        self.faults: dict[str, object] = {}
        """Which fault switches are on, as its owner told."""
        self._owner = owner
        self._unsafe = False
        self._known: list[Promise[bool]] = []

    @property
    def unsafe(self) -> bool:
        return self._unsafe

    @property
    def overloaded(self) -> bool:
        return False  # its owner says so to each send

    # What its owner tells

    def told(self, reader: Reader) -> None:
        """Takes what `store_facts` gave, after the address."""
        was_available = self.available
        self.store_id = reader.data()
        self.state = StoreState(reader.text())
        self.last_error = reader.text_or_none()
        self.full, self.free_bytes, self._unsafe = reader.flag(), reader.number_or_none(), reader.flag()
        self.openings, self.commits = reader.number(), reader.number()
        self.committed_bytes, self.commit_failures = reader.number(), reader.number()
        self.faults = reader.properties() or {}
        if self.available and not was_available and self.on_opened is not None:
            self.on_opened(self)
        elif was_available and not self.available and self.on_fenced is not None:
            self.on_fenced(self)
        if self.state is not StoreState.OPENING:
            self._tell_known(self.available)

    def lost(self) -> None:
        """Its owner cannot be reached."""
        self.state = StoreState.MISSING
        self.last_error = UNREACHED

    def _tell_known(self, is_open: bool) -> None:
        known, self._known = self._known, []
        for promise in known:
            if not promise.settled:
                promise.resolve(is_open)

    # What is asked of it

    def open(self) -> Promise[bool]:
        """Its owner opens it by itself; settled when it is known whether it has."""
        if self.available:
            return resolved(True)
        done: Promise[bool] = Promise()
        self._known.append(done)
        self._loop.call_later(MEMBER_START_MS / 1000, self._give_up, done)
        return done

    def _give_up(self, done: Promise[bool]) -> None:
        if not done.settled:
            self._known.remove(done)
            done.resolve(False)

    def probe(self) -> Promise[None]:
        return spawn(self._asked("probe", None))

    def synced(self) -> Promise[None]:
        return spawn(self._asked("synced", None))

    def delete_rows(self, prefix: bytes) -> Promise[None]:
        return spawn(self._asked("delete_rows", prefix))

    def has_rows(self, prefix: bytes) -> Promise[bool]:
        return spawn(self._has_rows(prefix))

    def marks_about(self, prefix: bytes) -> Promise[list[Row]]:
        return spawn(self._marks_about(prefix))

    def remove_rows(self, keys: list[bytes]) -> Promise[None]:
        return spawn(self._asked("remove_rows", list(keys)))

    def recover(self) -> Promise[None]:
        """Asks its owner to open it and to bring its partitions up."""
        return spawn(self._asked("recover", None))

    def fault(self, name: str, value: list[object]) -> Promise[None]:
        """Turns a fault switch of it."""
        return spawn(self._asked("fault", [name, *value]))

    async def _asked(self, verb: str, value: object) -> None:
        await self._owner.ask_store(self.url, verb, value)

    async def _has_rows(self, prefix: bytes) -> bool:
        return bool(await self._owner.ask_store(self.url, "has_rows", prefix))

    async def _marks_about(self, prefix: bytes) -> list[Row]:
        reader = Reader(await self._owner.ask_store(self.url, "marks_about", prefix))
        return [(each.data(), each.data()) for each in (Reader(reader.items()) for _ in reader.left())]

    # What only an owner does

    def touch(self) -> None:
        raise BugError("only its owner writes to a messaging store")

    def run(self, steps: Generator[Read, list[object], T]) -> Promise[T]:
        del steps
        return rejected(self.unavailable())

    def fence(self, error: StoreError, failed: Output | None) -> None:
        raise BugError(f"only its owner fences a messaging store: {error} {failed}")

    def hold(self) -> Promise[None]:
        return rejected(self.unavailable())

    def let_go(self) -> None:
        """It was not held."""

    def close(self) -> Promise[None]:
        """Its owner closes it."""
        return resolved(None)


UNREACHED = "the process that owns it cannot be reached"


def _never() -> Promise[StoreDriver]:
    return rejected(StoreError("a messaging store of another process is opened by that one"))
