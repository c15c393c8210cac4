"""What fuzzing feeds, and the invariant of each target: any bytes give a result or one of our own refusals.

Each function takes bytes and fails where anything else happens. A hang is found by the fuzzer's own limit of time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from polybus.errors import BusError, PolybusError, RuleSyntaxError, Unauthorized
from polybus.gateway.atom.filter import parse_filter
from polybus.gateway.atom.parse import parse_entity, parse_rule, parse_subscription
from polybus.gateway.http.properties import parse_json
from polybus.gateway.http.protocol import HttpProtocol
from polybus.gateway.sas import KeyRing, authorize, parse_token
from polybus.namespace.entities.names import parse_address, parse_http_path
from polybus.rules import SqlAction, SqlFilter, Value
from polybus.rules.failure import RuleEvaluationError
from tests.fuzz.invariants import check_codec, check_connection

RULE_SECONDS = 1.0
"""Far beyond what a rule's budget allows, on the slowest machine."""


def check_atom(data: bytes) -> None:
    """Documents of the management API, and the texts around them."""
    for read in (
        lambda: parse_entity(data, "q"),
        lambda: parse_subscription(data, "t", "s"),
        lambda: parse_rule(data, "r"),
        lambda: parse_filter(data.decode("utf-8", "replace")),
        lambda: parse_json(data, "the body"),
        lambda: parse_http_path(data.decode("latin-1")),
        lambda: parse_address(data.decode("utf-8", "replace")),
    ):
        try:
            read()
        except PolybusError:
            continue


def check_tokens(data: bytes) -> None:
    """Signatures of strangers: nothing opens, whatever they look like."""
    text, _, audience = data.decode("utf-8", "replace").partition("\n")
    for given in (text, f"SharedAccessSignature {text}"):
        try:
            authorize(parse_token(given), audience, 0.0, KeyRing(), hosts=("host",))
        except Unauthorized:
            continue
        raise AssertionError("a token was taken that nobody signed")


class _Message:
    def __init__(self, value: str) -> None:
        self._user: dict[str, Value] = {"a": value, "b": 1, "c": 2.5, "d": True, "e": None}

    def system(self, name: str) -> Value:
        return self._user.get(name)

    def user(self) -> dict[str, Value]:
        return self._user


def check_rules(data: bytes) -> None:
    """A filter or an action of any text, and a message: it is refused, fails as rules do, or answers in time."""
    text, _, value = data.decode("utf-8", "replace").partition("\n")
    message = _Message(value * 50)
    begun_s = time.perf_counter()
    for made in (lambda: SqlFilter(text).matches(message, _new_id), lambda: SqlAction(text).apply(message, _new_id)):
        try:
            made()
        except (RuleSyntaxError, RuleEvaluationError, BusError):
            continue
    assert time.perf_counter() - begun_s < RULE_SECONDS


def _new_id() -> UUID:
    return UUID(int=1)


class _Transport(asyncio.Transport):
    """Takes what is written; the protocol's own end is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.protocol: asyncio.BaseProtocol | None = None

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    more = scope["type"] == "http"
    while more:
        message = await receive()
        more = bool(message.get("more_body"))
    if scope["type"] == "http":
        await Response("fine")(scope, receive, send)


_CONFIG = uvicorn.Config(_answer, http="h11", ws="none", lifespan="off", log_config=None, access_log=False)
_CONFIG.load()


def check_http(data: bytes) -> None:
    """Any bytes in any pieces: answers of HTTP, or the end of the connection; never an exception."""
    asyncio.run(_talk(data))


async def _talk(data: bytes) -> None:
    transport = _Transport()
    protocol = HttpProtocol(config=_CONFIG, server_state=ServerState(), app_state={})
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    piece = 1 + (data[0] if data else 0)
    for place in range(1, len(data), piece):
        if transport.closed:
            break
        protocol.data_received(data[place : place + piece])
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    for task in list(protocol.tasks):
        task.cancel()
    await asyncio.gather(*protocol.tasks, return_exceptions=True)
    assert not transport.written or transport.written.startswith(b"HTTP/1.1 ")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "codec": check_codec,
    "connection": check_connection,
    "http": check_http,
    "atom": check_atom,
    "tokens": check_tokens,
    "rules": check_rules,
}
