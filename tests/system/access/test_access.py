"""Every case of the table on every protocol, against one real server: what opens over one opens over all."""

from __future__ import annotations

import time

import httpx
import pytest

from polybus.testing.server import ServerProcess
from tests.system.access.cases import CASES, Case, Do, token
from tests.system.access.client import PATIENCE_S, AmqpClient, Refused, SocketStream, WebSocketStream
from tests.system.access.drivers import come_in, over_amqp, over_http, over_websocket

STREAMS = {"AMQP": (SocketStream, "amqp"), "WebSocket": (WebSocketStream, "http")}


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 250


@pytest.mark.parametrize("name", CASES)
def test_over_amqp(server: ServerProcess, name: str) -> None:
    assert over_amqp(server, CASES[name]) is CASES[name].allowed


@pytest.mark.parametrize("name", CASES)
def test_over_websocket(server: ServerProcess, name: str) -> None:
    assert over_websocket(server, CASES[name]) is CASES[name].allowed


@pytest.mark.parametrize("name", CASES)
def test_over_http(server: ServerProcess, name: str) -> None:
    case = CASES[name]
    expected = case.allowed if case.over_http is None else case.over_http
    assert over_http(server, case) is expected


def short_lived() -> Case:
    return Case(token("a/b", expiry=f"{time.time() + 1.5:.3f}"), True, Do.LISTEN, "a/b")


@pytest.mark.parametrize("protocol", STREAMS)
@pytest.mark.parametrize("does", ["send", "listen"])
def test_a_link_does_not_outlive_its_token(server: ServerProcess, protocol: str, does: str) -> None:
    stream, listener = STREAMS[protocol]
    client = AmqpClient(stream(server.addresses[listener]))  # type: ignore[arg-type]
    come_in(client, short_lived())
    if does == "send":
        client.send(client.sender("a/b"))
    else:
        client.receiver("a/b")
    with pytest.raises(Refused, match="expired"):
        client.detached()
    with pytest.raises(Refused):
        client.sender("a/b")
    client.close()


def test_over_http_a_token_is_asked_for_each_time(server: ServerProcess) -> None:
    headers = {"Authorization": short_lived().token or ""}
    head = f"{server.http_url}/a/b/$DeadLetterQueue/messages/head"
    # An empty receive lasts longer than the token does.
    assert httpx.delete(f"{head}?timeout=3", headers=headers, timeout=PATIENCE_S).status_code == 204
    assert httpx.delete(f"{head}?timeout=0", headers=headers, timeout=PATIENCE_S).status_code == 401


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_link_that_comes_before_its_token_is_refused_and_the_token_still_counts(
    server: ServerProcess, protocol: str
) -> None:
    stream, listener = STREAMS[protocol]
    client = AmqpClient(stream(server.addresses[listener]))  # type: ignore[arg-type]
    come_in(client, Case(None, False))
    for _ in range(2):
        with pytest.raises(Refused):
            client.sender("orders")
        with pytest.raises(Refused):
            client.receiver("orders")
    client.put_token("sb://localhost/orders", token("orders"))
    client.send(client.sender("orders"))
    with pytest.raises(Refused):
        client.sender("other")
    client.close()
