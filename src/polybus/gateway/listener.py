"""Listening: one port speaks everything. The first bytes of a connection tell TLS, AMQP and HTTP apart.

The first byte is looked at on the raw socket without being taken, for TLS cannot be started once bytes were
read; inside, with or without TLS, the next bytes choose between AMQP and HTTP. A socket that says nothing is
closed when the time for a handshake is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from polybus.errors import ConfigError
from polybus.limits import HANDSHAKE_SECONDS, LISTEN_BACKLOG, TCP_SEGMENT_BYTES
from polybus.namespace.entities.network_rules import Network, is_within

ProtocolFactory = Callable[[], asyncio.Protocol]

_TLS_HANDSHAKE = b"\x16"
_AMQP = b"AMQP"
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger(__name__)


def networks_named(texts: Sequence[str]) -> list[Network]:
    """Addresses and networks as users write them: 10.0.0.7, 10.0.0.0/8, 2001:db8::/32."""
    try:
        return [ipaddress.ip_network(text.strip()) for text in texts]
    except ValueError as error:
        raise ConfigError(f"--allow-ip is an address or a network: {error}") from None


class Listener:
    """One address on which clients arrive."""

    def __init__(
        self,
        amqp: ProtocolFactory,
        http: ProtocolFactory,
        tls: ssl.SSLContext | None,
        *,
        require_tls: bool = False,
        admit: Callable[[socket.socket], bool] | None = None,
        networks: Sequence[Network] = (),
    ) -> None:
        """`require_tls` hangs up on whoever speaks without, `networks` on whoever comes from elsewhere; `admit` says
        whether there is room for a client."""
        self._admit = admit
        self._networks = networks
        self._amqp = amqp
        self._http = http
        self.tls = tls
        """For those who arrive from now on; it can be replaced."""
        self._require_tls = require_tls
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._arriving: set[asyncio.Task[None]] = set()

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Takes the address, and gives it with the port that was chosen where `port` is 0."""
        self._socket = listening_socket(host, port)
        return host, int(self._socket.getsockname()[1])

    def start(self) -> None:
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        assert self._socket is not None, "bind comes before start"
        while True:
            self.take(*await accept_client(self._socket))

    def take(self, client: socket.socket, host: str) -> None:
        """A client has arrived from that address, here or where somebody else accepts for this process."""
        if self._networks and not is_within(host, self._networks):
            log.info("a connection from %s was refused: it may not connect from there", host)
            client.close()
            return
        if self._admit is not None and not self._admit(client):
            client.close()
            return
        task = asyncio.get_running_loop().create_task(self._receive(client))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _receive(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                first = await _first_byte(client)
            if not first:
                client.close()
                return
            tls = self.tls if first == _TLS_HANDSHAKE else None
            if tls is None and (first == _TLS_HANDSHAKE or self._require_tls):
                log.info(
                    "a connection was refused: %s", "there is no TLS here" if first == _TLS_HANDSHAKE else "no TLS"
                )
                client.close()
                return
            options = {"ssl_handshake_timeout": HANDSHAKE_SECONDS} if tls is not None else {}
            await loop.connect_accepted_socket(lambda: _Sniffer(self._amqp, self._http), client, ssl=tls, **options)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.info("a connection ended before it began: %s", error or type(error).__name__)
            client.close()

    async def stop(self) -> None:
        """Takes no more clients; those that are there stay."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        for task in list(self._arriving):
            task.cancel()
        await asyncio.gather(*self._arriving, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; ConfigError where another program has the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, TCP_SEGMENT_BYTES)
    try:
        listening.bind((host, port))
        listening.listen(LISTEN_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is taken by another program, a bus perhaps; choose other ports "
                "(--amqp-port, --http-port, --tls-port, or --port for all), 0 for any that is free"
            ) from None
        raise
    listening.setblocking(False)
    return listening


async def accept_client(listening: socket.socket) -> tuple[socket.socket, str]:
    """The next client and its address; waits where the process has no descriptor for it."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            client, peer = await loop.sock_accept(listening)
        except OSError as error:
            if error.errno not in _OUT_OF_FILES:
                raise
            log.warning("no more connections can be taken for now: %s", error)
            await asyncio.sleep(0.1)
        else:
            return client, peer[0]


async def _first_byte(client: socket.socket) -> bytes:
    """The first byte that the client sends, left where it is; empty where it hangs up."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(client, arrived)
    try:
        await readable
    finally:
        loop.remove_reader(client)
    return client.recv(1, socket.MSG_PEEK)


class _Sniffer(asyncio.Protocol):
    """Waits for the first bytes, then makes room for the protocol that they belong to."""

    def __init__(self, amqp: ProtocolFactory, http: ProtocolFactory) -> None:
        self._amqp = amqp
        self._http = http
        self._transport: asyncio.Transport | None = None
        self._seen = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if len(self._seen) < len(_AMQP) and _AMQP.startswith(self._seen):
            return
        self._hand_over(self._amqp if self._seen.startswith(_AMQP) else self._http)

    def _hand_over(self, factory: ProtocolFactory) -> None:
        assert self._transport is not None
        assert self._timer is not None
        self._timer.cancel()
        protocol = factory()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
