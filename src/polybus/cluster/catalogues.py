"""The catalogue of a bus of several members: one writes it, the others follow.

The leader's side hands out copies of all rows and then each batch in order. The follower's side is a catalogue whose
rows are in memory: it is read like any other, and what is written to it goes to the leader. A write is over when every
member that follows has applied it, so whoever has changed something finds it changed wherever it asks next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

from polybus.cluster.link import Link
from polybus.cluster.peers import Caller, Peers, ask
from polybus.cluster.values import Reader
from polybus.errors import PolybusError, ServerBusy, StoreError
from polybus.hosting.catalogue import META, Catalogue, Changes, decode
from polybus.limits import LINK_RETRY_MS_MAX, MEMBER_APPLY_MS
from polybus.partition.records import after
from polybus.promise import Loop, Promise, rejected, resolved, settles_within, spawn
from polybus.rows import Batch, Row
from polybus.store.base import Store

Followed = Callable[[Batch | None], Promise[None]]
"""Applies a batch to what is in memory; None where any row may be another."""


def batch_values(batch: Batch) -> list[object]:
    return [[list(pair) for pair in batch.ranges], [list(op) for op in batch.ops]]


def batch_of(reader: Reader) -> Batch:
    batch = Batch()
    for each in reader.readers():
        batch.delete_range(each.data(), each.data())
    for each in reader.readers():
        key, value = each.data(), each.data_or_none()
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    return batch


class CatalogueFeed:
    """The leader's side."""

    def __init__(self, catalogue: Catalogue, peers: Peers, loop: Loop) -> None:
        self._catalogue = catalogue
        self._loop = loop
        self._followers: dict[Link, None] = {}
        self._opened: Promise[None] = Promise()
        self.on_followed: Followed | None = None
        """Applies what another member has written to this one's memory."""
        catalogue.on_opened = self.opened
        catalogue.on_written = self._written
        peers.serve("catalogue.follow", lambda caller, _: spawn(self._copy(caller.link)))
        peers.serve("catalogue.write", self._write)
        peers.serve("catalogue.incarnation", lambda _, __: spawn(self._incarnation()))

    def opened(self) -> None:
        """The catalogue can be read from now on."""
        if not self._opened.settled:
            self._opened.resolve(None)

    async def _copy(self, link: Link) -> list[object]:
        await self._opened
        await self._catalogue.hold()
        try:
            rows = await self._catalogue.all_rows()
        finally:
            self._loop.call_soon(
                self._catalogue.let_go
            )  # after the answer has left: what is written then comes after it
        if not link.closed and link not in self._followers:
            self._followers[link] = None
            link.on_closed.append(lambda: self._forget(link))
        return [self._catalogue.revision, [list(row) for row in rows]]

    def _forget(self, link: Link) -> None:
        self._followers.pop(link, None)

    def _write(self, caller: Caller, value: Any) -> Promise[Any]:
        del caller
        changes = Changes()
        changes.batch = batch_of(Reader(value))
        return spawn(self._write_for_another(changes))

    async def _write_for_another(self, changes: Changes) -> None:
        await self._opened
        await self._catalogue.write(changes)
        if self.on_followed is not None:
            await self.on_followed(changes.batch)

    async def _incarnation(self) -> int:
        await self._opened
        return await self._catalogue.next_incarnation()

    def _written(self, revision: int, batch: Batch) -> Promise[None]:
        if not self._followers:
            return resolved(None)
        value = [revision, *batch_values(batch)]
        asked = [(link, ask(link, "catalogue.batch", value)) for link in list(self._followers)]
        return spawn(self._applied(asked))

    async def _applied(self, asked: list[tuple[Link, Promise[Any]]]) -> None:
        for link, answer in asked:
            if not await settles_within(answer, self._loop, MEMBER_APPLY_MS):
                link.close()  # it takes too long, and must not go on with what it has: it asks for a copy when it is back


class FollowedCatalogue(Catalogue):
    """The follower's side."""

    def __init__(self, peers: Peers, loop: Loop) -> None:
        super().__init__(_never)
        self.loop = loop
        self._peers = peers
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}
        self._there: Promise[None] = Promise()
        self._asking_for_copy = False
        self.on_followed: Followed | None = None
        peers.serve("catalogue.batch", self._batch)
        peers.on_connected.append(self._connected)
        peers.on_leader.append(self._follow)

    # Following

    def _connected(self, member: str) -> None:
        if member == self._peers.membership.leader():
            self._follow()

    def _follow(self) -> None:
        if not self._asking_for_copy and not self._closed:
            self._asking_for_copy = True
            self._peers.call_leader("catalogue.follow", None).then(self._copied)

    def _copied(self, promise: Promise[Any]) -> None:
        self._asking_for_copy = False
        try:
            reader = Reader(promise.result())
        except PolybusError:
            if self._peers.membership.leader() in self._peers.connected() and self.loop is not None:
                self.loop.call_later(LINK_RETRY_MS_MAX / 1000, self._follow)
            return  # the next link asks again
        self._writes = reader.number()
        self._values = {each.data(): each.data() for each in reader.readers()}
        self._keys = sorted(self._values)
        self._read_meta()
        if not self._there.settled:
            self._there.resolve(None)
        if self.on_followed is not None:
            self.on_followed(None)

    def _batch(self, caller: Caller, value: Any) -> Promise[Any]:
        """The next batch of the leader; settled when it is applied."""
        if caller.name != self._peers.membership.leader():
            return rejected(ServerBusy("Another member leads."))
        reader = Reader(value)
        revision = reader.number()
        batch = batch_of(reader)
        if revision <= self._writes:
            return resolved(None)
        self._writes = revision
        for start, end in batch.ranges:
            first, last = bisect_left(self._keys, start), bisect_left(self._keys, end)
            for key in self._keys[first:last]:
                del self._values[key]
            del self._keys[first:last]
        for key, row in batch.ops:
            self._set(key, row)
        self._read_meta()
        return resolved(None) if self.on_followed is None else self.on_followed(batch)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value
        elif self._values.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def _read_meta(self) -> None:
        value = self._values.get(META)
        if value is not None:
            meta = decode((META, value))
            self.next_entity, self.stores, self.places = meta["next_entity"], meta["stores"], meta.get("places", {})

    # What a catalogue does

    async def open(self) -> None:
        self._follow()
        await self._there

    async def rows(self, prefix: bytes) -> list[Row]:
        first, last = bisect_left(self._keys, prefix), bisect_left(self._keys, after(prefix))
        return [(key, self._values[key]) for key in self._keys[first:last]]

    async def write(self, changes: Changes) -> None:
        await self._peers.call_leader("catalogue.write", batch_values(changes.batch))

    async def next_incarnation(self) -> int:
        self.incarnation = int(await self._peers.call_leader("catalogue.incarnation", None))
        return self.incarnation

    @property
    def store(self) -> Store:
        raise ServerBusy("The catalogue is kept by another process of the bus.")

    async def hold(self) -> None:
        raise ServerBusy("The catalogue is kept by another process of the bus.")

    def close(self) -> Promise[None]:
        self._closed = True
        return resolved(None)


def _never() -> Promise[Any]:
    return rejected(StoreError("the catalogue is kept by another process of the bus"))
