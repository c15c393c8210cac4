"""A9 and A11 to A14: what each tier allows. One folder of data is served by one tier after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage as Message

from polybus.testing.server import ServerProcess
from tests.requirements.kit import PARTITIONS, Bus, Gate
from tests.sdk.python.bus import Entity, take, texts

MEMORY = ("--store", "memory:0")


@pytest.fixture(scope="module")
def premium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    with ServerProcess(tmp_path_factory.mktemp("premium"), "--tier", "premium", *MEMORY) as server:
        bus = Bus(server, "plain")
        yield bus
        bus.close()


def test_a9_sizes_of_the_premium_tier(premium: Bus) -> None:
    assert premium.admin.get_queue(premium.queue().name).max_size_in_megabytes == 1024
    for gigabytes in (1, 2, 3, 4, 5, 10, 20, 40, 80):
        queue = premium.queue(max_size_in_megabytes=gigabytes * 1024)
        assert premium.admin.get_queue(queue.name).max_size_in_megabytes == gigabytes * 1024
    with pytest.raises(HttpResponseError):
        premium.queue(max_size_in_megabytes=6 * 1024)


def test_a13_premium_has_sessions_without_partitioning(premium: Bus) -> None:
    queue = premium.queue(requires_session=True)
    with pytest.raises(HttpResponseError, match=r"(?i)partition"):
        premium.queue(enable_partitioning=True)
    queue.send(Message("1", session_id="s"), Message("other", session_id="t"), Message("2", session_id="s"))
    assert texts(take(queue.receiver(session_id="s"), 2)) == ["1", "2"]


def test_a11_a_hundred_partitioned_entities_and_no_more(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--partitions", "2", *MEMORY) as server:
        bus = Bus(server, "partitioned")
        for number in range(100):
            if number % 2:
                bus.admin.create_queue(f"entity-{number}", enable_partitioning=True)
            else:
                bus.admin.create_topic(f"entity-{number}", enable_partitioning=True)
        for create in (bus.admin.create_queue, bus.admin.create_topic):
            with pytest.raises(HttpResponseError, match="may have 100 partitioned entities") as refused:
                create("one-too-many", enable_partitioning=True)
            assert refused.value.status_code == 403
        bus.admin.create_queue("plain")
        bus.admin.delete_queue("entity-1")
        bus.admin.create_queue("in-its-place", enable_partitioning=True)
        bus.close()


def test_a12_a14_a_partitioned_entity_of_basic_works_on_in_premium(tmp_path: Path) -> None:
    """Basic makes it, as Standard does; a premium namespace makes none and serves what is there in full."""
    with ServerProcess(tmp_path, "--tier", "basic") as server:
        bus = Bus(server, "partitioned")
        bus.admin.create_queue("old", enable_partitioning=True)
        Entity(bus, "old").send(*["basic"] * PARTITIONS)
        bus.close()
    with ServerProcess(tmp_path, "--tier", "premium") as server:
        bus, gate = Bus(server, "partitioned"), Gate(server)
        assert gate.totals("old") == [1] * PARTITIONS
        assert bus.admin.get_queue("old").enable_partitioning is True
        old = Entity(bus, "old")
        old.send(*["premium"] * PARTITIONS, Message("keyed", partition_key="k"))
        assert sorted(texts(take(old.receiver(), 2 * PARTITIONS + 1))) == sorted(
            ["basic"] * PARTITIONS + ["premium"] * PARTITIONS + ["keyed"]
        )
        properties = bus.admin.get_queue("old")
        properties.max_delivery_count = 3
        bus.admin.update_queue(properties)
        assert bus.admin.get_queue("old").max_delivery_count == 3
        bus.admin.delete_queue("old")
        bus.close()
        gate.close()
