"""One node of a cluster: a gateway for clients, and the owner of those stores whose leases it has.

It enters the cluster's database before anything else, for that says whether it may be a node at all. Then it starts as
any bus does: stores that it should own are opened, the others are reached over links. Afterwards ownership changes as
the membership says, and each change puts another host in a store's place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from dataclasses import asdict
from functools import partial
from secrets import token_hex
from typing import Any

import polybus
from polybus.cluster import frames, tls_links
from polybus.cluster.certificates import LinkSecurity, Peer, link_security, new_shared
from polybus.cluster.heartbeat import Heartbeat
from polybus.cluster.link import Link
from polybus.cluster.membership import Ownership
from polybus.cluster.node_catalogue import NodeCatalogue
from polybus.cluster.node_membership import CATALOGUE, Holding, NodeMembership
from polybus.cluster.options import ClusterOptions, agreed
from polybus.cluster.peers import Caller, Peers
from polybus.cluster.remote_store import RemoteStore
from polybus.cluster.values import Reader, nonsense
from polybus.errors import PartitionUnavailable, StoreError
from polybus.hosting.catalogue import Catalogue
from polybus.hosting.opener import Opener, shown_url
from polybus.hosting.send_ledger import NumberedSends, SendLedger
from polybus.hosting.store_host import StoreHost, StoreState
from polybus.limits import LINK_DEAD_MS, NODE_DRAIN_SECONDS, NODE_LOOK_SECONDS
from polybus.namespace.entities.description import AuthorizationRule
from polybus.node import NodeOptions
from polybus.nodes.lease_opener import LeaseOpener
from polybus.promise import Promise, resolved, spawn
from polybus.store.base import Store
from polybus.store.cluster_database import ClusterDatabase
from polybus.store.cluster_rows import Agreed, ClusterView, Joining, MemberRow
from polybus.store.failing import Faults
from polybus.store.postgres import Holder
from polybus.workers.worker import MemberNode, MemberSwitches, turn_switch

log = logging.getLogger(__name__)


FAULT = "fault"


class ClusterSwitches(MemberSwitches):
    """The fault switches of one store at all nodes at once: whoever takes it over has its faults, too."""

    def __init__(self, shown: str, own: Faults, peers: Peers) -> None:
        self._shown = shown
        self._own = own
        self._peers = peers

    @property
    def full(self) -> bool:
        return self._own.full

    @property
    def low(self) -> bool:
        return self._own.low

    def turn(self, name: str, *given: object) -> None:
        turn_switch(self._own, None, name, list(given))
        self._peers.call_others(FAULT, [self._shown, name, *given]).then(_unheard)

    def state(self) -> dict[str, object]:
        return self._own.state()

    def release(self) -> None:
        self._own.release()


class ClusterNode(MemberNode):
    def __init__(self, options: NodeOptions) -> None:
        assert options.cluster is not None, "a node of a cluster has one"
        options.stores = sorted(options.stores, key=shown_url)  # the same order on all nodes
        super().__init__(options)
        self.cluster: ClusterOptions = options.cluster
        self._process = token_hex(16)
        self._viewed = asyncio.Event()
        self._hosts: dict[str, StoreHost] = {}
        """The store's host now, by its shown address."""
        self._outgoing: dict[str, NumberedSends] = {}
        """This node's sends to stores elsewhere, by store: their numbers outlast owners."""
        self._known: set[str] = set()
        self._guests: dict[Link, Peer] = {}
        """Links that other nodes have made."""
        self._placed: dict[str, str | None] = {}
        """Whose the host is."""
        self._urls = {shown_url(url): url for url in options.stores}
        self._lasting: dict[str, Faults] = {}
        """The fault switches of each store, by its shown address: they are for the store, whoever owns it."""

    # Start

    async def start(self) -> None:
        self.check_keys()
        self.check_certificates()
        await self._enter()
        try:
            await super().start()
        except BaseException:
            await self._leave()
            raise
        host, port = self.addresses["amqp"]
        self.membership.clients = [f"{host}:{port}"]
        self.membership.changed()

    async def _enter(self) -> None:
        """Becomes a member: from now on others count on this node."""
        loop = asyncio.get_running_loop()
        bound = tls_links.bind_links(self.options.host, self.cluster.bind_port())
        self.links_at = self.cluster.address(*bound.getsockname()[:2])
        database = ClusterDatabase(self.cluster.url)
        joining = Joining(
            name=self.cluster.node,
            process=self._process,
            address=self.links_at,
            version=polybus.__version__,
            protocol=frames.VERSION,
            fresh=new_shared,
            agreed=self._agreed,
        )
        try:
            shared = await asyncio.to_thread(database.join, joining)
        except BaseException:
            bound.close()
            raise
        self._security: LinkSecurity = link_security(shared, Peer(self.cluster.node, self._process))
        self._heartbeat = Heartbeat(database, self.cluster.node, self._process, loop, self._seen)
        self.membership = NodeMembership(self._heartbeat, list(self._urls), loop, self._dial)
        self.membership.opened = self
        self.membership.on_expelled = _give_up
        self._heartbeat.start()
        await self._viewed.wait()
        self.membership.watch_leases()
        self._bound = bound

    def _agreed(self, secret: bytes) -> Agreed:
        keys = {rule.key_name: _key(rule) for rule in self.common_keys()}
        for namespace, rules in self._own_keys().items():
            keys |= {f"{namespace}/{rule.key_name}": _key(rule) for rule in rules}
        tier = asdict(self.options.tier)
        settings = {
            "tier": {**tier, "name": tier["name"].value},
            "namespaces": sorted(name.lower() for name in self._namespaces()),
            "movable clock": self.options.movable_clock,
        }
        return agreed(secret, self.options.stores, keys, settings)

    def _seen(self, view: ClusterView) -> None:
        self.membership.seen(view)
        self._cut_off_the_dead()
        known = {row.process for row in view.members}
        if known != self._known:
            self._known = known
            self._forget_senders()
        if view.named(self.cluster.node) is not None:
            self._viewed.set()

    async def _dial(self, row: MemberRow) -> Link:
        return await tls_links.connect(row.address, self._security, Peer(row.name, row.process))

    def _admits(self, peer: Peer | None) -> bool:
        """A member now, by name and process. One that has joined a moment ago is known with the next look: it tries
        again by then."""
        row = None if peer is None else self.membership.view.named(peer.name)
        return row is not None and peer is not None and row.process == peer.process

    def _accepted(self, link: Link, peer: Peer) -> None:
        self._guests[link] = peer
        link.on_closed.append(lambda: self._forget(link))
        self.peers.accepted(link)

    def _forget(self, link: Link) -> None:
        self._guests.pop(link, None)

    def _forget_senders(self) -> None:
        """A node that comes under its old name is another process: what was kept for the one before it goes."""
        living = {bytes.fromhex(process) for process in self._known}
        for host in self._hosts.values():
            if host.ledger is not None:
                host.ledger.forget(living)

    def _cut_off_the_dead(self) -> None:
        """Nothing waits for a node whose lease is over: it may be frozen, and its links would stay for long."""
        for link, peer in list(self._guests.items()):
            row = self.membership.view.named(peer.name)
            if row is None or row.process != peer.process or not row.alive:
                link.close()

    def _make_peers(self, loop: asyncio.AbstractEventLoop) -> Peers:
        peers = Peers(
            loop,
            self.membership,
            self.clock,
            lambda entity, index: self.bus.local_partition(entity, index),
            LINK_DEAD_MS,
        )
        peers.on_ownership = self._ownership_changed
        return peers

    def _catalogue(self, loop: asyncio.AbstractEventLoop) -> Catalogue:
        self.peers = self._make_peers(loop)
        opener = LeaseOpener(
            lambda: self.membership.leader() == self.cluster.node,
            self.cluster.url,
            loop,
            None,
            self.options.unsafe,
            holder=self._holder,
        )
        self.shared_catalogue = NodeCatalogue(self.peers, loop, opener)
        self.shared_catalogue.on_followed = self._followed
        self.shared_catalogue.on_lead = self._leads_now
        self.shared_catalogue.on_held = self.membership.changed
        return self.shared_catalogue

    @property
    def _holder(self) -> Holder:
        return Holder(self.cluster.node, self.links_at, self._process, by_lease=True)

    async def _join(self) -> None:
        self._server = await tls_links.listen(self._bound, self._security, self._admits, self._accepted)
        await super()._join()
        self.peers.store_verbs["stored"] = _answer_stored
        self.peers.serve(FAULT, self._fault)
        self.bus.hold_moving(lambda store: self.membership.is_moving(store.url))

    async def _joined(self) -> None:
        await super()._joined()
        for url in self._urls:
            self._settle_owner(url)

    # Stores

    def _store_host(self, url: str) -> StoreHost:
        shown = shown_url(url)
        self._lasting[shown] = Faults()
        self.faults.append(ClusterSwitches(shown, self._lasting[shown], self.peers))
        host = self._own_host(url) if self._owns(shown) else self._remote_host(url)
        self._hosts[shown] = host
        self._placed[shown] = self.membership.owner_of(shown).owner
        return host

    def _opener(self, url: str, faults: Faults | None, place: str | None) -> Opener:
        shown = shown_url(url)
        return LeaseOpener(
            lambda: self._owns(shown),
            url,
            asyncio.get_running_loop(),
            faults,
            self.options.unsafe,
            lambda: place in self.catalogue.places.values(),
            self._holder,
        )

    def _owns(self, shown: str) -> bool:
        return self.membership.owner_of(shown).owner == self.cluster.node

    def _ownership_changed(self, ownership: Ownership) -> None:
        if self.joined:
            self._settle_owner(ownership.url)

    def _settle_owner(self, shown: str) -> None:
        """Puts the right kind of host in a store's place: its own, or one of whoever owns it now."""
        host, mine = self._hosts[shown], self._owns(shown)
        owner = self.membership.owner_of(shown).owner
        if (mine and not host.elsewhere) or owner == self._placed[shown]:
            return
        self._placed[shown] = owner
        new = self._own_host(self._urls[shown]) if mine else self._remote_host(self._urls[shown])
        new.store_id = host.store_id
        self._hosts[shown] = new
        if not host.elsewhere:
            self.peers.disown(host)
        self.bus.replace_store(host, new)
        if not host.elsewhere:
            host.close().then(lambda _: self.membership.changed())
        if mine:
            new.open()
        elif owner is not None:
            self.peers.ask_store(shown, "told", None).then(_unheard)

    def _own_host(self, url: str) -> StoreHost:
        host = self._local_host(url, self._lasting[shown_url(url)])
        host.ledger = SendLedger(host, asyncio.get_running_loop())
        tell_others = host.on_change

        def changed(store: StoreHost) -> None:
            if tell_others is not None:
                tell_others(store)
            self.membership.changed()

        host.on_change = changed
        return host

    def _remote_host(self, url: str) -> RemoteStore:
        shown = shown_url(url)
        self.peers.stores.pop(shown, None)
        host = super()._remote_host(url)
        host.outgoing = self._outgoing.get(shown)
        if host.outgoing is None:
            loop, sender = asyncio.get_running_loop(), bytes.fromhex(self._process)
            host.outgoing = self._outgoing[shown] = NumberedSends(sender, loop, partial(self._ask_stored, shown))
        return host

    def _fault(self, _: Caller, value: Any) -> Promise[Any]:
        """Somebody has turned a switch of a store at another node."""
        shown, name, *given = value
        if shown not in self._lasting:
            raise nonsense("a store of the cluster")
        turn_switch(self._lasting[shown], self._hosts[shown], name, given)
        return resolved(None)

    async def refresh_faults(self) -> None:
        """All nodes know them."""

    def _ask_stored(self, shown: str, sender: bytes, number: int) -> Promise[list[int] | None]:
        """What became of a send of this node, asked of whoever owns the store now; it may be this node."""
        return spawn(self._stored(shown, sender, number))

    async def _stored(self, shown: str, sender: bytes, number: int) -> list[int] | None:
        if self._owns(shown):
            ledger = self._hosts[shown].ledger
            if ledger is None:
                raise PartitionUnavailable("The messaging store is being taken over. Try again.")
            return await ledger.stored(sender, number)
        answer: list[int] | None = await self.peers.ask_store(shown, "stored", [sender, number])  # type: ignore[assignment]
        return answer

    # What the membership asks

    def holding(self, url: str) -> Holding | None:
        store: Store | None = None
        if url == CATALOGUE:
            found: NodeCatalogue | None = getattr(self, "shared_catalogue", None)
            store = None if found is None else found.held
        elif url in self._hosts:
            driver = self._hosts[url].driver
            store = None if driver is None else driver.store
        return None if store is None or store.lease is None else Holding(store.epoch, store.lease)

    def lost(self, url: str) -> None:
        if url == CATALOGUE:
            self.shared_catalogue.lost()
        elif self._hosts[url].state is StoreState.OPEN:
            self._hosts[url].fence(StoreError("its lease could not be renewed in time"), None)

    def _leads_now(self) -> None:
        if self.joined:
            log.warning("this node leads the cluster now")
            spawn(self.bus.take_lead()).then(_unheard)

    # Stop

    async def let_clients_go(self) -> None:
        await self._hand_over_all()
        await super().let_clients_go()

    async def _hand_over_all(self) -> None:
        """Before a node stops the others take what it owns, so that nobody is refused."""
        me, view = self.cluster.node, self.membership.view
        if not any(row.name != me and not row.draining for row in view.living):
            return
        self._heartbeat.wish(lambda database: _drain(database, me))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NODE_DRAIN_SECONDS):
                while any(self.holding(name) is not None for name in (*self._urls, CATALOGUE)):
                    await asyncio.sleep(NODE_LOOK_SECONDS / 5)

    async def close(self) -> None:
        self.membership.stop()
        await super().close()
        await self._leave()

    async def _leave(self) -> None:
        self.membership.stop()
        if self._server is not None:
            self._server.close()
        await asyncio.to_thread(self._heartbeat.stop)


def _answer_stored(store: StoreHost, value: Any) -> Promise[Any]:
    reader = Reader(value)
    sender, number = reader.data(), reader.number()
    if store.ledger is None:
        raise PartitionUnavailable("The messaging store is not here. Try again.")
    return store.ledger.stored(sender, number)


def _drain(database: ClusterDatabase, name: str) -> None:
    database.drain(name, True)


def _key(rule: AuthorizationRule) -> list[Any]:
    return [sorted(right.value for right in rule.rights), rule.primary_key, rule.secondary_key]


def _give_up() -> None:
    """Another process is this node now: whatever this one would do is wrong."""
    os.kill(os.getpid(), signal.SIGTERM)


def _unheard(promise: Promise[Any]) -> None:
    with contextlib.suppress(Exception):
        promise.result()
