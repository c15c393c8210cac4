"""A bus put together from its parts, for tests and benches that hold the loop, the clock or the stores themselves.

Whoever only needs a bus takes `polybus.Server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from polybus.clock import Clock
from polybus.hosting.catalogue import Catalogue
from polybus.hosting.opener import Opener
from polybus.hosting.store_host import Opener as OpenStore
from polybus.hosting.store_host import StoreHost
from polybus.namespace.bus import Bus
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.promise import Loop, Promise
from polybus.store.driver import InlineDriver, StoreDriver
from polybus.store.memory import MemoryStore


def assembled(
    loop: Loop,
    clock: Clock,
    stores: Mapping[str, OpenStore],
    catalogue: OpenStore,
    tier: Tier = STANDARD,
    **options: Any,
) -> Bus:
    """A bus that is not started yet, over stores by name and how they are opened."""
    hosts = [StoreHost(name, loop, opener) for name, opener in stores.items()]
    return Bus(loop, clock, hosts, Catalogue(catalogue), tier, **options)


def assembled_at(
    loop: asyncio.AbstractEventLoop, clock: Clock, urls: Iterable[str], catalogue: str, tier: Tier = STANDARD
) -> Bus:
    """The same over stores at addresses, as `polybus serve --store` takes them."""
    stores = {url: Opener(url, loop, None, False) for url in urls}
    return assembled(loop, clock, stores, Opener(catalogue, loop, None, False), tier)


class MemoryOpener:
    """Opens one store in memory on a loop of any kind, at once, and again with what it held."""

    def __init__(self, loop: Any) -> None:
        self.store = MemoryStore()
        self._loop = loop

    def __call__(self) -> Promise[StoreDriver]:
        promise: Promise[StoreDriver] = Promise()
        self.store = self.store.reopen()
        promise.resolve(InlineDriver(self.store, self._loop))
        return promise
