"""A bus in this process, served over HTTP and HTTPS by uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from polybus.asyncio_bridge import run
from polybus.client.sas import make_token
from polybus.clock import Clock, MovableClock
from polybus.errors import ConfigError, StoreError
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.app import make_app
from polybus.gateway.tls import CertificateFiles, ensure_certificates
from polybus.hosting.store_host import StoreHost
from polybus.namespace.bus import Bus
from polybus.namespace.entities.description import AccessRight, AuthorizationRule
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.promise import Promise
from polybus.store.base import Store
from polybus.store.driver import InlineDriver, ThreadDriver
from polybus.store.failing import FailingStore
from polybus.store.memory import MemoryStore
from tests.support.assembly import assembled

T = TypeVar("T")

NAMESPACE = "sbemulatorns"
KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
ALL = (AccessRight.MANAGE, AccessRight.SEND, AccessRight.LISTEN)
KEYS = [
    AuthorizationRule(key_name=KEY_NAME, rights=ALL, primary_key=KEY, secondary_key="other key"),
    AuthorizationRule(key_name="sender", rights=(AccessRight.SEND,), primary_key="send key", secondary_key=""),
    AuthorizationRule(key_name="listener", rights=(AccessRight.LISTEN,), primary_key="listen key", secondary_key=""),
]
WAIT_S = 30


class Disk:
    """A store that outlives the bus: it can be taken away, given back, and opened by the next bus."""

    def __init__(self, store: Store | None = None, threaded: bool = False) -> None:
        self.store: Any = store or MemoryStore()
        self.down = False
        self.threaded = threaded
        self._opened = False

    def opener(self, loop: asyncio.AbstractEventLoop) -> Callable[[], Promise[Any]]:
        def open_it() -> Promise[Any]:
            promise: Promise[Any] = Promise()
            try:
                if self.down:
                    raise StoreError("it was taken away")
                if isinstance(self.store, FailingStore):
                    self.store.faults.meet("open")
            except StoreError as error:
                promise.reject(error)
                return promise
            if self._opened:
                self.store = self.store.reopen()
            self._opened = True
            promise.resolve(ThreadDriver(self.store, loop) if self.threaded else InlineDriver(self.store, loop))
            return promise

        return open_it


class RocksDisk(Disk):
    """A RocksDB store in a folder, opened anew each time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(threaded=True)
        self._folder = folder

    def opener(self, loop: asyncio.AbstractEventLoop) -> Callable[[], Promise[Any]]:
        def open_it() -> Promise[Any]:
            from polybus.store.rocks import RocksStore

            self.store = FailingStore(RocksStore(self._folder))
            promise: Promise[Any] = Promise()
            promise.resolve(ThreadDriver(self.store, loop))
            return promise

        return open_it


class Panel:
    """What a node gives to the fault switches."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def faults(self) -> list[Any]:
        return [disk.store.faults for disk in self._server.disks]

    def advance_clock(self, ms: int) -> None:
        if not isinstance(self._server.clock, MovableClock):
            raise ConfigError("the clock can only be moved where the bus was started with --clock movable")
        self._server.clock.advance(ms)
        self._server.bus.clock_moved()

    async def move_clock(self, ms: int) -> None:
        self.advance_clock(ms)

    async def throttle(self, namespace: str, path: str, on: bool) -> None:
        self._server.bus.namespace(namespace).entity(path).throttled = on

    async def refresh_faults(self) -> None:
        """All stores are of this process."""


class Server:
    """The bus and its listeners. Everything on the bus happens in the server's thread: use `do`."""

    def __init__(
        self,
        folder: Path,
        *,
        tier: Tier = STANDARD,
        clock: Clock | None = None,
        disks: list[Disk] | None = None,
        catalogue: Disk | None = None,
        hosts: list[str] | None = None,
        faults: bool = False,
        **options: Any,
    ) -> None:
        self.certificates: CertificateFiles = ensure_certificates(folder, datetime.datetime.now(datetime.UTC))
        self.clock: Any = clock or MovableClock()
        self.tier = tier
        self.disks = disks or [Disk(FailingStore(MemoryStore())) for _ in range(4)]
        self.catalogue = catalogue or Disk()
        self.options = options
        self.faults = faults
        self.hosts = hosts
        self.errors: list[Exception] = []
        self.bus: Bus
        self.gateway: Gateway
        self.loop = asyncio.new_event_loop()
        self._plain = _listener()
        self._secure = _listener()
        self._servers: list[uvicorn.Server] = []
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    # Life

    def start(self) -> Server:
        self._thread.start()
        self._ready.result(WAIT_S)
        return self

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the server did not stop"
        assert not self.errors, self.errors

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        await self._start_bus()
        app = make_app(self.gateway, faults=Panel(self) if self.faults else None, **self.options)
        cert, key = str(self.certificates.certificate), str(self.certificates.key)
        for listener, tls in ((self._plain, {}), (self._secure, {"ssl_certfile": cert, "ssl_keyfile": key})):
            config = uvicorn.Config(app, lifespan="off", log_level="critical", http=_http(), ws="wsproto", **tls)
            config.load()
            server = uvicorn.Server(config)
            server.lifespan = config.lifespan_class(config)
            await server.startup(sockets=[listener])
            self._servers.append(server)
        self._ready.set_result(None)
        await self._stop.wait()
        for server in self._servers:
            await _close(server)
        await run(self.bus.stop())

    async def _start_bus(self) -> None:
        loop = asyncio.get_running_loop()
        stores = {f"disk-{n}": disk.opener(loop) for n, disk in enumerate(self.disks)}
        self.bus = assembled(loop, self.clock, stores, self.catalogue.opener(loop), self.tier)
        self.bus.on_error = self.errors.append
        await run(self.bus.start([NAMESPACE]))
        self.gateway = Gateway(self.bus, KEYS, hosts=self.hosts or ["localhost", "127.0.0.1"])

    def restarted(self) -> Server:
        """Stops, and starts another bus on the same stores."""
        self.stop()
        folder = self.certificates.authority.parent
        return Server(
            folder,
            tier=self.tier,
            clock=self.clock,
            disks=self.disks,
            catalogue=self.catalogue,
            faults=self.faults,
            **self.options,
        ).start()

    # Use

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._plain.getsockname()[1]}"

    @property
    def port(self) -> int:
        return int(self._plain.getsockname()[1])

    @property
    def secure_port(self) -> int:
        return int(self._secure.getsockname()[1])

    @property
    def connection_string(self) -> str:
        endpoint = f"Endpoint=sb://localhost:{self.secure_port}"
        return f"{endpoint};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};UseDevelopmentEmulator=true;"

    @property
    def authority(self) -> str:
        return str(self.certificates.authority)

    @property
    def namespace(self) -> Any:
        return self.bus.namespaces[NAMESPACE]

    def do(self, work: Callable[[], T]) -> T:
        """Calls something in the server's thread."""

        async def call() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(WAIT_S)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the namespace in the server's thread."""
        return asyncio.run_coroutine_threadsafe(run(coroutine), self.loop).result(WAIT_S)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when something has become true; looks after each turn of the server's loop."""

        async def look() -> None:
            while not condition():
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(asyncio.wait_for(look(), WAIT_S), self.loop).result(WAIT_S + 1)

    def client(self, path: str = "", key_name: str = KEY_NAME, key: str = KEY, **options: Any) -> httpx.Client:
        """A client with a token for a path, over plain HTTP unless another `base_url` is given."""
        headers = {"Authorization": self.token(path, key_name, key)}
        return httpx.Client(**{"base_url": self.url, "headers": headers, "timeout": WAIT_S, **options})

    def token(self, path: str = "", key_name: str = KEY_NAME, key: str = KEY, seconds: int = 3600) -> str:
        return make_token(f"{self.url}/{path}".rstrip("/"), key_name, key, int(time.time()) + seconds)

    def take_down(self, number: int) -> None:
        """The store is gone: its next commit fails, and it does not open again."""
        disk = self.disks[number]
        disk.down = True
        disk.store.faults.fail_from_now("commit")
        self.do(lambda: _touch(self.bus.stores[number]))
        self.wait_until(lambda: not self.bus.stores[number].available)

    def bring_up(self, number: int) -> None:
        disk = self.disks[number]
        disk.down = False
        disk.store.faults.heal()
        self.do(self.bus.stores[number].open)
        hosts = self.bus.stores[number].tenants
        self.wait_until(lambda: all(tenant.broker is not None for tenant in hosts.values()))  # type: ignore[attr-defined]


async def _close(server: uvicorn.Server) -> None:
    server.force_exit = True
    connections = list(server.server_state.connections)
    await server.shutdown(sockets=[])
    for connection in connections:
        connection.transport.abort()
    while server.server_state.connections or server.server_state.tasks:
        await asyncio.sleep(0)


def _touch(store: StoreHost) -> None:
    store.batch.delete(b"~probe")
    store.touch()


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    return listener


def _http() -> Any:
    try:
        from polybus.gateway.http.protocol import HttpProtocol
    except ImportError:
        return "h11"
    return HttpProtocol
