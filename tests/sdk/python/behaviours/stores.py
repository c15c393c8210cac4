"""Messaging stores that fail: what goes on, what is refused, what comes back."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusQuotaExceededError, ServiceBusServerBusyError
from azure.servicebus.management import EntityAvailabilityStatus

from tests.sdk.python.bus import Bus, Entity, numbered, partition_of, peek_all, receive, take, texts
from tests.sdk.python.table import Table

table = Table("stores")

STORES = 4
KEYS = [f"key-{index}" for index in range(40)]


def heal(bus: Bus, queue: Entity) -> None:
    """Everything works again when the queue says so: stores that come back recover first."""
    bus.switch("heal")
    for _ in range(10_000):
        if bus.admin.get_queue(queue.name).availability_status == EntityAvailabilityStatus.AVAILABLE:
            return
    raise AssertionError("the stores did not come back")


def store_of(bus: Bus, queue: Entity) -> int:
    """A store that holds a partition of the queue: without it, the queue is not wholly available."""
    for store in range(STORES):
        bus.switch(f"stores/{store}/down")
        status = bus.admin.get_queue(queue.name).availability_status
        heal(bus, queue)
        if status != EntityAvailabilityStatus.AVAILABLE:
            return store
    raise AssertionError("no store matters to the queue")


def sends(bus: Bus, queue: Entity, messages: list[ServiceBusMessage]) -> list[ServiceBusMessage]:
    """Sends one by one; gives those that were refused as busy."""
    sender = queue.sender(bus.client_with(retry_total=0))
    refused = []
    for message in messages:
        try:
            sender.send_messages(message)
        except ServiceBusServerBusyError:
            refused.append(message)
    return refused


@table.behaviour(differs="B8", alone=True)
def a_send_without_a_key_while_a_store_is_down(bus: Bus) -> None:
    """Another partition takes it; a plain entity has no other."""
    queue = bus.queue()
    bus.switch(f"stores/{store_of(bus, queue)}/down")
    refused = sends(bus, queue, [ServiceBusMessage(str(index)) for index in range(32)])
    assert len(refused) == (0 if bus.partitioned else 32)
    heal(bus, queue)
    found = peek_all(queue.receiver())
    assert len(found) == 32 - len(refused)
    assert len({partition_of(message) for message in found}) == (12 if bus.partitioned else 0)


@table.behaviour(differs="B9", alone=True)
def sends_with_keys_while_a_store_is_down(bus: Bus) -> None:
    """Those of its partitions are refused, with an error that may be tried again; the others are not touched."""
    queue = bus.queue()
    bus.switch(f"stores/{store_of(bus, queue)}/down")
    refused = sends(bus, queue, [ServiceBusMessage(key, partition_key=key) for key in KEYS])
    assert 0 < len(refused) < len(KEYS) if bus.partitioned else len(refused) == len(KEYS)
    heal(bus, queue)
    assert sends(bus, queue, refused) == []
    found = peek_all(queue.receiver())
    assert sorted(texts(found)) == sorted(KEYS)
    late = {partition_of(message) for message in found if str(message) in {str(each) for each in refused}}
    assert late.isdisjoint(
        partition_of(message) for message in found if str(message) not in {str(each) for each in refused}
    )


@table.behaviour(differs="A2", alone=True)
def receiving_while_a_store_is_down(bus: Bus) -> None:
    """What lies on other stores is received; the rest waits."""
    queue = bus.queue()
    queue.send(*[str(index) for index in range(32)])
    bus.switch(f"stores/{store_of(bus, queue)}/down")
    if bus.partitioned:
        receiver = queue.receiver()
        assert len({partition_of(message) for message in take(receiver, 24)}) == 12
    heal(bus, queue)
    assert len(take(queue.receiver(), 8 if bus.partitioned else 32)) in (8, 32)
    assert peek_all(queue.receiver()) == []


@table.behaviour(differs="F1", alone=True)
def sessions_while_a_store_is_down(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    # Their partitions lie on different stores, wherever the queue's first partition lies.
    names = [f"session-{index}" for index in (0, 1, 2, 7)]
    queue.send(*[ServiceBusMessage(name, session_id=name) for name in names])
    bus.switch(f"stores/{store_of(bus, queue)}/down")
    served = []
    client = bus.client_with(retry_total=0)
    for name in names:
        try:
            with queue.unopened(client, session_id=name) as receiver:
                served += texts(take(receiver, 1))
        except ServiceBusError:
            continue
    assert len(served) == (3 if bus.partitioned else 0)
    heal(bus, queue)
    for name in set(names) - set(served):
        with queue.unopened(session_id=name) as receiver:
            assert texts(take(receiver, 1)) == [name]


@table.behaviour(alone=True)
def availability_is_limited_while_a_store_is_down(bus: Bus) -> None:
    queue = bus.queue()
    store = store_of(bus, queue)
    bus.switch(f"stores/{store}/down")
    assert bus.admin.get_queue(queue.name).availability_status == EntityAvailabilityStatus.LIMITED
    heal(bus, queue)


@table.behaviour(differs="F2", alone=True)
def creating_and_deleting_while_a_store_is_down(bus: Bus) -> None:
    """Never half done. A plain entity concerns one store only, so it may be another that is down."""
    queue = bus.queue()
    bus.switch(f"stores/{store_of(bus, queue)}/down")
    with pytest.raises(HttpResponseError):
        bus.admin.delete_queue(queue.name)
    if bus.partitioned:
        name = bus.new_name()
        with pytest.raises(HttpResponseError):
            bus.queue(name)
        with pytest.raises(ResourceNotFoundError):
            bus.admin.get_queue(name)
    heal(bus, queue)
    queue.send("x")
    assert texts(take(queue.receiver(), 1)) == ["x"]


@table.behaviour(alone=True)
def a_full_disk(bus: Bus) -> None:
    """Sends get the quota error; what is there can still be received."""
    queue = bus.queue()
    queue.send(*numbered(2))
    sender, receiver = queue.sender(), queue.receiver()
    for store in range(STORES):
        bus.switch(f"stores/{store}/full")
    with pytest.raises(ServiceBusQuotaExceededError):
        sender.send_messages(ServiceBusMessage("x"))
    messages = receive(receiver, 2)
    assert texts(messages) == ["0", "1"]
    heal(bus, queue)
    for message in messages:
        receiver.complete_message(message)
    sender.send_messages(ServiceBusMessage("y"))
    assert texts(take(receiver, 1)) == ["y"]


@table.behaviour(differs="B8", alone=True)
def a_full_disk_under_one_store(bus: Bus) -> None:
    """A partition that is full counts as unavailable for sends without a key."""
    queue = bus.queue()
    bus.switch(f"stores/{store_of(bus, queue)}/full")
    sender = queue.sender()
    if bus.partitioned:
        for index in range(16):
            sender.send_messages(ServiceBusMessage(str(index)))
        assert len({partition_of(message) for message in peek_all(queue.receiver())}) == 12
    else:
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage("x"))


@table.behaviour(alone=True)
def a_throttled_entity(bus: Bus) -> None:
    queue, other = bus.queue(), bus.queue()
    client = bus.client_with(retry_total=0)
    sender = queue.sender(client)
    bus.switch(f"entities/{queue.name}/throttle", on=True)
    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(ServiceBusServerBusyError):
        queue.sender(client)
    assert sends(bus, other, [ServiceBusMessage("x")]) == []
    bus.switch(f"entities/{queue.name}/throttle", on=False)
    sender.send_messages(ServiceBusMessage("y"))
    assert texts(receive(queue.receiver(), 1)) == ["y"]
