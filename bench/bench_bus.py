"""A bus without a network, for measuring: sends, takes and completes as fast as the rooms below allow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.support.assembly import assembled_at

from polybus.asyncio_bridge import run
from polybus.clock import RealClock
from polybus.errors import PolybusError
from polybus.memory import settle_memory
from polybus.message.message import Message
from polybus.namespace.delivery.session_source import HeldSession, SessionSource
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.description import EntityDescription
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.tiers import Tier

T = TypeVar("T")


class BenchBus:
    def __init__(self, urls: list[str], catalogue: Path | None = None) -> None:
        self._urls = urls
        self._catalogue = "memory:" if catalogue is None else f"rocksdb:{catalogue}"

    async def __aenter__(self) -> BenchBus:
        loop = asyncio.get_running_loop()
        self.clock = RealClock()
        self.bus = assembled_at(loop, self.clock, self._urls, self._catalogue)
        await run(self.bus.start(["bench"]))
        self.namespace = self.bus.namespace("bench")
        settle_memory()  # as a server does
        return self

    async def __aexit__(self, *_: object) -> None:
        await run(self.bus.stop())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await run(work)

    async def create(self, description: EntityDescription, partitions: int = 16) -> Entity:
        self.bus.tier = Tier(partitions=max(partitions, 1))
        return await run(self.namespace.management.create(description))


class Settler:
    """Sends with a window, and completes whatever is delivered at once."""

    deletes = False

    def __init__(self, bench: BenchBus, entity: Entity) -> None:
        self.credit = 0
        self.done = 0
        self._namespace = bench.namespace
        self._clock = bench.clock
        self._entity = entity
        self._waiting: deque[Message] = deque()
        self._under_way = 0
        self._sent = 0
        self._event = asyncio.Event()
        self._target = 0
        self._source = None if entity.is_topic or entity.settings.own.requires_session else self._make_source()

    def _make_source(self) -> Any:
        return self._entity.source(parse_address(self._entity.name))

    # Receiving

    def want(self, credit: int) -> None:
        self.credit += credit
        self._source.want(self)  # type: ignore[union-attr]

    def deliver(self, delivery: Delivery) -> None:
        delivery.partition.complete(delivery, self._clock.now(), self._completed, None)

    def failed(self, error: PolybusError) -> None:
        raise error

    def lock_lost(self) -> None:
        raise AssertionError("a lock was lost in a benchmark")

    def _completed(self, context: object, result: object, error: PolybusError | None) -> None:
        if error is not None:
            raise error
        self.done += 1
        if self._waiting:
            self._send(self._waiting.popleft())
        if self.done >= self._target:
            self._event.set()

    async def completed(self, total: int) -> None:
        self._target = total
        while self.done < total:
            self._event.clear()
            await self._event.wait()

    # Sending

    async def drive(self, messages: list[Message], window: int) -> None:
        """Sends with so many under way until each is completed."""
        target = self.done + len(messages)
        self._waiting.extend(messages)
        for _ in range(min(window, len(messages))):
            self._send(self._waiting.popleft())
        await self.completed(target)

    def _send(self, message: Message) -> None:
        self._namespace.send(self._entity, [message], self._accepted, None)

    def _accepted(self, context: object, result: object, error: PolybusError | None) -> None:
        if error is not None:
            raise error
        self._sent += 1
        if self._sent >= self._target:
            self._event.set()

    async def send_only(self, messages: list[Message]) -> None:
        self._target = self._sent + len(messages)
        self._event.clear()
        for message in messages:
            self._send(message)
        while self._sent < self._target:
            self._event.clear()
            await self._event.wait()

    # Sessions

    async def one_session(self, source: SessionSource) -> None:
        held = await run(self._accept(source))
        held.receiver = self
        self.credit = 1
        target = self.done + 1
        held.pump()
        await self.completed(target)
        held.release()

    async def _accept(self, source: SessionSource) -> HeldSession:
        return await source.accept_next("bench", 60_000)
