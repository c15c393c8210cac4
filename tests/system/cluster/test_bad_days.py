"""Nodes that die, freeze, leave and come back: what clients see of it, and for how long (docs/how-to/cluster.md)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from polybus.cluster import tls_links, verbs
from polybus.cluster.certificates import Peer, link_security
from polybus.cluster.frames import OLDEST, VERSION
from polybus.cluster.values import Reader
from polybus.errors import PolybusError
from polybus.store.cluster_rows import Shared
from polybus.store.postgres_url import parse_postgres_url
from polybus.testing.sdk_clients import connect
from tests.support.cluster import Cluster, wait_for

ALL = ("a", "b", "c")


class SteadySender:
    """Sends one message after the other through one node until it is told to stop."""

    def __init__(self, cluster: Cluster, name: str, path: str, key: str | None = None) -> None:
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._connection = cluster.nodes[name].connection_string
        self._path = path
        self._key = key
        self._prefix = f"{name} {key}"
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with connect(self._connection) as client, client.get_queue_sender(self._path) as sender:
            number = 0
            while not self._ended.is_set():
                number += 1
                body = f"{self._prefix} {number}"
                began_s = time.monotonic()
                try:
                    sender.send_messages(ServiceBusMessage(body, message_id=body, partition_key=self._key))
                    self.accepted.append(body)
                except ServiceBusError as error:
                    self.refused.append(f"{body}: {error}")
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    def __enter__(self) -> SteadySender:
        self._thread.start()
        wait_for(lambda: len(self.accepted) > 5, "sends are under way")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)


def accepted_after_s(client: Any, path: str, key: str) -> float:
    """How long it takes until a send with this key is accepted; refusals are tried again soon."""
    began_s = time.monotonic()
    with client.get_queue_sender(path) as sender:
        while True:
            try:
                sender.send_messages(ServiceBusMessage("again", partition_key=key))
                return time.monotonic() - began_s
            except ServiceBusError:
                assert time.monotonic() - began_s < 20, f"a send with the key {key!r} is never accepted"
                time.sleep(0.05)  # far less than any client backs off for, and the cores are left to the nodes


def drained(cluster: Cluster, name: str, path: str) -> list[str]:
    """The bodies of everything that there is, received and completed."""
    found: list[str] = []
    with connect(cluster.nodes[name].connection_string) as client, client.get_queue_receiver(path) as receiver:
        while messages := receiver.receive_messages(200, max_wait_time=2):
            for message in messages:
                receiver.complete_message(message)
                found.append(str(message))
    return found


@contextmanager
def back_again(cluster: Cluster, name: str) -> Iterator[None]:
    """Whatever happens to the node, it is there again afterwards, with its part of the stores."""
    try:
        yield
    finally:
        cluster.nodes[name].start()
        cluster.wait_even(3)


def queue(cluster: Cluster, path: str) -> str:
    cluster.admin("a").create_queue(path, enable_partitioning=True)
    cluster.wait_serving(path, *ALL)
    return path


def test_a_killed_node_is_taken_over_and_sends_without_a_key_are_never_refused(cluster: Cluster) -> None:
    path = queue(cluster, "killed")
    keys = cluster.keys_of(path, "c", "a")
    assert keys, "the node owns some of it"
    with (
        back_again(cluster, "c"),
        connect(cluster.nodes["a"].connection_string) as client,
        SteadySender(cluster, "a", path) as one,
        SteadySender(cluster, "b", path) as other,
    ):
        cluster.nodes["c"].kill()
        waits_s = [accepted_after_s(client, path, key) for key in keys]
        cluster.wait_even(2)
    assert max(waits_s) < 5, waits_s
    assert one.refused == []
    assert other.refused == []
    found = drained(cluster, "b", path)
    assert set(one.accepted) | set(other.accepted) <= set(found), "nothing that was acknowledged is lost"
    assert len(set(found) - {"again"}) == len(found) - found.count("again"), "and nothing is there twice"


def test_a_frozen_node_hands_nothing_out_when_it_thaws(cluster: Cluster) -> None:
    path = queue(cluster, "frozen")
    key = cluster.keys_of(path, "c", "a")[0]
    node = cluster.nodes["c"]
    with connect(cluster.nodes["a"].connection_string) as client, client.get_queue_sender(path) as sender:
        sender.send_messages([ServiceBusMessage(str(number), partition_key=key) for number in range(20)])
        os.kill(node.pid, signal.SIGSTOP)
        try:
            assert accepted_after_s(client, path, key) < 5
            cluster.drain(
                "c", True
            )  # else it gets its part of the stores back, and what lies there is delivered anew
            with client.get_queue_receiver(path) as receiver:
                held: list[Any] = []
                until_s = time.monotonic() + 20
                while len(held) < 21 and time.monotonic() < until_s:
                    held += receiver.receive_messages(21 - len(held), max_wait_time=2)
                assert len(held) >= 21, sorted(str(message) for message in held)
                # All are locked at the new owner. Whoever asks the old one, woken just now, must not get one of them.
                thaw = threading.Timer(1, os.kill, (node.pid, signal.SIGCONT))
                thaw.start()
                with connect(node.connection_string) as late, late.get_queue_receiver(path) as stale:
                    assert stale.receive_messages(5, max_wait_time=3) == []
                thaw.join()
                for message in held:
                    receiver.complete_message(message)
        finally:
            os.kill(node.pid, signal.SIGCONT)
            cluster.drain("c", False)
    cluster.wait_even(3)
    assert cluster.admin("b").get_queue_runtime_properties(path).active_message_count == 0


def test_draining_moves_everything_and_refuses_nothing(cluster: Cluster) -> None:
    path = queue(cluster, "moved")
    keys = [cluster.keys_of(path, name, "a")[0] for name in ALL]
    senders = [SteadySender(cluster, "a", path, keys[1]), SteadySender(cluster, "c", path, keys[1])]
    with senders[0], senders[1], SteadySender(cluster, "b", path, keys[1]) as own:
        done = cluster.command("nodes", "drain", "b")
        assert done.returncode == 0, done.stderr
        assert "b" not in cluster.owners().values()
        undone = cluster.command("nodes", "drain", "b", "--undo")
        assert undone.returncode == 0, undone.stderr
        cluster.wait_even(3)
    everybody = [*senders, own]
    assert [sender.refused for sender in everybody] == [[], [], []]
    assert max(sender.longest_s for sender in everybody) < 2
    found = drained(cluster, "c", path)
    assert sorted(found) == sorted(body for sender in everybody for body in sender.accepted)


def test_a_node_that_is_stopped_hands_over_first(cluster: Cluster) -> None:
    path = queue(cluster, "stopped")
    key = cluster.keys_of(path, "c", "a")[0]
    with back_again(cluster, "c"), SteadySender(cluster, "a", path, key) as sender:
        assert cluster.nodes["c"].stop() == 0
        cluster.wait_even(2)
    assert sender.refused == []


def test_a_dead_nodes_name_may_be_taken_after_its_lease(cluster: Cluster) -> None:
    """`back_again` starts it under the same name: it waits for the lease and no longer."""
    cluster.nodes["b"].kill()
    began_s = time.monotonic()
    cluster.nodes["b"].start()
    assert time.monotonic() - began_s < 20
    cluster.wait_even(3)
    assert [row.name for row in cluster.view().living] == list(ALL)


_OLDER = """
from polybus.cluster import frames

frames.VERSION = frames.OLDEST
from polybus.cli.main import main

main()
"""


def test_a_node_that_greets_with_an_older_version_works_beside_the_others(cluster: Cluster) -> None:
    path = queue(cluster, "older")
    older = cluster.node("d")
    older.program = (sys.executable, "-c", _OLDER)
    try:
        older.start()
        cluster.wait_even(4)
        assert [row.protocol for row in cluster.view().living] == [VERSION, VERSION, VERSION, OLDEST]
        cluster.wait_serving(path, *ALL, "d")
        for through in ("a", "d"):
            with (
                connect(cluster.nodes[through].connection_string) as client,
                client.get_queue_sender(path) as sender,
            ):
                for number in range(32):
                    sender.send_messages(ServiceBusMessage(f"{through} {number}", partition_key=f"key {number}"))
        found = drained(cluster, "d", path)
        assert sorted(found) == sorted(f"{through} {number}" for through in ("a", "d") for number in range(32))
    finally:
        older.stop()
        del cluster.nodes["d"]
        cluster.wait_even(3)


def test_a_link_of_somebody_who_is_no_member_is_cut_off(cluster: Cluster) -> None:
    """With the cluster's own authority: only the database could have given it, and it has no row there."""
    shared = psycopg.connect(parse_postgres_url(cluster.url).conninfo, autocommit=True)
    with shared:
        row = shared.execute("SELECT secret, authority, authority_key FROM three_cluster.cluster").fetchone()
    assert row is not None
    view = cluster.view()
    member = view.living[0]

    async def call(process: str) -> bool:
        """Whether a link is answered."""
        security = link_security(Shared(*map(bytes, row)), Peer("stranger", process))
        link = await tls_links.connect(member.address, security, Peer(member.name, member.process))
        closed = asyncio.Event()
        answered = asyncio.Event()
        link.on_closed.append(closed.set)

        def heard(reader: Reader | None, error: PolybusError | None) -> None:
            del reader
            if error is None:
                answered.set()

        link.ask(verbs.HELLO, 0, 0, ["stranger"], heard)
        waiting = [asyncio.ensure_future(event.wait()) for event in (closed, answered)]
        await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        link.close()
        return answered.is_set()

    assert not asyncio.run(call("ab" * 16))
    assert any("it is no member" in line for line in cluster.nodes[member.name].output)
