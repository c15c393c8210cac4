"""The links of one member to all others: made, kept, made again, and what is asked and told over them.

A member is a client on the links that it makes and an owner on those that it is given. Beside the verbs of partitions
there are two kinds of frames: what an owner tells of its stores, and calls, which are a name and a value. Who answers a
call says so once; anything that members do together is built of calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from polybus.asyncio_bridge import from_promise
from polybus.clock import Clock
from polybus.cluster import verbs
from polybus.cluster.frames import Frame
from polybus.cluster.link import Link, LinkLost
from polybus.cluster.membership import Member, Membership, Ownership
from polybus.cluster.owner import Find, Owner
from polybus.cluster.remote_partition import RemotePartition, RemotePartitions
from polybus.cluster.remote_store import RemoteStore, store_facts
from polybus.cluster.values import Reader, nonsense
from polybus.errors import PartitionUnavailable, PolybusError, ProtocolError
from polybus.hosting.local_partition import LocalPartition
from polybus.hosting.store_host import StoreHost
from polybus.limits import LINK_PING_MS, LINK_RETRY_MS, LINK_RETRY_MS_MAX, LINK_SILENT_MS, MEMBER_TELL_MS
from polybus.partition.settings import EntitySettings
from polybus.promise import Loop, Promise, rejected, resolved, spawn

log = logging.getLogger(__name__)


class Caller:
    """Who calls, and the link on which it is told things."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.name = ""
        """Known after its greeting."""


Handler = Callable[[Caller, Any], Promise[Any]]
"""Answers a call: given the caller and the value, it promises plain values."""


class Peer:
    """Another member, as a client of it."""

    def __init__(self, member: Member, link: Link) -> None:
        self.member = member
        self.link = link
        """The last one, which may be closed."""
        self.partitions = RemotePartitions(link)
        self.keeping: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return not self.link.closed


class Peers:
    def __init__(
        self, loop: Loop, membership: Membership, clock: Clock, find: Find, silent_ms: int = LINK_SILENT_MS
    ) -> None:
        """`find` gives partitions of this process; `silent_ms` is how long another member may take to answer."""
        self._loop = loop
        self.membership = membership
        self._clock = clock
        self._find = find
        self._silent_ms = silent_ms
        self._peers: dict[str, Peer] = {}
        self._owners: dict[Link, Owner] = {}
        self._handlers: dict[str, Handler] = {"ping": lambda _, value: resolved(value), "store": self._store_asked}
        self._own: dict[str, StoreHost] = {}
        self.stores: dict[str, RemoteStore] = {}
        """Stores of other members, by address."""
        self.store_verbs: dict[str, Callable[[StoreHost, Any], Promise[Any]]] = dict(_STORE_VERBS)
        """What others may ask of stores of this member, by name."""
        self.faults_of: Callable[[StoreHost], object] = lambda _: {}
        """Which fault switches of a store of this member are on."""
        self.on_connected: list[Callable[[str], None]] = []
        """Called with the name of a member when a link to it is there."""
        self.on_ownership: Callable[[Ownership], None] | None = None
        self.on_leader: list[Callable[[], None]] = []
        self._telling: asyncio.Task[None] | None = None
        membership.listener = self

    # Members

    def start(self) -> None:
        """Begins to make links; `accepted` takes those of others."""
        self.members_changed()
        self._telling = asyncio.ensure_future(self._tell_counters())

    async def stop(self) -> None:
        tasks = [peer.keeping for peer in self._peers.values() if peer.keeping is not None]
        tasks += [self._telling] if self._telling is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in self._peers.values():
            peer.link.close()
        for link in list(self._owners):
            link.close()

    def members_changed(self) -> None:
        known = {member.name: member for member in self.membership.members() if member.name != self.membership.me}
        for name, peer in list(self._peers.items()):
            if known.get(name) != peer.member and peer.keeping is not None:
                peer.keeping.cancel()
                peer.keeping = None
                peer.link.close()
        for member in known.values():
            peer = self.peer(member.name)
            peer.member = member
            if peer.keeping is None:
                peer.keeping = asyncio.ensure_future(self._keep(peer))

    def owner_changed(self, ownership: Ownership) -> None:
        if self.on_ownership is not None:
            self.on_ownership(ownership)

    def leader_changed(self) -> None:
        for listener in list(self.on_leader):
            listener()

    def peer(self, name: str) -> Peer:
        """What is known of another member; there also before its first link, and after its last."""
        found = self._peers.get(name)
        if found is None:
            found = self._peers[name] = Peer(Member(name, ""), dead_link(self._loop))
        return found

    def connected(self) -> list[str]:
        """Names of the members to which there is a link now."""
        return [name for name, peer in self._peers.items() if peer.connected]

    @property
    def leads(self) -> bool:
        return self.membership.leader() == self.membership.me

    # Links that this member makes

    async def _keep(self, peer: Peer) -> None:
        """Makes a link, waits until it breaks, and so on."""
        wait_ms = LINK_RETRY_MS
        while True:
            try:
                link = await self.membership.connect(peer.member)
                await self._greet(peer, link)
            except (OSError, PolybusError) as error:
                log.debug("no link to %s: %s", peer.member.name, error)
                await asyncio.sleep(wait_ms / 1000)
                wait_ms = min(wait_ms * 2, LINK_RETRY_MS_MAX)
                continue
            wait_ms = LINK_RETRY_MS
            await self._watch(link)

    async def _greet(self, peer: Peer, link: Link) -> None:
        """The first question on a link: who this is. Then the link is the peer's."""
        greeted: Promise[None] = Promise()

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            del reader
            if error is None:
                greeted.resolve(None)
            else:
                greeted.reject(error)

        def lost() -> None:
            self._lost(peer, link)

        link.on_closed.append(lost)
        caller = Caller(link)
        caller.name = peer.member.name
        link.on_frame = lambda frame: self._told(caller, frame)
        link.ask(verbs.HELLO, 0, 0, [self.membership.me], answered)
        try:
            async with asyncio.timeout(self._silent_ms / 1000):
                await from_promise(greeted)
        except TimeoutError:
            link.close()
            raise LinkLost("it does not answer") from None
        if link.closed:
            raise LinkLost("it has hung up")
        peer.link = link
        peer.partitions.attach(link)
        link.on_frame = lambda frame: (
            self._told(caller, frame) if frame.verb >= verbs.HELLO else peer.partitions.arrived(frame)
        )
        for connected in list(self.on_connected):
            connected(peer.member.name)

    async def _watch(self, link: Link) -> None:
        """Asks from time to time whether the other side is there; returns when the link is gone."""
        while not link.closed:
            answered: Promise[None] = Promise()
            ask(link, "ping", None).then(_settles(answered))
            try:
                async with asyncio.timeout(self._silent_ms / 1000):
                    await from_promise(answered)
            except TimeoutError:
                log.warning("a member does not answer: its link is cut")
                link.close()
                return
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def end(ended: asyncio.Future[None] = ended) -> None:
                if not ended.done():
                    ended.set_result(None)

            link.on_closed.append(end)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINK_PING_MS / 1000):
                    await ended
            if not link.closed:
                link.on_closed.remove(end)

    def _lost(self, peer: Peer, link: Link) -> None:
        if peer.link is link:
            for store in self.stores.values():
                if self.membership.owner_of(store.url).owner == peer.member.name:
                    store.lost()

    def _told(self, caller: Caller, frame: Frame) -> None:
        """What the other side of a link that this member made tells or asks by itself, beside partitions."""
        if frame.verb == verbs.STORE:
            reader = Reader(frame.value)
            store = self.stores.get(reader.text())
            if store is not None:
                store.told(reader)
        elif frame.verb == verbs.CALL:
            self._called(caller, frame)
        elif frame.verb == verbs.HELLO:
            raise nonsense("a greeting from the one that was greeted")

    # Links that others make

    def accepted(self, link: Link) -> None:
        """Another member has made a link; nothing of it is done before it has said who it is."""
        owner = Owner(link, self._find, self._clock)
        caller = Caller(link)
        self._owners[link] = owner
        owner.on_member_frame = lambda frame: self._asked(caller, frame)

        def closed() -> None:
            self._owners.pop(link, None)

        link.on_closed.append(closed)

    def _asked(self, caller: Caller, frame: Frame) -> None:
        reader = Reader(frame.value)
        if frame.verb == verbs.HELLO:
            caller.name = reader.text()
            caller.link.answer(frame, self.membership.me)
            for store in self._own.values():
                self._tell_store(caller.link, store)
        elif frame.verb == verbs.CALL:
            self._called(caller, frame)
        else:
            raise nonsense("a verb that only owners use")

    def _called(self, caller: Caller, frame: Frame) -> None:
        reader = Reader(frame.value)
        name = reader.text()
        handler = self._handlers.get(name)
        if handler is None or not caller.name:
            caller.link.refuse(frame, PartitionUnavailable(f"Nobody answers '{name}' here yet. Try again."))
            return
        try:
            caller.link.answer_when(frame, handler(caller, reader.any()))
        except PolybusError as error:
            if isinstance(error, ProtocolError):
                raise
            caller.link.refuse(frame, error)

    def appeared(self, partition: LocalPartition) -> None:
        """A partition of this process is there: those who have asked for it before hear of it."""
        for owner in list(self._owners.values()):
            owner.appeared(partition)

    # Calls

    def serve(self, name: str, handler: Handler) -> None:
        self._handlers[name] = handler

    def call(self, member: str, name: str, value: object) -> Promise[Any]:
        """Asks one member; LinkLost, which is retryable, where it cannot be reached."""
        if member == self.membership.me:
            handler = self._handlers.get(name)
            if handler is None:
                return rejected(PartitionUnavailable(f"Nobody answers '{name}' here yet. Try again."))
            return handler(Caller(dead_link(self._loop)), value)
        return ask(self.peer(member).link, name, value)

    def call_leader(self, name: str, value: object) -> Promise[Any]:
        leader = self.membership.leader()
        if leader is None:
            return rejected(PartitionUnavailable("No member of the bus leads now. Try again."))
        return self.call(leader, name, value)

    def call_others(self, name: str, value: object) -> Promise[dict[str, Any]]:
        """Asks all other members that can be reached; gives their answers by name, without those that failed."""
        return spawn(self._call_others(name, value))

    async def _call_others(self, name: str, value: object) -> dict[str, Any]:
        asked = {member: self.call(member, name, value) for member in self.connected()}
        answers: dict[str, Any] = {}
        for member, promise in asked.items():
            try:
                answers[member] = await promise
            except PolybusError as error:
                log.debug("%s: no answer to %s: %s", member, name, error)
        return answers

    # Stores

    def own(self, store: StoreHost) -> None:
        """A store of this member: the others are told of it from now on."""
        self._own[store.url] = store
        store.on_change = self._store_changed
        self._store_changed(store)

    def disown(self, store: StoreHost) -> None:
        self._own.pop(store.url, None)
        store.on_change = None

    def remote_store(self, url: str) -> RemoteStore:
        """A store of another member, whoever that is."""
        found = self.stores.get(url)
        if found is None:
            found = self.stores[url] = RemoteStore(url, self._loop, self)
        return found

    def remote_partition(
        self, entity_id: int, index: int, settings: EntitySettings, store: RemoteStore
    ) -> RemotePartition:
        """A partition on a store of another member."""
        owner = self.membership.owner_of(store.url).owner
        partition = self.peer(owner or "").partitions.add(entity_id, index, settings, store)
        store.tenants[entity_id, index] = partition
        return partition

    def ask_store(self, url: str, verb: str, value: object) -> Promise[object]:
        owner = self.membership.owner_of(url).owner
        if owner is None:
            return rejected(PartitionUnavailable("Nobody owns the messaging store now. Try again."))
        return self.call(owner, "store", [url, verb, value])

    def _store_asked(self, caller: Caller, value: Any) -> Promise[Any]:
        reader = Reader(value)
        store, verb = self._own.get(reader.text()), self.store_verbs.get(reader.text())
        if store is None:
            return rejected(PartitionUnavailable("The messaging store is not here. Try again."))
        if verb is None:
            raise nonsense("a verb of a store")
        answer: Promise[Any] = verb(store, reader.any())
        done: Promise[Any] = Promise()

        def settled(promise: Promise[Any]) -> None:
            self._tell_store(caller.link, store)  # before the answer: whoever asked sees what came of it
            try:
                done.resolve(promise.result())
            except PolybusError as error:
                done.reject(error)

        answer.then(settled)
        return done

    def _store_changed(self, store: StoreHost) -> None:
        for link in list(self._owners):
            self._tell_store(link, store)

    def _tell_store(self, link: Link, store: StoreHost) -> None:
        link.tell(verbs.STORE, 0, 0, store_facts(store, self.faults_of(store)))

    async def _tell_counters(self) -> None:
        while True:
            await asyncio.sleep(MEMBER_TELL_MS / 1000)
            for store in self._own.values():
                self._store_changed(store)


_STORE_VERBS: dict[str, Callable[[StoreHost, Any], Promise[Any]]] = {
    "probe": lambda store, _: store.probe(),
    "synced": lambda store, _: store.synced(),
    "has_rows": lambda store, prefix: store.has_rows(prefix),
    "delete_rows": lambda store, prefix: store.delete_rows(prefix),
    "marks_about": lambda store, prefix: spawn(_marks(store, prefix)),
    "remove_rows": lambda store, keys: store.remove_rows(keys),
}


async def _marks(store: StoreHost, prefix: bytes) -> list[object]:
    return [list(row) for row in await store.marks_about(prefix)]


def _settles(answered: Promise[None]) -> Callable[[Promise[Any]], None]:
    def settled(promise: Promise[Any]) -> None:
        del promise
        answered.resolve(None)

    return settled


def ask(link: Link, name: str, value: object) -> Promise[Any]:
    """Calls whoever is at the other end of a link."""
    promise: Promise[Any] = Promise()

    def answered(reader: Reader | None, error: PolybusError | None) -> None:
        if error is not None:
            promise.reject(error)
        else:
            assert reader is not None
            promise.resolve(reader.any())

    link.ask(verbs.CALL, 0, 0, [name, value], answered)
    return promise


def dead_link(loop: Loop) -> Link:
    """One that leads nowhere: what is asked over it is answered at once, as over one that broke."""
    link = Link(loop, lambda _: None, lambda: None)
    link.lose()
    return link
