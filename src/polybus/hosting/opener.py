"""Opens messaging stores off the loop, in threads, again and again as it is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from polybus.errors import PolybusError, StoreError
from polybus.hosting.places import is_there
from polybus.promise import Promise
from polybus.store.base import Store
from polybus.store.driver import InlineDriver, StoreDriver, ThreadDriver
from polybus.store.failing import FailingStore, Faults
from polybus.store.memory import MemoryStore
from polybus.store.open import open_store

if TYPE_CHECKING:
    from polybus.store.postgres import Holder


class Opener:
    """Opens a store off the loop, again and again as it is asked; a memory store keeps what it held."""

    def __init__(
        self,
        url: str,
        loop: asyncio.AbstractEventLoop,
        faults: Faults | None,
        unsafe: bool,
        must_exist: Callable[[], bool] = bool,
        holder: Holder | None = None,
    ) -> None:
        """`must_exist` says whether a store is known to lie there: a new one in its place, made because its disk is
        not mounted, would hide that its messages are gone. `holder` is the node that opens it, where there are several.
        """
        self._must_exist = must_exist
        self._holder = holder
        self._url = url
        self._loop = loop
        self._faults = faults
        self._unsafe = unsafe
        self._memory: MemoryStore | None = None
        self.shown = shown_url(url)

    def __call__(self) -> Promise[StoreDriver]:
        promise: Promise[StoreDriver] = Promise()
        threading.Thread(target=self._open, args=(promise,), daemon=True).start()
        return promise

    def _open(self, promise: Promise[StoreDriver]) -> None:
        try:
            driver = self._driver(self._store())
        except (PolybusError, OSError) as error:
            failure = error if isinstance(error, StoreError) else StoreError(str(error))
            self._loop.call_soon_threadsafe(promise.reject, failure)
        else:
            self._loop.call_soon_threadsafe(promise.resolve, driver)

    def _store(self) -> Store:
        if self._faults is not None:
            self._faults.meet("open")
        if self._must_exist() and not is_there(self._url):
            raise StoreError(f"{self.shown}: the messaging store that was there is gone; is its disk mounted?")
        if self._memory is not None:
            inner: Store = self._memory.reopen()
        else:
            inner = open_store(self._url, unsafe=self._unsafe, holder=self._holder)
        if isinstance(inner, MemoryStore):
            self._memory = inner
        if self._faults is None:
            return inner
        return FailingStore(inner, faults=self._faults, reads_block=True)

    def _driver(self, store: Store) -> StoreDriver:
        if self._memory is not None and self._faults is None:
            return InlineDriver(store, self._loop)
        return ThreadDriver(store, self._loop)


def shown_url(url: str) -> str:
    """A store's address as it may be shown: without the password."""
    if url.startswith(("postgresql:", "postgres:")):
        from polybus.store.postgres_url import parse_postgres_url

        return parse_postgres_url(url).shown
    return url
