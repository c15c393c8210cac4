"""A copy of a bus that goes on working: the catalogue and every messaging store, all of one moment.

What takes long is done before and after that moment. At the moment itself no store and no catalogue commits: what is
in the copy is what was acknowledged until then, as if the power had gone there, which every start can recover from.
Senders notice a commit that takes a little longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from polybus.asyncio_bridge import from_promise, run
from polybus.errors import InvalidOperation, ServerBusy
from polybus.hosting.store_host import StoreHost
from polybus.limits import BACKUP_HOLD_SECONDS
from polybus.namespace.bus import Bus
from polybus.store.base import Copy, Store


async def copy_bus(bus: Bus, folder: Path) -> list[dict[str, str]]:
    """Copies everything into a folder that is there; gives address and id of each store, in the order of the copies.

    ServerBusy where a store cannot be copied: a copy without its messages would be none.
    """
    if bus.members is not None:
        raise InvalidOperation("A bus of several processes is not copied while it runs. Stop it, then copy it.")
    stores = [_opened(host) for host in bus.stores]
    if bus.missing:
        raise ServerBusy("A messaging store is missing: a copy without its messages would not be whole.")
    openings = [host.openings for host in bus.stores]
    copies: list[Copy] = []
    try:
        for index, store in enumerate(stores):
            copies.append(await asyncio.to_thread(store.copy, folder / "stores" / str(index)))
        catalogue = bus.catalogue.store
        copies.append(await asyncio.to_thread(catalogue.copy, folder / "catalogue"))
        async with _standing_still(bus, catalogue):
            if [host.openings for host in bus.stores] != openings or not all(host.available for host in bus.stores):
                raise ServerBusy("A messaging store failed while it was copied. Try again.")
            fixing = asyncio.gather(*(asyncio.to_thread(copy.fix) for copy in copies))
            await asyncio.wait_for(fixing, BACKUP_HOLD_SECONDS)
        for copy in copies:
            await asyncio.to_thread(copy.save)
    except TimeoutError:
        raise ServerBusy("The messaging stores did not stand still in time. Try again.") from None
    finally:
        for copy in copies:
            await asyncio.to_thread(copy.close)
    return [{"url": host.url, "id": host.store_id.hex()} for host in bus.stores]


def _opened(host: StoreHost) -> Store:
    driver = host.driver
    if driver is None or not host.available:
        raise ServerBusy("A messaging store is not available: a copy without its messages would not be whole.")
    return driver.store


@asynccontextmanager
async def _standing_still(bus: Bus, catalogue: Store) -> AsyncIterator[None]:
    """Nothing is committed anywhere inside of this."""
    await run(bus.catalogue.hold())
    held = [host.hold() for host in bus.stores]
    try:
        if bus.catalogue.store is not catalogue:
            raise ServerBusy("The catalogue failed while it was copied. Try again.")
        for promise in held:
            await asyncio.wait_for(from_promise(promise), BACKUP_HOLD_SECONDS)
        yield
    finally:
        for host in bus.stores:
            host.let_go()
        bus.catalogue.let_go()
