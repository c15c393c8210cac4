"""A bus inside of your own process: for tests, for notebooks, for programs that carry their bus with them.

with Server() as server:
    client = ServiceBusClient.from_connection_string(server.connection_string)

It is the whole thing: real listeners on free ports of loopback, real messaging stores. With `with` it has a thread and an
event loop of its own, so that synchronous clients can be used beside it; with `async with` it runs on the loop at
hand. The house is loaded when a server starts, not when this file is imported.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from polybus.client.addresses import BusAddresses
from polybus.errors import ConfigError

if TYPE_CHECKING:
    from polybus.node import Node, NodeOptions


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a server in this process is told. Everything has a default that suits a test."""

    data: Path | str | None = None
    """The folder for everything that is kept; without one the bus lives in memory and leaves nothing behind."""
    stores: int | Sequence[str] = 1
    """How many messaging stores, in the folder or in memory; or their URLs, as `polybus serve --store` takes them."""
    config: Path | str | Mapping[str, Any] | None = None
    """Declared entities: the emulator's config.json, as a file or as what is in it."""
    namespaces: Sequence[str] = ()
    """Names of namespaces, where there is no config."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys by name, as KEY or KEY:Send,Listen,Manage; without any, the emulator's well-known one."""
    tier: str = "standard"
    partitions: int = 16
    """Of new partitioned entities."""
    premium_partitions: int | None = None
    movable_clock: bool = False
    """Whether `advance_clock` and the fault switch `clock` can let time pass."""
    on_demand_entities: bool = False
    """Whether AMQP clients that ask for an entity, a subscription or a temporary node have it made."""
    host: str = "127.0.0.1"
    amqp_port: int = 0
    http_port: int = 0
    tls_port: int = 0
    """0 picks a free port."""


class Server(BusAddresses):
    """A bus in this process, from `with` or `start` on. One that was stopped can be started again with its data."""

    def __init__(self, options: ServerOptions | None = None, **changes: Any) -> None:
        super().__init__()
        self.options = replace(options or ServerOptions(), **changes)
        for name, key in self.options.keys.items():
            self.key_name, self.key = name, key.rsplit(":", 1)[0]
            break
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._own_folder: Path | None = None

    # With a thread of its own

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the bus is ready: a send works."""
        self._check_stopped()
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(loop,), name="polybus", daemon=True)
        self._thread.start()
        self._loop = loop
        try:
            self._call(self._start())
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """What is in flight is answered, clients are told to come back, stores are closed."""
        if self._thread is None:
            return
        try:
            self._call(self._stop())
        finally:
            self._end_thread()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None

    # On the loop at hand

    async def __aenter__(self) -> Server:
        self._check_stopped()
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    # Life

    def _check_stopped(self) -> None:
        if self._node is not None:
            raise ConfigError("the server is running already")

    async def _start(self) -> None:
        from polybus.node import Node

        node = Node(self._node_options())
        try:
            await node.start()
        except BaseException:
            self._remove_own_folder()
            raise
        self._node = node
        self.addresses = {name: f"{host}:{port}" for name, (host, port) in node.addresses.items()}

    async def _stop(self) -> None:
        node, self._node = self._node, None
        try:
            if node is not None:
                await node.stop()
        finally:
            self._remove_own_folder()

    def _remove_own_folder(self) -> None:
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = None

    def _folder(self) -> Path:
        if self.options.data is not None:
            return Path(self.options.data)
        if self._own_folder is None:
            # Its certificates must be a file: clients are told to trust one by its path.
            self._own_folder = Path(tempfile.mkdtemp(prefix="polybus-"))
        return self._own_folder

    def _node_options(self) -> NodeOptions:
        from polybus.gateway.config.file import load
        from polybus.namespace.entities.keys import parse_key
        from polybus.namespace.entities.tiers import tier_named
        from polybus.node import NodeOptions

        given = self.options
        tier = tier_named(given.tier, partitions=given.partitions, premium_partitions=given.premium_partitions)
        text = _config_text(given.config)
        options = NodeOptions(
            self._folder(),
            stores=_store_urls(given.stores, given.data),
            host=given.host,
            amqp_port=given.amqp_port,
            http_port=given.http_port,
            tls_port=given.tls_port,
            keys=[parse_key(f"{name}={key}") for name, key in given.keys.items()],
            tier=tier,
            config=None if text is None else load(text, "config", tier),
            movable_clock=given.movable_clock,
            on_demand_entities=given.on_demand_entities,
        )
        if given.namespaces:
            options.namespaces = list(given.namespaces)
        return options

    # What it can do for a test

    @property
    def authority(self) -> Path:
        return self._folder() / "certificates" / "ca.pem"

    def advance_clock(self, ms: int) -> None:
        """Lets time pass at once: locks end, messages expire and fall due. Needs `movable_clock`."""
        node = self._node
        if node is None:
            raise ConfigError("the server is not running")
        if self._loop is None:
            node.advance_clock(ms)
        else:
            self._call(_advance(node, ms))


async def _advance(node: Node, ms: int) -> None:
    node.advance_clock(ms)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _store_urls(stores: int | Sequence[str], data: Path | str | None) -> list[str]:
    if not isinstance(stores, int):
        return list(stores)
    if data is None:
        return [f"memory:{number}" for number in range(stores)]
    from polybus.hosting.places import own_stores

    return own_stores(Path(data), stores)


def _config_text(config: Path | str | Mapping[str, Any] | None) -> str | None:
    if config is None:
        return None
    if isinstance(config, Mapping):
        return json.dumps(config)
    return Path(config).read_text(encoding="utf-8-sig")
