"""A bus and its AMQP listener in a thread of this process, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from polybus.clock import MovableClock
from polybus.gateway.amqp.transport import AmqpProtocol
from polybus.gateway.gateway import Gateway
from polybus.hosting.opener import Opener
from polybus.namespace.entities.description import AccessRight, AuthorizationRule
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise, spawn
from polybus.store.driver import StoreDriver
from tests.support.assembly import MemoryOpener, assembled

T = TypeVar("T")
KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
ALL_RIGHTS = (AccessRight.MANAGE, AccessRight.SEND, AccessRight.LISTEN)


class Server:
    """One bus with one namespace and one port. Leave it through `stop`."""

    def __init__(self, folder: Path | None = None, tier: Tier = STANDARD) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = MovableClock()
        self._folder = folder
        self._tier = tier
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()
        self.call(self._start)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Runs a coroutine function on the bus's loop and waits for its result."""

        async def run() -> T:
            return await work(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def do(self, work: Callable[[], T]) -> T:
        """Runs a function on the bus's loop and waits for its result."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def manage(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs an operation of the namespace, which awaits promises only."""

        async def run() -> T:
            return await self._settled(spawn(work()))

        return self.call(run)

    async def _settled(self, promise: Promise[T]) -> T:
        done: asyncio.Future[None] = self.loop.create_future()
        promise.then(lambda _: done.set_result(None))
        await done
        return promise.result()

    def _opener(self, name: str) -> Callable[[], Promise[StoreDriver]]:
        if self._folder is None:
            return MemoryOpener(self.loop)
        return Opener(f"rocksdb:{self._folder / name}", self.loop, None, False)

    async def _start(self) -> None:
        stores = {f"store{n}": self._opener(f"store{n}") for n in range(4)}
        self.bus = assembled(self.loop, self.clock, stores, self._opener("catalogue"), self._tier)
        await self._settled(spawn(self.bus.start(["ns"])))
        self.namespace: Namespace = self.bus.namespace("ns")
        root = AuthorizationRule(key_name=KEY_NAME, rights=ALL_RIGHTS, primary_key=KEY, secondary_key="other")
        self.gateway = Gateway(self.bus, [root])
        self._server = await self.loop.create_server(lambda: AmqpProtocol(self.gateway), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def connection_string(self, name: str = KEY_NAME, key: str = KEY) -> str:
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName={name};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true"
        )

    def advance(self, seconds: float) -> None:
        """Moves the bus's clock; whatever becomes due happens before this returns."""

        def move() -> None:
            self.clock.advance(int(seconds * 1000))
            self.bus.clock_moved()

        self.do(move)

    def drop_connections(self, besides: int) -> None:
        """Cuts the newest connections, as a network would, and leaves the oldest ones."""

        def cut() -> None:
            for connection in list(self.gateway.connections)[besides:]:
                connection.transport.abort()  # type: ignore[attr-defined]

        self.do(cut)

    def stop(self) -> None:
        self.call(self._stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for connection in list(self.gateway.connections):
            connection.transport.abort()  # type: ignore[attr-defined]
        await self._server.wait_closed()
        await self._settled(spawn(self.bus.stop()))
