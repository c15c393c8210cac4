"""The catalogue of a node: it follows the node that leads, and is the catalogue itself while this node does.

Whoever has the lease on the catalogue's store leads. A node that begins to lead opens the store, which takes the lease
and raises the epoch, reads everything anew, and brings its memory in line; one that led before can write no more.
"""

from __future__ import annotations

from collections.abc import Callable

from polybus.cluster.catalogues import CatalogueFeed, FollowedCatalogue
from polybus.cluster.link import Link
from polybus.cluster.peers import Peers
from polybus.errors import ServerBusy, StoreError
from polybus.hosting.catalogue import Catalogue, Changes
from polybus.limits import LINK_RETRY_MS
from polybus.promise import Loop, Promise, pause, resolved, spawn
from polybus.rows import Batch, Row
from polybus.store.base import Store
from polybus.store.driver import StoreDriver

Opener = Callable[[], Promise[StoreDriver]]


class NodeCatalogue(FollowedCatalogue):
    def __init__(self, peers: Peers, loop: Loop, opener: Opener) -> None:
        super().__init__(peers, loop)
        self._opener = opener
        self._leading = False
        self._beginning = False
        self.on_lead: Callable[[], None] | None = None
        """Called when this node has begun to lead, and its memory is to be brought in line."""
        self.on_held: Callable[[], None] | None = None
        """Called when the store was opened or closed here."""
        NodeFeed(self, peers, loop).on_followed = self._applied

    def _applied(self, batch: Batch | None) -> Promise[None]:
        return resolved(None) if self.on_followed is None else self.on_followed(batch)

    @property
    def leading(self) -> bool:
        return self._leading

    @property
    def held(self) -> Store | None:
        """The catalogue's store while it is open here."""
        return None if self._driver is None else self._driver.store

    # Who leads

    def _follow(self) -> None:
        """Somebody leads: this node or another one."""
        if self._peers.leads:
            if not self._leading and not self._beginning:
                self._beginning = True
                spawn(self._lead()).then(self._began)
        elif self._leading:
            self._step_down()
        else:
            super()._follow()

    async def _lead(self) -> None:
        assert self.loop is not None, "a node has a loop"
        while self._peers.leads and not self._closed:
            try:
                await Catalogue.open(self)
            except (StoreError, ServerBusy):
                await self._drop()
                await pause(self.loop, LINK_RETRY_MS)
                continue
            self._leading = True
            return

    def _began(self, promise: Promise[None]) -> None:
        self._beginning = False
        promise.result()
        if self.on_held is not None:
            self.on_held()
        if not self._leading:
            self._follow()
            return
        if not self._there.settled:
            self._there.resolve(None)
        elif self.on_lead is not None:
            self.on_lead()

    def _step_down(self) -> None:
        self._leading = False
        self._drop().then(lambda _: self._stepped_down())

    def _stepped_down(self) -> None:
        if self.on_held is not None:
            self.on_held()
        self._follow()

    def lost(self) -> None:
        """The lease is over: nothing may be written any more, and another node may lead."""
        if self._leading:
            self._step_down()

    # What a catalogue does

    async def rows(self, prefix: bytes) -> list[Row]:
        if self._driver is not None:
            return await Catalogue.rows(self, prefix)
        return await super().rows(prefix)

    async def write(self, changes: Changes) -> None:
        if self._leading:
            await Catalogue.write(self, changes)
        elif self._peers.leads:
            raise ServerBusy("The catalogue is not available.")
        else:
            await super().write(changes)

    async def next_incarnation(self) -> int:
        if self._leading:
            return await Catalogue.next_incarnation(self)
        if self._peers.leads:
            raise ServerBusy("The catalogue is not available.")
        return await super().next_incarnation()

    async def _is_there(self) -> bool | None:
        """As far as this node leads; else the one that leads now knows, and whoever asks must look there."""
        assert self.loop is not None, "a node has a loop"
        self._asking = True
        try:
            while self._leading and not self._closed:
                there = await self._look()
                if there is not None:
                    return there
                await pause(self.loop, LINK_RETRY_MS)
            return None
        finally:
            self._asking = False

    @property
    def store(self) -> Store:
        return self._require().store

    async def hold(self) -> None:
        if not self._leading:
            await super().hold()
        await Catalogue.hold(self)

    def close(self) -> Promise[None]:
        self._closed = True
        self._leading = False
        return self._drop()


class NodeFeed(CatalogueFeed):
    """The leader's side, on every node: one that does not lead says so."""

    def __init__(self, catalogue: NodeCatalogue, peers: Peers, loop: Loop) -> None:
        super().__init__(catalogue, peers, loop)
        self._node = catalogue
        catalogue.on_opened = None
        self.opened()

    async def _copy(self, link: Link) -> list[object]:
        self._check()
        return await super()._copy(link)

    async def _write_for_another(self, changes: Changes) -> None:
        self._check()
        await super()._write_for_another(changes)

    async def _incarnation(self) -> int:
        self._check()
        return await super()._incarnation()

    def _check(self) -> None:
        if not self._node.leading:
            raise ServerBusy("Another node leads. Try again.")
