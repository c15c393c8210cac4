"""B8 to B10, A2, F1, F3: sixteen stores with one partition on each, of which one, five or fifteen are lost.

The stores are RocksDB with the failing twin before each. Every send, receive and settlement is recorded and judged by
the verifier, sends in doubt included.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError, SessionCannotBeLockedError

from polybus.testing.history import FAILED, OK, UNKNOWN
from polybus.testing.sdk_clients import message
from polybus.testing.server import ServerProcess
from tests.requirements.kit import PARTITIONS, Bus, Entity, Gate, Judged, keys_for, until

SERVER = ("--stores", "16")
REROUTED_MS = 15_000
"""B10: no send takes longer, however many stores fail."""


@pytest.fixture
def gate(server: ServerProcess) -> Iterator[Gate]:
    made = Gate(server)
    yield made
    made.switch("heal")
    made.close()


@pytest.fixture
def judged(bus: Bus, server: ServerProcess) -> Iterator[Judged]:
    made = Judged(server, bus.queue().name)
    yield made
    made.close()


def stores_of(gate: Gate, name: str, partitions: list[int]) -> list[int]:
    numbers = gate.store_numbers(name)
    return [numbers[partition] for partition in partitions]


@pytest.mark.parametrize("count", [1, 5, 15])
def test_b8_b9_b10_f3_stores_are_lost_and_return(judged: Judged, gate: Gate, bus: Bus, count: int) -> None:
    """Un-keyed sends go on, keyed ones to lost partitions fail and store nothing, and in the end nothing is missing."""
    name = judged.name
    lost = [(3 + 7 * place) % PARTITIONS for place in range(count)]
    whole = [partition for partition in range(PARTITIONS) if partition not in lost]
    for partition in range(PARTITIONS):
        assert judged.send(keys_for(partition)[0]) == OK

    other = judged.client("other")
    under_way, enough = threading.Event(), threading.Event()
    outcomes = _send_in_background(judged, other, under_way, enough)
    under_way.wait()
    gate.take_down(*stores_of(gate, name, lost))
    rerouted = gate.metric("polybus_sends_rerouted_total")
    for _ in range(2 * PARTITIONS):
        assert judged.send() == OK
    assert gate.metric("polybus_sends_rerouted_total") - rerouted >= 2 * count
    for partition in range(PARTITIONS):
        expected = FAILED if partition in lost else OK
        assert judged.send(keys_for(partition)[0]) == expected, partition
    assert judged.recorder.failures == {"ServiceBusServerBusyError": count}
    enough.set()
    assert set(outcomes()) == {OK}
    assert max(judged.recorder.slowest_send_ms, other.slowest_send_ms) < REROUTED_MS

    assert gate.missing(name) == sorted(lost)
    assert bus.admin.get_queue(name).availability_status == "Limited"
    named = gate.http.get(f"/{name}").headers["x-polybus-missing-partitions"]
    assert named == ",".join(map(str, sorted(lost)))
    reachable = sum(gate.totals(name))
    assert bus.admin.get_queue_runtime_properties(name).active_message_count == reachable
    receiver = judged.open_receiver()
    assert judged.drain(reachable, receiver=receiver) == reachable
    assert sum(gate.totals(name)) == 0

    gate.bring_back(name)
    assert bus.admin.get_queue(name).availability_status == "Available"
    left = sum(gate.totals(name))
    assert left >= count, "what the lost stores held is there again"
    for partition in whole[:1] + lost:
        assert judged.send(keys_for(partition)[0]) == OK
    remaining = left + len(whole[:1] + lost)
    assert judged.drain(remaining, receiver=receiver) == remaining
    verdict = judged.verdict(gate)
    assert verdict.clean, verdict.summary()
    assert verdict.report["acknowledged"] == verdict.report["consumed"]


def _send_in_background(judged: Judged, client, under_way: threading.Event, enough: threading.Event):
    """Sends without keys until it is told to stop; the result waits for it and gives all outcomes."""
    found: list[str] = []
    sender = judged.open_sender()

    def work() -> None:
        try:
            while not enough.is_set():
                found.append(client.send(sender, judged.name, message(f"other {len(found)}")))
                if len(found) == 10:
                    under_way.set()
        finally:
            under_way.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def outcomes() -> list[str]:
        thread.join()
        return found

    return outcomes


def test_b10_a_disk_that_hangs_delays_a_send_by_less_than_15_s(judged: Judged, gate: Gate) -> None:
    """The commit of one store never returns: it is given up, the send in doubt finds another partition."""
    store = stores_of(gate, judged.name, [5])[0]
    gate.switch(f"stores/{store}/hang", calls=["commit"])
    for _ in range(2 * PARTITIONS):
        assert judged.send() == OK
    assert judged.recorder.slowest_send_ms < REROUTED_MS
    assert judged.send(keys_for(5)[0]) == FAILED
    assert judged.send(keys_for(6)[0]) == OK
    gate.bring_back(judged.name)
    assert judged.send(keys_for(5)[0]) == OK
    assert judged.drain(sum(gate.totals(judged.name))) == 2 * PARTITIONS + 2
    verdict = judged.verdict(gate)
    assert verdict.clean, verdict.summary()


def test_b8_a_sync_that_fails_leaves_the_send_in_doubt_and_it_is_neither_lost_nor_doubled(
    judged: Judged, gate: Gate
) -> None:
    """Each store's next sync fails once while sends go on; un-keyed ones all succeed."""
    for store in range(0, PARTITIONS, 4):
        gate.switch(f"stores/{store}/fail", calls=["sync"], nth=1)
    for _ in range(3 * PARTITIONS):
        assert judged.send() == OK
    gate.bring_back(judged.name)
    assert judged.drain(3 * PARTITIONS) == 3 * PARTITIONS
    verdict = judged.verdict(gate)
    assert verdict.clean, verdict.summary()


def test_b9_a_keyed_send_in_doubt_is_refused_and_said_to_be_in_doubt(judged: Judged, gate: Gate) -> None:
    """Its sync failed: it may be stored or not, so the error is the retryable one and says why."""
    store = stores_of(gate, judged.name, [7])[0]
    gate.switch(f"stores/{store}/fail", calls=["sync"], nth=1)
    assert judged.send(keys_for(7)[0]) == UNKNOWN
    assert judged.recorder.failures == {"ServiceBusServerBusyError": 1}
    until(lambda: not gate.missing(judged.name))
    assert judged.send(keys_for(7)[0]) == OK
    left = sum(gate.totals(judged.name))
    assert judged.drain(left) == left
    verdict = judged.verdict(gate)
    assert verdict.clean, verdict.summary()


def test_a2_one_store_out_leaves_the_entity_available(judged: Judged, gate: Gate) -> None:
    gate.take_down(stores_of(gate, judged.name, [0])[0])
    for _ in range(PARTITIONS):
        assert judged.send() == OK
    assert judged.drain(PARTITIONS) == PARTITIONS
    gate.bring_back(judged.name)
    assert judged.verdict(gate).clean


def _keys_around(gate: Gate, queue: Entity, lost: int) -> tuple[str, str]:
    """A key of the partition on the store that will be lost, and one of another partition."""
    stores = gate.store_numbers(queue.name)
    kept = next(partition for partition, store in enumerate(stores) if store != lost)
    return keys_for(stores.index(lost))[0], keys_for(kept)[0]


def test_f1_what_belongs_to_the_lost_partition_fails_and_the_rest_goes_on(bus: Bus, gate: Gate) -> None:
    """Sessions, duplicate detection and keys; on a plain entity everything fails."""
    sessions = bus.queue(requires_session=True)
    detecting = bus.queue(requires_duplicate_detection=True)
    plain = bus.queue(enable_partitioning=False)
    lost = gate.store_numbers(plain.name)[0]
    (here, there), (bad, good) = _keys_around(gate, sessions, lost), _keys_around(gate, detecting, lost)
    once = bus.client_with(retry_total=0)
    to_sessions, to_detecting = sessions.sender(once), detecting.sender(once)
    to_plain = plain.sender(once)
    for session in (here, there):
        to_sessions.send_messages(Message("before", session_id=session))
    gate.take_down(lost)

    for sender, refused, accepted in (
        (to_sessions, {"session_id": here}, {"session_id": there}),
        (to_detecting, {"message_id": bad}, {"message_id": good}),
        (to_detecting, {"partition_key": bad}, {"partition_key": good}),
    ):
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(Message("x", **refused))
        sender.send_messages(Message("x", **accepted))
    with pytest.raises((ServiceBusServerBusyError, SessionCannotBeLockedError)):
        sessions.receiver(once, session_id=here)
    receiver = sessions.receiver(once, session_id=there)
    assert len(receiver.receive_messages(max_message_count=2, max_wait_time=30)) == 2
    receiver.session.set_state(b"state")
    assert receiver.session.get_state() == b"state"

    for _ in range(2):
        with pytest.raises(ServiceBusServerBusyError):
            to_plain.send_messages(Message("x"))
    with pytest.raises(ServiceBusError):
        plain.receiver(once).peek_messages()
    gate.bring_back(sessions.name, detecting.name, plain.name)
    to_sessions.send_messages(Message("after", session_id=here))
    receiver = sessions.receiver(once, session_id=here)
    assert [str(each) for each in receiver.receive_messages(max_message_count=2, max_wait_time=30)] == [
        "before",
        "after",
    ]


def test_f3_get_adds_up_counts_and_sizes_of_all_partitions(bus: Bus, gate: Gate) -> None:
    queue = bus.queue()
    queue.send(*[f"{number}" * 100 for number in range(10)], *["x"] * 22)
    runtime = queue.runtime()
    parts = [each["counts"] for each in gate.partitions(queue.name)]
    assert runtime.active_message_count == 32 == sum(each["active"] for each in parts)
    assert runtime.size_in_bytes == sum(each["size_bytes"] for each in parts) > 32
    assert bus.admin.get_queue(queue.name).availability_status == "Available"
    until(lambda: gate.totals(queue.name) == [2] * PARTITIONS)
