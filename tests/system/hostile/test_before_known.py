"""What somebody who has not shown who it is may cost: a real server, its loop timed, its memory read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybus.client.sas import make_token
from polybus.limits import LOOP_STEP_MS
from tests.support.siege.peer import Peer, put_token
from tests.support.siege.watched import WatchedServer

FOREVER_S = 4_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    data: Path = tmp_path_factory.mktemp("hostile")
    with WatchedServer(data / "bus", "--store", "memory:", "--namespace", "one", "--namespace", "two") as server:
        yield server


def show(server: WatchedServer, name: str) -> None:
    """Shows a token for an audience, and waits for the answer, whatever it is."""
    with Peer(server.addresses["amqp"]) as peer:
        peer.begin()
        peer.attach_sender("$cbs")
        peer.attach_receiver("$cbs")
        peer.credit(1, 10)
        token = make_token("sb://localhost/", "RootManageSharedAccessKey", "wrong", FOREVER_S)
        peer.transfer(put_token(name, token))
        assert peer.until("transfer", "disposition", "close") is not None or peer.closed


@pytest.mark.parametrize("segments", [4_000, 30_000, 400_000])
def test_a_long_audience_holds_up_nobody(server: WatchedServer, segments: int) -> None:
    server.cost()
    show(server, "a/" * segments)
    cost = server.cost()
    assert cost.step_ms < LOOP_STEP_MS, cost


def http(server: WatchedServer, request: bytes) -> bytes:
    host, _, port = server.addresses["http"].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as client:
        client.sendall(request)
        return client.recv(65_536)


def test_a_long_path_holds_up_nobody(server: WatchedServer) -> None:
    token = make_token("http://x/", "RootManageSharedAccessKey", "wrong", FOREVER_S)
    server.cost()
    answer = http(
        server, b"GET /%s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n" % (b"a/" * 40_000, token.encode())
    )
    cost = server.cost()
    assert answer.startswith(b"HTTP/1.1 414"), answer[:200]
    assert cost.step_ms < LOOP_STEP_MS, cost
