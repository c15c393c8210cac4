"""Opens stores that several nodes share: each try asks the owner row, and a lease of another is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from polybus.hosting.opener import Opener
from polybus.limits import NODE_TAKE_SECONDS, POSTGRES_LEASE_SECONDS, POSTGRES_RENEW_SECONDS
from polybus.store.base import Store
from polybus.store.postgres import StoreOwned


class LeaseOpener(Opener):
    def __init__(self, wanted: Callable[[], bool], *given: Any, **named: Any) -> None:
        """`wanted` says whether this node should still have the store."""
        super().__init__(*given, **named)
        self._wanted = wanted

    def _store(self) -> Store:
        until_s = time.monotonic() + POSTGRES_LEASE_SECONDS + 2 * POSTGRES_RENEW_SECONDS
        while True:
            try:
                return super()._store()
            except StoreOwned:
                if not self._wanted() or time.monotonic() > until_s:
                    raise
            time.sleep(NODE_TAKE_SECONDS)
