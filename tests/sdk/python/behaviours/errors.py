"""Refusals: the SDK raises the very exception that the cloud service causes."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusError,
)
from azure.servicebus.management import EntityStatus

from tests.sdk.python.bus import Bus, Entity, peek_all, receive_one, take, texts
from tests.sdk.python.table import Table

table = Table("errors")


@table.behaviour()
def sending_to_an_entity_that_does_not_exist(bus: Bus) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        Entity(bus, "no-such-entity").sender().send_messages(ServiceBusMessage("x"))


@table.behaviour()
def receiving_from_an_entity_that_does_not_exist(bus: Bus) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        Entity(bus, "no-such-entity").receiver()


@table.behaviour()
def a_subscription_that_does_not_exist(bus: Bus) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        Entity(bus, bus.topic().name, "nobody").receiver()


@table.behaviour()
def sending_to_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic)
    with pytest.raises(ServiceBusError):
        Entity(bus, subscription.path).sender(bus.client_with(retry_total=0))


@table.behaviour()
def sending_to_dead_letters(bus: Bus) -> None:
    queue = bus.queue()
    with pytest.raises(ServiceBusError):
        Entity(bus, f"{queue.name}/$DeadLetterQueue").sender(bus.client_with(retry_total=0))


def set_status(bus: Bus, queue: Entity, status: EntityStatus) -> None:
    properties = bus.admin.get_queue(queue.name)
    properties.status = status
    bus.admin.update_queue(properties)


def impatient(bus: Bus) -> ServiceBusClient:
    """Tries once more: the SDK tells only the second attempt why the link of a sender was ended."""
    return bus.client_with(retry_total=1, retry_backoff_factor=0.05)


@table.behaviour()
def a_disabled_entity(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    set_status(bus, queue, EntityStatus.DISABLED)
    client = bus.client_with(retry_total=0)
    with pytest.raises(MessagingEntityDisabledError):
        queue.sender(client).send_messages(ServiceBusMessage("y"))
    with pytest.raises(MessagingEntityDisabledError):
        queue.receiver(client)
    set_status(bus, queue, EntityStatus.ACTIVE)
    assert texts(take(queue.receiver(), 1)) == ["x"]


@table.behaviour()
def an_entity_that_takes_nothing(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    set_status(bus, queue, EntityStatus.SEND_DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        queue.sender(bus.client_with(retry_total=0)).send_messages(ServiceBusMessage("y"))
    assert texts(take(queue.receiver(), 1)) == ["x"]


@table.behaviour()
def an_entity_that_gives_nothing(bus: Bus) -> None:
    queue = bus.queue()
    set_status(bus, queue, EntityStatus.RECEIVE_DISABLED)
    queue.send("x")
    with pytest.raises(MessagingEntityDisabledError):
        queue.receiver(bus.client_with(retry_total=0))


@table.behaviour()
def an_entity_that_is_disabled_under_a_sender(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender(impatient(bus))
    sender.send_messages(ServiceBusMessage("x"))
    set_status(bus, queue, EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        sender.send_messages(ServiceBusMessage("y"))


@table.behaviour()
def an_entity_that_is_deleted_under_a_receiver(bus: Bus) -> None:
    queue = bus.queue()
    receiver = queue.receiver(bus.client_with(retry_total=0))
    bus.admin.delete_queue(queue.name)
    with pytest.raises(MessagingEntityNotFoundError):
        receiver.receive_messages(max_wait_time=20)


@table.behaviour()
def an_entity_that_is_deleted_under_a_sender(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender(impatient(bus))
    sender.send_messages(ServiceBusMessage("x"))
    bus.admin.delete_queue(queue.name)
    with pytest.raises(MessagingEntityNotFoundError):
        sender.send_messages(ServiceBusMessage("y"))


@table.behaviour(differs="A15")
def an_entity_created_again_is_empty(bus: Bus) -> None:
    """Also with the other kind of partitioning (A15)."""
    queue = bus.queue()
    queue.send(*[str(index) for index in range(5)])
    bus.admin.delete_queue(queue.name)
    again = bus.queue(queue.name, enable_partitioning=not bus.partitioned)
    assert peek_all(again.receiver()) == []
    again.send("new")
    assert receive_one(again.receiver()).sequence_number & 0xFFFF_FFFF_FFFF == 1


@table.behaviour()
def an_entity_that_exists_already(bus: Bus) -> None:
    queue = bus.queue()
    with pytest.raises(ResourceExistsError):
        bus.admin.create_queue(queue.name)


@table.behaviour(differs="A5")
def partitioning_cannot_be_changed(bus: Bus) -> None:
    queue = bus.queue()
    properties = bus.admin.get_queue(queue.name)
    assert properties.enable_partitioning is bus.partitioned
    properties.enable_partitioning = not bus.partitioned
    with pytest.raises(HttpResponseError, match=r"(?i)partitioning cannot be changed"):
        bus.admin.update_queue(properties)
    with pytest.raises(ResourceNotFoundError):
        bus.admin.get_queue("no-such-entity")
