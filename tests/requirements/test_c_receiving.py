"""C1 to C7: receiving from all partitions, peeking, and receiving over HTTP."""

from __future__ import annotations

from datetime import timedelta

import httpx
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusReceivedMessage

from tests.requirements.kit import PARTITIONS, Bus, Gate, http_client, keys_for, sequence_partitions, until
from tests.sdk.python.bus import nothing_comes, partition_of, peek_all, receive, receive_one, take, texts

SERVER = ("--clock", "movable")


def test_c1_a_receive_asks_all_partitions_and_the_following_ones_get_the_rest(bus: Bus) -> None:
    for entity in (bus.queue(), _subscription(bus)):
        entity.send(*["x"] * PARTITIONS)
        receiver = entity.receiver()
        seen = [receive_one(receiver) for _ in range(PARTITIONS)]
        assert sorted(sequence_partitions(seen)) == list(range(PARTITIONS))
        for each in seen:
            receiver.complete_message(each)


def _subscription(bus: Bus):
    topic = bus.topic()
    return bus.subscription(topic)


def test_c2_what_another_connection_has_cached_is_locked_and_comes_back_later(bus: Bus, gate: Gate) -> None:
    queue = bus.queue(lock_duration=timedelta(seconds=60))
    hoarder = queue.receiver(prefetch_count=50)
    queue.send(*["x"] * PARTITIONS)
    receive(hoarder, PARTITIONS)
    until(lambda: sum(each["counts"]["locked"] for each in gate.partitions(queue.name)) == PARTITIONS)
    receiver = queue.receiver()
    assert nothing_comes(receiver), "nothing, and no error"
    hoarder.close()
    assert nothing_comes(receiver), "what was sent to it stays locked"
    bus.move_clock(timedelta(seconds=61))
    assert len(take(receiver, PARTITIONS)) == PARTITIONS
    assert sum(gate.totals(queue.name)) == 0


def test_c3_the_only_message_of_an_almost_empty_entity_is_there_at_once(bus: Bus, gate: Gate) -> None:
    """A receive that may not wait at all finds it, in whichever partition it lies."""
    queue = bus.queue()
    for partition in range(PARTITIONS):
        queue.send(Message(f"{partition}", partition_key=keys_for(partition)[0]))
        answer = gate.http.delete(f"/{queue.name}/messages/head?timeout=0")
        assert (answer.status_code, answer.text) == (200, f"{partition}")
    assert gate.http.delete(f"/{queue.name}/messages/head?timeout=0").status_code == 204


def test_c4_peek_gives_the_oldest_of_a_partition_and_numbers_are_per_partition(bus: Bus) -> None:
    plain, queue = bus.queue(enable_partitioning=False), bus.queue()
    for entity in (plain, queue):
        entity.send(*[str(number) for number in range(3 * PARTITIONS)])
    assert texts(plain.receiver().peek_messages()) == ["0"]
    receiver = queue.receiver()
    (first,) = receiver.peek_messages()
    everything = peek_all(receiver)
    own = [each for each in everything if partition_of(each) == partition_of(first)]
    assert first.sequence_number == min(each.sequence_number for each in own)
    low = sorted(each.sequence_number & (1 << 48) - 1 for each in everything)
    assert low == sorted([1, 2, 3] * PARTITIONS)


def test_c5_batched_peeks_are_capped_and_reach_everything(bus: Bus) -> None:
    for entity in (bus.queue(), _subscription(bus)):
        entity.send(*[f"{number}".ljust(50_000) for number in range(PARTITIONS)])
        receiver = entity.receiver()
        some = receiver.peek_messages(max_message_count=PARTITIONS)
        assert 0 < len(some) < PARTITIONS
        assert sum(len(str(each)) for each in some) <= 256 * 1024
        found, start = [], 1
        while page := receiver.peek_messages(max_message_count=5, sequence_number=start):
            found += page
            start = page[-1].sequence_number + 1
        assert sorted(int(str(each)) for each in found) == list(range(PARTITIONS))


def test_c6_http_receives_over_one_connection_and_over_new_ones(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(number) for number in range(2 * PARTITIONS)])
    path = f"/{queue.name}/messages/head?timeout=30"
    with http_client(bus.server) as kept:
        first = [_received(kept, path) for _ in range(PARTITIONS)]
    rest = []
    for _ in range(PARTITIONS):
        with http_client(bus.server) as new:
            rest.append(_received(new, path))
    assert sorted(map(int, first + rest)) == list(range(2 * PARTITIONS))


def _received(client: httpx.Client, path: str) -> str:
    answer = client.delete(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("connection", "keep-alive") != "close"
    return answer.text


def test_c7_what_is_cached_is_answered_without_the_stores(bus: Bus, gate: Gate) -> None:
    """After a restart the first receives read the stores; the following ones are answered while no store reads at all."""
    queue = bus.queue()
    queue.send(*[str(number) for number in range(4 * PARTITIONS)])
    bus.server.restart(kill=True)
    receiver = queue.receiver(bus.client_with())
    found: list[ServiceBusReceivedMessage] = []
    while len({partition_of(each) for each in found}) < PARTITIONS:
        found.append(receive_one(receiver))
    for store in range(4):
        gate.switch(f"stores/{store}/hang", calls=["get", "scan"])
    assert len(found) < 4 * PARTITIONS
    found += receive(receiver, 4 * PARTITIONS - len(found))
    gate.switch("heal")
    assert sorted(int(str(each)) for each in found) == list(range(4 * PARTITIONS))
