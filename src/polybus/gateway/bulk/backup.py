"""`GET /$polybus/backup`: a copy of the running bus, all of one moment, as a tar file (docs/operate.md).

It holds what every namespace holds, keys included, so its reader must be a manager of every one of them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from pathlib import Path

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from polybus.errors import NotImplementedByBus, ServerBusy, StoreError
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.auth import authorize_everywhere
from polybus.gateway.http.errors import not_allowed
from polybus.gateway.http.request import HttpCall
from polybus.namespace.management.live_copy import copy_bus
from polybus.store.backup_files import stream

log = logging.getLogger(__name__)

TAR_TYPE = "application/x-tar"


class _Outgoing(StreamingResponse):
    """A copy on its way out; its folder is gone when the client has it, or has gone away."""

    def __init__(self, folder: Path, stores: list[dict[str, str]]) -> None:
        super().__init__(stream(folder, stores), 200, {"Cache-Control": "no-store"}, TAR_TYPE)
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder.parent, ignore_errors=True)


async def get_backup(call: HttpCall) -> Response:
    if call.method != "GET":
        raise not_allowed(call.method)
    gateway = call.gateway
    authorize_everywhere(call)
    folder = _folder(gateway)
    try:
        stores = await copy_bus(gateway.bus, folder)
    except (StoreError, OSError) as error:
        await asyncio.to_thread(shutil.rmtree, folder.parent, ignore_errors=True)
        log.warning("the bus could not be copied: %s", error)
        raise ServerBusy("The bus could not be copied; its log says why.") from error
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder.parent, ignore_errors=True)
        raise
    log.info("a copy of the bus leaves, with %d messaging stores", len(stores))
    return _Outgoing(folder, stores)


def _folder(gateway: Gateway) -> Path:
    """A fresh folder; there is one copy at a time, for each keeps files that would otherwise be gone."""
    if gateway.outgoing is None:
        raise NotImplementedByBus("This bus has no folder in which a copy could be made.")
    try:
        gateway.outgoing.mkdir(mode=0o700)
    except FileExistsError:
        raise ServerBusy("A copy of the bus is being made already. Try again later.") from None
    return Path(tempfile.mkdtemp(dir=gateway.outgoing))
