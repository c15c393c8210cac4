"""One HTTP request, read with limits: its target, its query, its headers, its body.

Whatever a request asks for, it goes through here first. Nothing is believed before it is checked: not the length of
a body, not the host that answers repeat, not the number of headers. What is read of the path
stays encoded; `namespace.names` takes it apart.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.types import Receive, Scope

from polybus import limits
from polybus.errors import BusError
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.errors import refusal
from polybus.namespace.namespace import Namespace

CASED_HEADERS = "polybus.headers"
"""Where our protocol class leaves the headers as they came: ASGI has their names in lower case only."""

KNOWN = "polybus.known"
"""Where it leaves whom to tell that a client has shown who it is."""

_HOST = re.compile(r"[A-Za-z0-9._~-]{1,255}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")
_API_VERSION = re.compile(r"[0-9A-Za-z.-]{1,32}")


class HttpCall:
    """A request and the namespace it is meant for."""

    def __init__(self, scope: Scope, receive: Receive, gateway: Gateway) -> None:
        self.scope = scope
        self.gateway = gateway
        self.method: str = scope["method"]
        self.raw_path = _raw_path(scope)
        self.raw_query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers = _headers(scope)
        self.host = self.headers.get("host") or _server(scope)
        self.query: dict[str, str] = {}
        self.namespace: Namespace = gateway.first_namespace
        """Until the request is checked: what it means is not looked at before its length is."""
        self.judges_address = True
        """Whether the IP rules of the namespace count."""
        self._receive = receive
        self._ended = not self._announces_body()
        self._disconnected = False

    def _meant(self) -> Namespace:
        """The namespace of the host name, or of the key that signed the token."""
        named = self.gateway.namespace_named(self.host)
        return named or self.gateway.namespace_signing(self.headers.get("authorization"), self.path)

    def check(self) -> None:
        """Refuses what no request may be, before anything looks at what it asks for."""
        names = [name for name, _ in self.scope["headers"]]
        if len(names) > limits.HTTP_HEADERS or _header_bytes(self.scope) > limits.HTTP_HEADER_BYTES:
            raise refusal(431, "The request has too many headers.")
        if len(self.raw_query) > limits.HTTP_QUERY_CHARACTERS or len(self.raw_path) > limits.ADDRESS_CHARACTERS:
            raise refusal(414, "The URL of the request is too long.")
        if not _HOST.fullmatch(self.host):
            raise refusal(400, "The Host header of the request is not valid.")
        # Both at once is how requests are smuggled past proxies, though HTTP says which one counts.
        if b"transfer-encoding" in names and b"content-length" in names:
            raise refusal(400, "The request has both a Content-Length and a Transfer-Encoding.")
        if self.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
            raise refusal(415, "The request body must not be compressed.")
        self.query = _query(self.raw_query)
        self.namespace = self._meant()

    @property
    def client_host(self) -> str | None:
        """The address of the client."""
        client = self.scope.get("client")
        return None if client is None else str(client[0])

    def show_known(self) -> None:
        """The client has shown who it is: its connection is not a stranger's any more."""
        tell = self.scope.get(KNOWN)
        if tell is not None:
            tell()

    @property
    def path(self) -> str:
        """The decoded path, for telling apart what is not an entity's."""
        return unquote(self.raw_path).rstrip("/") or "/"

    @property
    def base_url(self) -> str:
        return f"{self.scope.get('scheme', 'http')}://{self.host}"

    @property
    def api_version(self) -> str:
        """The api-version as far as it is one; the empty string stands for the newest."""
        text = self.query.get("api-version", "")
        return text if _API_VERSION.fullmatch(text) else ""

    @property
    def cased_headers(self) -> list[tuple[str, bytes]]:
        """All headers with their names as the client wrote them, where the server kept that."""
        raw = self.scope.get(CASED_HEADERS) or self.scope["headers"]
        return [(name.decode("latin-1"), value) for name, value in raw]

    @property
    def prefers_json(self) -> bool:
        return "json" in self.headers.get("accept", "")

    # The body

    def _announces_body(self) -> bool:
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0").strip() not in ("0", "")

    async def body(
        self, max_bytes: int, error: Exception | None = None, seconds: float = limits.HTTP_BODY_SECONDS
    ) -> bytes:
        """The whole body; refused with 413, or with `error`, as soon as it is known to be too large."""
        too_large = error or refusal(413, f"The request body is larger than {max_bytes} bytes.")
        length = self.headers.get("content-length", "").strip()
        if length.isdigit() and int(length) > max_bytes:
            raise too_large
        parts: list[bytes] = []
        size = 0
        async for part in self.stream(seconds):
            size += len(part)
            if size > max_bytes:
                raise too_large
            parts.append(part)
        return b"".join(parts)

    async def stream(self, seconds: float = limits.HTTP_BODY_SECONDS) -> AsyncIterator[bytes]:
        """The body piece by piece; it must be here within its time, all of it."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._ended:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await self._receive()
            except TimeoutError:
                raise refusal(408, "The request body did not arrive in time.") from None
            if message["type"] == "http.disconnect":
                self._ended = self._disconnected = True
                raise Disconnected
            self._ended = not message.get("more_body", False)
            yield message.get("body", b"")

    async def wait_for_disconnect(self) -> None:
        """Returns when the client has gone; for calls that wait long before they answer."""
        while not self._disconnected:
            message = await self._receive()
            self._disconnected = message["type"] == "http.disconnect"

    async def drain(self) -> bool:
        """Throws the rest of the body away; False where it is too much of it, and the connection must go."""
        size = 0
        try:
            async for part in self.stream(limits.HTTP_DRAIN_SECONDS):
                size += len(part)
                if size > limits.HTTP_DRAINED_BYTES:
                    return False
        except (BusError, Disconnected):
            return False
        return True


class Disconnected(Exception):
    """The client has gone while its request was read: nobody is left to answer."""


def _raw_path(scope: Scope) -> str:
    raw: Any = scope.get("raw_path")
    return raw.decode("latin-1") if isinstance(raw, bytes) else str(scope["path"])


def _headers(scope: Scope) -> dict[str, str]:
    """Headers by name in lower case; of one that comes twice the first counts."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


def _header_bytes(scope: Scope) -> int:
    return sum(len(name) + len(value) for name, value in scope["headers"])


def _server(scope: Scope) -> str:
    server = scope.get("server") or ("localhost", None)
    return str(server[0]) if server[1] is None else f"{server[0]}:{server[1]}"


def _query(text: str) -> dict[str, str]:
    """The query by folded name; of a field that comes twice the first counts."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=limits.HTTP_QUERY_FIELDS)
    except ValueError:
        raise refusal(400, "The query of the request cannot be read.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name.lower(), value)
    return found
