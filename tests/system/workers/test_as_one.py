"""Two workers are one bus: whatever is asked of one is true of both."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusServerBusyError

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Gate, until
from tests.system.workers.kit import admin, client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("bus") / "data", "--workers", "2", "--clock", "movable") as server:
        yield server


@pytest.fixture
def both(server: ServerProcess) -> Iterator[list[ServiceBusClient]]:
    """Two clients, each connected to a worker of its own: the second goes to the one that has fewer."""
    with ExitStack() as stack:
        clients = [stack.enter_context(client(server)) for _ in range(2)]
        with admin(server) as managing:
            if not any(queue.name == "anchor" for queue in managing.list_queues()):
                managing.create_queue("anchor")
        for each in clients:
            stack.enter_context(each.get_queue_sender("anchor")).send_messages(ServiceBusMessage("here"))
        yield clients


@pytest.fixture
def gates(server: ServerProcess) -> Iterator[list[Gate]]:
    """Two connections by HTTP that stay: one at each worker."""
    gates = [Gate(server), Gate(server)]
    for gate in gates:
        gate.http.get("/$polybus/stores")
    yield gates
    for gate in gates:
        gate.http.close()


def drain(receiver: ServiceBusReceiver, count: int) -> list[str]:
    bodies: list[str] = []
    while len(bodies) < count:
        for message in receiver.receive_messages(count, max_wait_time=20):
            bodies.append(str(message))
            receiver.complete_message(message)
    return bodies


def test_an_entity_is_there_for_everybody_when_its_creation_is_answered(
    server: ServerProcess, both: list[ServiceBusClient]
) -> None:
    with admin(server) as managing:
        for number in range(6):
            name = f"fresh-{number}"
            managing.create_queue(name, enable_partitioning=number % 2 == 0)
            for each in both:
                with each.get_queue_sender(name) as sender:
                    sender.send_messages([ServiceBusMessage(str(key), partition_key="k") for key in range(3)])
            assert managing.get_queue_runtime_properties(name).active_message_count == 6
            managing.delete_queue(name)


def test_rules_of_a_topic_hold_whoever_sends(server: ServerProcess, both: list[ServiceBusClient]) -> None:
    with admin(server) as managing:
        managing.create_topic("ruled", enable_partitioning=True)
        managing.create_subscription("ruled", "some")
        managing.delete_rule("ruled", "some", "$Default")
        managing.create_rule("ruled", "some", "wanted")
        managing.delete_rule("ruled", "some", "wanted")
        for each in both:
            with each.get_topic_sender("ruled") as sender:
                sender.send_messages([ServiceBusMessage("no") for _ in range(8)])
        managing.create_rule("ruled", "some", "again")
        for each in both:
            with each.get_topic_sender("ruled") as sender:
                for number in range(8):
                    sender.send_messages(ServiceBusMessage(f"yes-{number}"))
        assert managing.get_subscription_runtime_properties("ruled", "some").active_message_count == 16
    for each in both:
        with each.get_subscription_receiver("ruled", "some") as receiver:
            assert len(drain(receiver, 8)) >= 8


def test_sessions_are_held_by_one_receiver_wherever_it_is(
    server: ServerProcess, both: list[ServiceBusClient]
) -> None:
    with admin(server) as managing:
        managing.create_queue("talks", requires_session=True, enable_partitioning=True)
    with both[0].get_queue_sender("talks") as sender:
        for session in range(8):
            for turn in range(3):
                sender.send_messages(ServiceBusMessage(f"{turn}", session_id=f"s{session}"))
    with ExitStack() as stack:
        held = [
            stack.enter_context(
                both[number % 2].get_queue_receiver("talks", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10)
            )
            for number in range(8)
        ]
        assert len({receiver.session.session_id for receiver in held}) == 8
        for receiver in held:
            assert drain(receiver, 3) == ["0", "1", "2"]
            receiver.session.set_state(b"done")
    for number in range(8):
        with both[(number + 1) % 2].get_queue_receiver("talks", session_id=f"s{number}") as receiver:
            assert receiver.session.get_state() == b"done"


def test_what_is_forwarded_arrives_wherever_its_partitions_are(
    server: ServerProcess, both: list[ServiceBusClient]
) -> None:
    with admin(server) as managing:
        managing.create_queue("goal", enable_partitioning=True)
        managing.create_queue("start", enable_partitioning=True, forward_to="goal")
    for each in both:
        with each.get_queue_sender("start") as sender:
            for number in range(16):
                sender.send_messages(ServiceBusMessage(str(number), partition_key=str(number)))
    with both[0].get_queue_receiver("goal") as receiver:
        assert sorted(drain(receiver, 32)) == sorted([str(number) for number in range(16)] * 2)


def test_the_clock_moves_for_all_workers(
    server: ServerProcess, both: list[ServiceBusClient], gates: list[Gate]
) -> None:
    with admin(server) as managing:
        managing.create_queue("later", enable_partitioning=True)
    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
    with both[1].get_queue_sender("later") as sender:
        for number in range(16):
            message = ServiceBusMessage(str(number), partition_key=str(number))
            sender.schedule_messages(message, due + datetime.timedelta(days=1))
    answers = [
        gate.switch("clock", advance_ms=ms) for gate, ms in zip(gates, (86_400_000, 3 * 3_600_000), strict=True)
    ]
    assert answers[1]["clock_ms"] - answers[0]["clock_ms"] >= 3 * 3_600_000
    with both[0].get_queue_receiver("later") as receiver:
        assert len(drain(receiver, 16)) == 16


def test_faults_of_any_store_are_switched_and_shown_through_any_worker(
    server: ServerProcess, both: list[ServiceBusClient], gates: list[Gate]
) -> None:
    with admin(server) as managing:
        managing.create_queue("spread", enable_partitioning=True)
    for store in range(4):
        gate = gates[store // 2]  # stores are dealt in turn: once through their owner, once through the other
        shown = gate.switch(f"stores/{store}/down")
        assert [each["state"] != "open" for each in shown["stores"]] == [number == store for number in range(4)]
        assert gate.missing("spread") == [
            index for index, number in enumerate(gate.store_numbers("spread")) if number == store
        ]
        health = httpx.get(f"{server.http_url}/health").json()
        assert health["degraded"] is True
        for each in both:
            with each.get_queue_sender("spread") as sender:
                for number in range(8):
                    sender.send_messages(ServiceBusMessage(str(number)))  # without a key: elsewhere
        gate.bring_back("spread")
    with both[0].get_queue_receiver("spread") as receiver:
        assert len(drain(receiver, 4 * 2 * 8)) == 64
    assert httpx.get(f"{server.http_url}/health").json()["degraded"] is False


def test_throttling_holds_at_every_worker(
    server: ServerProcess, both: list[ServiceBusClient], gates: list[Gate]
) -> None:
    with admin(server) as managing:
        managing.create_queue("busy")
    gates[0].switch("entities/busy/throttle", on=True)
    for each in both:
        with pytest.raises(ServiceBusServerBusyError), each.get_queue_sender("busy") as sender:
            sender.send_messages(ServiceBusMessage("x"))
    gates[1].switch("entities/busy/throttle", on=False)
    for each in both:
        with each.get_queue_sender("busy") as sender:
            sender.send_messages(ServiceBusMessage("x"))


def test_metrics_count_what_passed_through_all_workers(
    server: ServerProcess, both: list[ServiceBusClient], gates: list[Gate]
) -> None:
    with admin(server) as managing:
        managing.create_queue("counted", enable_partitioning=True, requires_duplicate_detection=True)
    for each in both:
        with each.get_queue_sender("counted") as sender:
            for number in range(8):
                sender.send_messages(ServiceBusMessage(str(number), message_id=str(number)))
    for gate in gates:
        lines = httpx.get(f"{gate.server.http_url}/metrics").text.splitlines()
        of = [line for line in lines if 'entity="counted"' in line]
        values = {line.partition("{")[0]: float(line.rsplit(" ", 1)[1]) for line in of if "partition=" not in line}
        assert values["servicebus_incoming_messages_total"] == 16
        assert values["servicebus_duplicate_messages_total"] == 8
        assert values["servicebus_active_messages"] == 8
    assert gates[0].metric("servicebus_active_connections") >= 2
    assert [gate.http.get("/$polybus/stores").json()["stores"][0]["id"] for gate in gates] != ["", ""]
    until(lambda: gates[0].metric("polybus_store_up") == 4)


def test_cursors_and_jobs_are_the_same_through_every_worker(
    server: ServerProcess, both: list[ServiceBusClient], gates: list[Gate]
) -> None:
    with admin(server) as managing:
        managing.create_queue("read", enable_partitioning=True)
    with both[1].get_queue_sender("read") as sender:
        for number in range(16):
            sender.send_messages(ServiceBusMessage(str(number), partition_key=str(number)))
    place = "/$polybus/entities/read"
    for number, gate in enumerate(gates):
        made = gate.http.put(f"{place}/cursors/c{number}", json={"start": "earliest"})
        assert made.status_code == 201, made.text
    for gate in gates:
        assert [each["name"] for each in gate.http.get(f"{place}/cursors").json()["cursors"]] == ["c0", "c1"]
    job = gates[0].http.post(f"{place}/purge", json={"state": "active"})
    assert job.status_code in (200, 202), job.text
    number = job.json()["job"]
    for gate in gates:
        until(lambda gate=gate: gate.http.get(f"/$polybus/jobs/{number}").json()["state"] == "done")
    assert [sum(gate.totals("read")) for gate in gates] == [0, 0]
