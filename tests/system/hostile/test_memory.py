"""Bytes that a peer makes the bus hold: bounded, and given back when the peer is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient as AdministrationClient

from polybus.limits import AMQP_REPLIES_HELD_BYTES
from tests.support.siege.peer import Peer, put_token, request
from tests.support.siege.watched import WatchedServer

MB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    data: Path = tmp_path_factory.mktemp("hostile")
    with WatchedServer(data / "bus", "--store", "memory:") as server:
        yield server


def grown(server: WatchedServer, attack: Callable[[], list[Peer]]) -> int:
    """By how many bytes the server has grown while the attack's peers are still there."""
    before = server.resident_bytes()
    peers = attack()
    after = server.resident_bytes()
    for peer in peers:
        peer.socket.close()
    return after - before


def token_links(server: WatchedServer) -> Peer:
    peer = Peer(server.addresses["amqp"])
    peer.begin()
    peer.attach_sender("$cbs")
    peer.attach_receiver("$cbs")
    return peer


def test_replies_that_nobody_takes_are_bounded_by_their_bytes(server: WatchedServer) -> None:
    def attack() -> list[Peer]:
        peer = token_links(server)
        for number in range(200):
            if not peer.transfer(put_token("q", reply_to="r" * 900_000), number=number):
                break
        peer.until("close", seconds=2)
        return [peer]

    assert grown(server, attack) < 20 * MB


def test_what_a_reply_repeats_is_short(server: WatchedServer) -> None:
    with token_links(server) as peer:
        peer.transfer(put_token("q", reply_to="r" * 5_000))
        answer = peer.until("disposition")
        assert answer is not None
        assert "reply-to" in str(answer.fields[4])


def test_requests_that_are_never_finished_are_bounded(server: WatchedServer) -> None:
    def attack() -> list[Peer]:
        peers = []
        for _ in range(8):
            peer = Peer(server.addresses["amqp"])
            peers.append(peer)
            peer.begin()
            for handle in range(125):
                peer.attach_sender("$cbs", handle)
                if not peer.transfer(b"x" * 900_000, handle, handle, more=True):
                    break
        return peers

    assert grown(server, attack) < 40 * MB


def test_names_of_links_are_bounded(server: WatchedServer) -> None:
    def attack() -> list[Peer]:
        peers = [Peer(server.addresses["amqp"]) for _ in range(4)]
        for peer in peers:
            for channel in range(20):
                if peer.closed:
                    break
                peer.begin(channel)
                for handle in range(250):
                    peer.attach_sender("$cbs", handle, channel, name="n" * 15_000 + str(handle))
                    if peer.closed:
                        break
        return peers

    assert grown(server, attack) < 20 * MB


def test_a_client_that_reads_none_of_its_answers_is_cut_off(server: WatchedServer) -> None:
    def attack() -> list[Peer]:
        peer = Peer(server.addresses["amqp"], known=True, buffer=4_096)
        peer.begin()
        node = "$cbs"
        peer.attach_sender(node)
        peer.attach_receiver(node)
        peer.credit(1, 1_000_000, window=1_000_000)
        one = request({"operation": "none"}, None, reply_to="r" * 2_000)
        deadline = time.monotonic() + 20
        number = 0
        while time.monotonic() < deadline and peer.transfer(one, number=number) and number < 40_000:
            number += 1
        return [peer]

    assert grown(server, attack) < 30 * MB


def test_memory_comes_back_when_its_holders_are_gone(server: WatchedServer) -> None:
    """Known clients may hold much; nothing of it stays when they are gone, and nobody waits for a collector."""

    def attack() -> list[Peer]:
        peers = [Peer(server.addresses["amqp"], known=True) for _ in range(4)]
        for peer in peers:
            peer.begin()
            for handle in range(120):
                peer.attach_sender("held", handle)
                peer.transfer(b"x" * 240_000, handle, handle, more=True)
        return peers

    with AdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as administration:
        administration.create_queue("held")
    before = server.resident_bytes()
    held = grown(server, attack)
    assert held > 60 * MB, "the attack must hold something for the test to say anything"
    deadline = time.monotonic() + 20
    while server.resident_bytes() > before + 30 * MB:
        assert time.monotonic() < deadline, (server.resident_bytes() - before) / MB
        time.sleep(0.05)


def test_held_replies_of_a_known_client_are_bounded(server: WatchedServer) -> None:
    with Peer(server.addresses["amqp"], known=True) as peer:
        before = server.resident_bytes()
        peer.begin()
        peer.attach_sender("$cbs")
        peer.attach_receiver("$cbs")
        one = request({"operation": "none"}, None, reply_to="r" * 2_000)
        for number in range(2_000):
            if not peer.transfer(one, number=number):
                break
        assert peer.until("detach") is not None
        assert server.resident_bytes() - before < AMQP_REPLIES_HELD_BYTES + 20 * MB
