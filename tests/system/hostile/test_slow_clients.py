"""Clients that take their time, and more of them than there are descriptors: others are served, stores stay."""

from __future__ import annotations

import contextlib
import gc
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from polybus.client.sas import make_token
from polybus.limits import HTTP_HEAD_SECONDS, HTTP_HEADERS, LOOP_STEP_MS
from tests.support.siege.watched import WatchedServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    data: Path = tmp_path_factory.mktemp("hostile")
    with WatchedServer(data / "bus", "--store", "memory:") as server:
        yield server


def connect(server: WatchedServer) -> socket.socket:
    host, _, port = server.addresses["http"].rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def ends(client: socket.socket, drip: bytes, seconds: float) -> float:
    """Sends a drip every half second; after how long the server has hung up."""
    begun = time.monotonic()
    client.settimeout(0.5)
    while time.monotonic() - begun < seconds:
        try:
            client.sendall(drip)
            if not client.recv(65_536):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begun


@pytest.mark.parametrize("drip", [b"G", b"X-A: b\r\n"], ids=["a byte", "a header"])
def test_a_head_that_drips_in_ends_in_time(server: WatchedServer, drip: bytes) -> None:
    with connect(server) as client:
        if drip != b"G":
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        assert ends(client, drip, 2 * HTTP_HEAD_SECONDS) < HTTP_HEAD_SECONDS + 5


def test_a_kept_connection_with_half_a_request_ends_in_time(server: WatchedServer) -> None:
    with connect(server) as client:
        client.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        assert ends(client, b"G", 2 * HTTP_HEAD_SECONDS) < HTTP_HEAD_SECONDS + 5


ATTACKS = {
    "headers": b"GET /health HTTP/1.1\r\n" + b"a:b\r\n" * 19_000 + b"\r\n",
    "header continuations": b"GET /health HTTP/1.1\r\na: b\r\n" + b" c\r\n" * 19_000 + b"\r\n",
    "chunks": b"POST /q/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 40_000,
    "pipelined requests": b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 5_000,
    "blank lines": b"\r\n" * 100_000,
    "a long line": b"GET /" + b"a" * 200_000,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_number_of_lines_holds_up_the_loop(server: WatchedServer, name: str) -> None:
    server.cost()
    with connect(server) as client:
        client.settimeout(3)
        with contextlib.suppress(OSError):
            client.sendall(ATTACKS[name])
            client.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + 5
            while client.recv(65_536) and time.monotonic() < deadline:
                pass
    cost = server.cost()
    assert cost.step_ms < LOOP_STEP_MS, cost


def test_too_many_headers_are_told(server: WatchedServer) -> None:
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * (HTTP_HEADERS + 20) + b"\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 431")


FILES = 200


def create_queue(server: WatchedServer, name: str) -> None:
    token = make_token(f"{server.http_url}/{name}", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 4_000_000_000)
    body = """<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription
        xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>"""
    made = httpx.put(f"{server.http_url}/{name}?api-version=2021-05", content=body, headers={"Authorization": token})
    assert made.status_code == 201, made.text


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_silent_sockets_take_no_descriptor_from_stores_and_no_client_its_place(tmp_path: Path) -> None:
    """With few descriptors: strangers fill what is left for clients, and a real client still gets in and writes."""
    data = tmp_path / "bus"
    server = WatchedServer(data, "--store", f"rocksdb:{data / 'store'}")
    server.limit_files(FILES)
    with server, contextlib.ExitStack() as strangers:
        create_queue(server, "q")
        for _ in range(2 * FILES):
            with contextlib.suppress(OSError):
                strangers.enter_context(connect(server)).sendall(b"GET ")
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("q") as sender:
                for _ in range(20):
                    sender.send_messages(ServiceBusMessage("x" * 10_000))
            with client.get_queue_receiver("q", max_wait_time=10) as receiver:
                assert receiver.receive_messages(20, max_wait_time=10)
        assert server.descriptors() <= FILES - 30
        assert not any("fenced" in line for line in server.output), server.output[-5:]
    gc.collect()  # a connection that was refused is left open by the SDK, which tries again
