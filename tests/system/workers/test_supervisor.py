"""Processes: what `--workers` starts, refuses, spreads clients over, starts again and takes down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from polybus.testing.server import ServerProcess
from tests.system.workers.kit import admin, client, clients_of, is_alive, port_of, until, workers_of


@pytest.mark.parametrize("given", ["0", "-1", "many", "1.5", "257", ""])
def test_a_number_of_workers_that_makes_no_sense_is_refused_in_one_line(given: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "polybus", "serve", "--data", str(tmp_path / "data"), f"--workers={given}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr.strip() == f"polybus: --workers is a number from 1 to 256, or auto; not {given}".strip()
    assert not (tmp_path / "data").exists()


def test_one_ready_line_and_a_stop_that_leaves_nothing_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "2") as server:
        workers = workers_of(server)
        assert len(workers) == 2
        assert sum(line.startswith("ready ") for line in server.output) == 1
        assert sum(line.startswith("store ") for line in server.output) == 4
        assert server.stop() == 0
        assert not [pid for pid in workers if is_alive(pid)]


def test_one_worker_is_one_process(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "1") as server:
        assert workers_of(server) == []


def test_clients_are_spread_evenly_and_the_freed_place_is_taken_first(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "2") as server, ExitStack() as stack:
        with admin(server) as managing:
            managing.create_queue("work")
        port, workers = port_of(server), workers_of(server)
        until(lambda: [clients_of(pid, port) for pid in workers] == [0, 0])
        for number in range(1, 7):
            sender = stack.enter_context(client(server)).get_queue_sender("work")
            stack.enter_context(sender).send_messages(ServiceBusMessage("x"))
            spread = sorted(clients_of(pid, port) for pid in workers)
            assert spread == [number // 2, (number + 1) // 2]


def test_workers_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "2") as server:
        workers = workers_of(server)
        server.kill()
        until(lambda: not [pid for pid in workers if is_alive(pid)])
        server.start()  # and their stores are free
        assert len(workers_of(server)) == 2


def test_more_workers_than_stores_are_gateways(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "3", "--store", "memory:") as server, ExitStack() as stack:
        with admin(server) as managing:
            managing.create_queue("work", enable_partitioning=True)
        for number in range(3):
            sender = stack.enter_context(client(server)).get_queue_sender("work")
            stack.enter_context(sender).send_messages([ServiceBusMessage(f"{number}-{each}") for each in range(5)])
        receiver = stack.enter_context(stack.enter_context(client(server)).get_queue_receiver("work"))
        bodies: set[str] = set()
        while len(bodies) < 15:
            for message in receiver.receive_messages(15, max_wait_time=20):
                bodies.add(str(message))
                receiver.complete_message(message)
        assert bodies == {f"{number}-{each}" for number in range(3) for each in range(5)}


@pytest.mark.parametrize("which", [0, 1])
def test_a_dead_worker_is_started_again_and_what_it_held_is_there(which: int, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "2") as server:
        with admin(server) as managing:
            managing.create_queue("work", enable_partitioning=True)
        with client(server) as sending, sending.get_queue_sender("work") as sender:
            sender.send_messages([ServiceBusMessage(str(number), partition_key=str(number)) for number in range(1)])
            for number in range(1, 32):
                sender.send_messages(ServiceBusMessage(str(number), partition_key=str(number)))
        workers = workers_of(server)
        os.kill(workers[which], signal.SIGKILL)
        until(lambda: len(workers_of(server)) == 2 and workers_of(server) != workers)
        with client(server, retries=8) as receiving, receiving.get_queue_receiver("work") as receiver:
            bodies: set[str] = set()
            while len(bodies) < 32:
                for message in receiver.receive_messages(32, max_wait_time=20):
                    bodies.add(str(message))
                    receiver.complete_message(message)
        assert bodies == {str(number) for number in range(32)}


def test_a_bus_in_memory_whose_catalogue_died_begins_anew(tmp_path: Path) -> None:
    stores = ("--store", "memory:", "--store", "memory:")
    with ServerProcess(tmp_path / "data", "--workers", "2", *stores) as server:
        with admin(server) as managing:
            managing.create_queue("work", enable_partitioning=True)
        workers = workers_of(server)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(workers_of(server)) == 2 and not set(workers) & set(workers_of(server)))
        with admin(server) as managing:
            managing.create_queue("work", enable_partitioning=True)  # nobody knows of the one before
            with client(server) as sending, sending.get_queue_sender("work") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            assert managing.get_queue_runtime_properties("work").active_message_count == 1
