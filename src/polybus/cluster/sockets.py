"""Links over Unix sockets: between processes of one machine and one user, whom the file's mode lets in."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from polybus.cluster.link import Link
from polybus.errors import ProtocolError

log = logging.getLogger(__name__)


class LinkProtocol(asyncio.Protocol):
    def __init__(self, connected: Callable[[Link], None]) -> None:
        self._connected = connected
        self._link: Link | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link = Link(asyncio.get_running_loop(), transport.write, transport.close)
        self._connected(self._link)

    def data_received(self, data: bytes) -> None:
        assert self._link is not None
        try:
            self._link.feed(data)
        except ProtocolError as error:
            log.warning("a link to another process was cut: %s", error)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._link is not None:
            self._link.lose()


async def listen(path: Path, connected: Callable[[Link], None]) -> asyncio.Server:
    """Takes links at a socket's path; one that a dead process left behind is replaced."""
    with suppress(FileNotFoundError):
        path.unlink()
    mask = os.umask(0o177)
    try:
        return await asyncio.get_running_loop().create_unix_server(lambda: LinkProtocol(connected), str(path))
    finally:
        os.umask(mask)


async def connect_to(address: str) -> Link:
    """A link to the member whose address is the path of its socket."""
    return await connect(Path(address))


async def connect(path: Path) -> Link:
    """A link to the process that listens there; OSError where none does."""
    links: list[Link] = []
    await asyncio.get_running_loop().create_unix_connection(lambda: LinkProtocol(links.append), str(path))
    return links[0]
