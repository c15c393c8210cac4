"""Links between nodes: TCP with TLS at both ends, where each side shows a certificate of the cluster's authority.

A certificate alone does not let anybody in: whoever comes must be a member now, with the process that its row names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from polybus.cluster.certificates import LinkSecurity, Peer, peer_of
from polybus.cluster.link import Link
from polybus.cluster.sockets import LinkProtocol
from polybus.limits import CLUSTER_CONNECT_SECONDS

log = logging.getLogger(__name__)

Admit = Callable[[Peer | None], bool]
Connected = Callable[[Link, Peer], None]


class _TlsLinkProtocol(LinkProtocol):
    """A link that begins when the other side's certificate was looked at."""

    def __init__(self, admit: Admit, connected: Connected) -> None:
        super().__init__(self._begun)
        self._admit = admit
        self._welcome = connected
        self._peer: Peer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._peer = peer_of(transport.get_extra_info("ssl_object"))
        if not self._admit(self._peer):
            log.warning("a link of %s was refused: it is no member", self._peer or "somebody")
            transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        super().connection_made(transport)

    def _begun(self, link: Link) -> None:
        assert self._peer is not None, "nobody is let in without a name"
        self._welcome(link, self._peer)


def bind_links(host: str, port: int) -> socket.socket:
    """The socket at which links will be taken; port 0 picks one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=64)


async def listen(bound: socket.socket, security: LinkSecurity, admit: Admit, connected: Connected) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: _TlsLinkProtocol(admit, connected),
        sock=bound,
        ssl=security.server,
        ssl_handshake_timeout=CLUSTER_CONNECT_SECONDS,
    )


async def connect(address: str, security: LinkSecurity, wanted: Peer) -> Link:
    """A link to the node at this address; OSError where it is not there, or is another one."""
    host, _, port = address.rpartition(":")
    links: list[Link] = []
    opening = asyncio.get_running_loop().create_connection(
        lambda: _TlsLinkProtocol(lambda peer: peer == wanted, lambda link, _: links.append(link)),
        host.strip("[]"),
        int(port),
        ssl=security.client,
        server_hostname="",
        ssl_handshake_timeout=CLUSTER_CONNECT_SECONDS,
    )
    try:
        await asyncio.wait_for(opening, CLUSTER_CONNECT_SECONDS)
    except TimeoutError as error:
        raise OSError(f"{address} does not answer") from error
    if not links:
        raise OSError(f"{address} is not the node {wanted.name!r}")
    return links[0]
