"""What fuzzing feeds, and the invariant of each target: any bytes give a result or one of our own refusals.

Each function takes bytes and fails where anything else happens. A hang is found by the fuzzer's own limit of time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from polybus.amqp.codec import decode
from polybus.cluster import values, verbs
from polybus.cluster.frames import FrameReader, greeting
from polybus.cluster.values import Reader
from polybus.errors import BusError, PolybusError, RuleSyntaxError, Unauthorized
from polybus.gateway.atom.filter import parse_filter
from polybus.gateway.atom.parse import parse_entity, parse_rule, parse_subscription
from polybus.gateway.http.properties import parse_json
from polybus.gateway.http.protocol import HttpProtocol
from polybus.gateway.jwt_tokens import JwtSettings, JwtVerifier
from polybus.gateway.sas import KeyRing, Rights, authorize, parse_token
from polybus.namespace.entities.description import AccessRight
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


_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_AUDIENCE, _ISSUER = "https://servicebus.azure.net", "https://issuer.example/"


@functools.cache
def _verifier() -> JwtVerifier:
    """One with a key that nobody else has."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jwks.json"
        published = {**json.loads(RSAAlgorithm.to_jwk(_KEY.public_key())), "kid": "k", "alg": "RS256", "use": "sig"}
        file.write_text(json.dumps({"keys": [published]}))
        verifier = JwtVerifier(JwtSettings(str(file), (_ISSUER,), (_AUDIENCE,)))
        verifier.load()
    return verifier


def check_jwt(data: bytes) -> None:
    """Web tokens of strangers: nothing opens. Claims that the issuer has signed, whatever they are: rights or a refusal."""
    text = data.decode("utf-8", "replace")
    head = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"k"}').rstrip(b"=").decode()
    body = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    for given in (text, f"{head}.{body}.{body}", f"{head}.{text}"):
        try:
            _verifier()(given, ("q",))
        except Unauthorized:
            continue
        raise AssertionError("a web token was taken that nobody signed")
    signed = _signed(data)
    if signed is not None:
        try:
            rights, expires_s = _verifier()(signed, ("q",))
        except Unauthorized:
            return
        assert isinstance(expires_s, float)
        assert rights in Rights.of(AccessRight)


def _signed(data: bytes) -> str | None:
    """A token with any claims, signed well; None where the bytes are no claims."""
    try:
        claims = json.loads(data)
        whole = {"iss": _ISSUER, "aud": _AUDIENCE, "exp": 4_000_000_000, **claims}
        return jwt.encode(whole, _KEY, "RS256", {"kid": "k"})
    except (ValueError, TypeError, RecursionError, jwt.PyJWTError):
        return None


_READ: tuple[Callable[[Reader], object], ...] = (
    lambda reader: values.deliveries_of(_NOWHERE, reader),
    lambda reader: values.locked_of(_NOWHERE, reader),
    values.peeked_of,
    values.transfers_of,
    values.edits_of,
    values.work_of,
    values.moved_of,
    values.records_of,
    values.range_of,
    values.events_of,
    values.statistics_of,
    values.sessions_of,
    values.error_of,
)
_NOWHERE: Any = None
"""Readers only keep the partition."""


def check_frames(data: bytes) -> None:
    """Bytes of another process of the bus, in pieces: frames and their values, or a refusal."""
    for start in (b"", greeting()):
        reader = FrameReader(verbs.LAST)
        piece = 1 + (data[0] if data else 0)
        try:
            reader.feed(start)
            for place in range(1, len(data), piece):
                for frame in reader.feed(data[place : place + piece]):
                    again = frame.to_bytes()
                    assert FrameReader(verbs.LAST).feed(greeting() + again)[0].to_bytes() == again
                    _read_values(frame.value)
        except PolybusError:
            continue
    with contextlib.suppress(PolybusError):
        _read_values(decode(data, 0)[0])


def _read_values(value: object) -> None:
    for read in _READ:
        with contextlib.suppress(PolybusError):
            read(Reader(value))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "codec": check_codec,
    "connection": check_connection,
    "http": check_http,
    "atom": check_atom,
    "tokens": check_tokens,
    "rules": check_rules,
    "jwt": check_jwt,
    "frames": check_frames,
}
