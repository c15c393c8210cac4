"""One worker: a node whose clients are handed to it, and some of whose stores are other workers'."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from polybus.asyncio_bridge import from_promise
from polybus.clock import MovableClock
from polybus.cluster import sockets
from polybus.cluster.catalogues import CatalogueFeed, FollowedCatalogue
from polybus.cluster.link import Link
from polybus.cluster.members import OtherMembers
from polybus.cluster.membership import FixedMembership, Member
from polybus.cluster.peers import Peers
from polybus.cluster.remote_store import RemoteStore
from polybus.cluster.values import nonsense
from polybus.errors import PolybusError
from polybus.gateway.figures import share_figures
from polybus.gateway.http.faults import Kind
from polybus.hosting.catalogue import Catalogue
from polybus.hosting.opener import shown_url
from polybus.hosting.places import place_of
from polybus.hosting.store_host import StoreHost
from polybus.limits import WORKER_TELL_SECONDS
from polybus.memory import settle_memory
from polybus.node import Node, NodeOptions, StoreSwitches
from polybus.promise import Promise, resolved, spawn
from polybus.rows import Batch
from polybus.store.failing import Faults
from polybus.workers.spec import CLIENT, LEADER, RELOAD, STOP, WorkerSpec, read_spec, worker_name

log = logging.getLogger("polybus")


class MemberSwitches(ABC):
    """The fault switches of a store that is not this process's alone: each is a name and what is given with it."""

    @abstractmethod
    def turn(self, name: str, *given: object) -> None: ...

    def fail_from_now(self, kind: Kind) -> None:
        self.turn("fail_from_now", kind)

    def fail_nth(self, kind: Kind, n: int = 1) -> None:
        self.turn("fail_nth", kind, n)

    def hang(self, kind: Kind) -> None:
        self.turn("hang", kind)

    def slow(self, kind: Kind, seconds: float) -> None:
        self.turn("slow", kind, seconds)

    def disk_full(self, full: bool = True) -> None:
        self.turn("disk_full", full)

    def disk_low(self, low: bool = True) -> None:
        self.turn("disk_low", low)

    def heal(self) -> None:
        self.turn("heal")


class RemoteSwitches(MemberSwitches):
    """The fault switches of a store of another worker."""

    full = False
    low = False

    def __init__(self, store: RemoteStore) -> None:
        self._store = store

    def turn(self, name: str, *given: object) -> None:
        self._store.fault(name, list(given))

    def state(self) -> dict[str, object]:
        return self._store.faults

    def release(self) -> None:
        """Its owner lets go."""


_SWITCHES = ("fail_from_now", "fail_nth", "hang", "slow", "disk_full", "disk_low", "heal")


def turn_switch(switches: StoreSwitches, store: StoreHost | None, name: str, given: list[Any]) -> None:
    """Does what another member was told to do to a store; `store` is its host, where it is open here."""
    if name not in _SWITCHES:
        raise nonsense("a fault switch")
    getattr(switches, name)(*given)
    if store is not None and name in ("disk_full", "disk_low", "heal"):
        store.full = name != "heal"


class MemberNode(Node):
    """A process of a bus that has others: some of its stores are theirs."""

    peers: Peers

    def __init__(self, options: NodeOptions) -> None:
        super().__init__(options)
        self.joined = False
        self._server: asyncio.Server | None = None
        self._switches: dict[str, StoreSwitches] = {}

    def _local_host(self, url: str, faults: Faults) -> StoreHost:
        """A store of this member."""
        host = self._host_with(url, faults)
        self._switches[host.url] = faults
        self.peers.own(host)
        return host

    def _remote_host(self, url: str) -> RemoteStore:
        """A store of another one."""
        shown = shown_url(url)
        store = self.peers.remote_store(shown)
        store.place = place_of(shown, self.options.data)
        return store

    async def _join(self) -> None:
        members = OtherMembers(self.peers)
        self.bus.find_store = None
        self.bus.join(members)
        self.peers.faults_of = lambda store: self._switches[store.url].state()
        self.peers.store_verbs["recover"] = lambda store, _: spawn(self.bus.bring_up(store))
        self.peers.store_verbs["told"] = lambda _, __: resolved(None)
        self.peers.on_connected.append(self._look_at_clock)
        members.serve("clock.ahead", lambda _: resolved(self._ahead_ms()))
        members.serve("clock.move", self._clock_moved)
        members.serve("throttle", self._throttled)
        self.peers.start()

    async def _joined(self) -> None:
        self.joined = True
        share_figures(self.gateway)
        await from_promise(self.bus.following.apply(None))

    def _followed(self, batch: Batch | None) -> Promise[None]:
        return self.bus.following.apply(batch) if self.joined else resolved(None)

    # Faults and the clock, of all workers

    async def refresh_faults(self) -> None:
        for store in self.bus.stores:
            if isinstance(store, RemoteStore):
                with contextlib.suppress(PolybusError):
                    await from_promise(self.peers.ask_store(store.url, "told", None))

    def _ahead_ms(self) -> int:
        return self.clock.ahead_ms if isinstance(self.clock, MovableClock) else 0

    def _look_at_clock(self, member: str) -> None:
        """A worker that was started again knows nothing of how far the clock was moved."""
        if isinstance(self.clock, MovableClock):
            self.peers.call(member, "clock.ahead", None).then(self._catch_up)

    def _catch_up(self, promise: Promise[Any]) -> None:
        with contextlib.suppress(PolybusError):
            missing_ms = int(promise.result()) - self._ahead_ms()
            if missing_ms > 0:
                self.advance_clock(missing_ms)

    def _clock_moved(self, ms: Any) -> Promise[Any]:
        self.advance_clock(int(ms))
        return resolved(None)

    async def move_clock(self, ms: int) -> None:
        self.advance_clock(ms)
        await from_promise(self.peers.call_others("clock.move", ms))

    async def throttle(self, namespace: str, path: str, on: bool) -> None:
        await super().throttle(namespace, path, on)
        await from_promise(self.peers.call_others("throttle", [namespace, path, on]))

    def _throttled(self, value: Any) -> Promise[Any]:
        namespace, path, on = value
        self.bus.namespace(namespace).entity(path).throttled = on
        return resolved(None)

    # Stop

    async def close(self) -> None:
        await super().close()
        await self.peers.stop()
        if self._server is not None:
            self._server.close()


class WorkerNode(MemberNode):
    """One worker: its clients are handed to it."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec.options)
        self.spec = spec
        self.addresses = dict(spec.addresses)
        self._feed: CatalogueFeed | None = None

    # Start

    def _catalogue(self, loop: asyncio.AbstractEventLoop) -> Catalogue:
        spec = self.spec
        members = [Member(name, str(spec.links / name)) for name in map(worker_name, range(spec.workers))]
        owners = {shown_url(url): owner for url, owner in spec.owners().items()}
        membership = FixedMembership(spec.name, members, owners, LEADER, _dial)
        self.peers = Peers(
            loop, membership, self.clock, lambda entity, index: self.bus.local_partition(entity, index)
        )
        if not self.peers.leads:
            followed = FollowedCatalogue(self.peers, loop)
            followed.on_followed = self._followed
            return followed
        catalogue = super()._catalogue(loop)
        self._feed = CatalogueFeed(catalogue, self.peers, loop)
        self._feed.on_followed = self._followed
        return catalogue

    def _store_host(self, url: str) -> StoreHost:
        if self.peers.membership.owner_of(shown_url(url)).owner == self.spec.name:
            faults = Faults()
            self.faults.append(faults)
            return self._local_host(url, faults)
        store = self._remote_host(url)
        self.faults.append(RemoteSwitches(store))
        return store

    async def _join(self) -> None:
        self._server = await sockets.listen(self.spec.links / self.spec.name, self.peers.accepted)
        await super()._join()
        self.peers.store_verbs["fault"] = self._fault

    def _fault(self, store: StoreHost, value: Any) -> Promise[Any]:
        name, *given = value
        turn_switch(self._switches[store.url], store, name, given)
        return resolved(None)

    def _listen(self) -> None:
        self._listener(self.tls_context())
        self._know_addresses()

    def take(self, client: socket.socket) -> None:
        """A client that the supervisor has accepted."""
        try:
            host = client.getpeername()[0]
        except OSError:
            client.close()  # it has gone again
            return
        client.setblocking(False)
        self._listeners[0].take(client, host)


async def _dial(member: Member) -> Link:
    return await sockets.connect_to(member.address)


class Control:
    """The worker's end of the socket to its supervisor."""

    def __init__(self, end: socket.socket, on_client: Callable[[socket.socket], None]) -> None:
        self._end = end
        self._on_client = on_client
        self.draining = asyncio.Event()
        self.stopping = asyncio.Event()
        self.on_reload: Callable[[], None] | None = None
        self.handed = 0
        end.setblocking(False)
        asyncio.get_running_loop().add_reader(end, self._arrived)

    def _arrived(self) -> None:
        while True:
            try:
                word, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
            except BlockingIOError:
                return
            except OSError:
                word, descriptors = b"", []
            for descriptor in descriptors:
                self.handed += 1
                self._on_client(socket.socket(fileno=descriptor))
            if word == CLIENT:
                continue
            if word == RELOAD:
                if self.on_reload is not None:
                    self.on_reload()
                continue
            if not word:
                os._exit(3)  # the supervisor is gone, and another one may want the stores: as if the power had failed
            self.draining.set()
            if word == STOP:
                self.stopping.set()

    def say(self, **words: object) -> None:
        """The supervisor may be gone; then everything ends soon anyway."""
        with contextlib.suppress(OSError):
            self._end.sendall(json.dumps(words).encode() + b"\n")


async def work(spec: WorkerSpec, end: socket.socket) -> int:
    """Serves until the supervisor says stop, or is gone."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(name, lambda: None)  # the supervisor hears it, too, and says what is to be done
    node = WorkerNode(spec)
    control = Control(end, node.take)
    stopped = asyncio.ensure_future(control.stopping.wait())
    starting = asyncio.ensure_future(node.start())
    await asyncio.wait((stopped, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        return 1
    try:
        starting.result()
    except (PolybusError, OSError, ValueError) as error:
        cause = "" if error.__cause__ is None else f" {error.__cause__}"
        control.say(failed=f"{error}{cause}")
        return 2
    control.on_reload = node.reload
    settle_memory()
    control.say(ready=True, stores=[[store.url, _state(store)] for store in [*node.bus.stores, *node.bus.missing]])
    telling = asyncio.ensure_future(_tell_load(node, control))
    await control.draining.wait()
    telling.cancel()
    await node.let_clients_go()
    control.say(drained=True)
    await control.stopping.wait()
    await node.close()
    return 0


def _state(store: StoreHost) -> str:
    return "unsafe: it confirms before it has synced" if store.unsafe else store.state.value


async def _tell_load(node: WorkerNode, control: Control) -> None:
    """How many clients are connected here, whenever that is another number than before."""
    known = (-1, -1)
    while True:
        now = (len(node.gateway.connections) + len(node.gateway.http_connections), control.handed)
        if now != known:
            known = now
            control.say(clients=now[0], handed=now[1])
        await asyncio.sleep(WORKER_TELL_SECONDS)


def main() -> None:
    from polybus.cli.logs import configure_logs
    from polybus.store.permissions import keep_to_ourselves

    spec = read_spec(sys.stdin.buffer)
    configure_logs(spec.json_logs, spec.verbose)
    keep_to_ourselves()
    end = socket.socket(fileno=int(sys.argv[1]))
    code = asyncio.run(work(spec, end))
    sys.stdout.flush()
    os._exit(code)  # threads of stores that hang must not keep a worker that has closed them


if __name__ == "__main__":
    main()
