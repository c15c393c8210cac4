"""Entities by the SDK's administration client: what is asked for is what is there."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import CorrelationRuleFilter, EntityAvailabilityStatus, SqlRuleAction, SqlRuleFilter

from tests.sdk.python.bus import Bus, peek_all, take
from tests.sdk.python.table import Table

table = Table("management")


@table.behaviour(differs="A8")
def a_queue_with_every_property(bus: Bus) -> None:
    queue = bus.queue(
        lock_duration=timedelta(seconds=45),
        max_size_in_megabytes=2048,
        requires_duplicate_detection=True,
        requires_session=True,
        default_message_time_to_live=timedelta(days=3),
        dead_lettering_on_message_expiration=True,
        duplicate_detection_history_time_window=timedelta(minutes=7),
        max_delivery_count=4,
        enable_batched_operations=False,
        auto_delete_on_idle=timedelta(hours=1),
        user_metadata="mine",
    )
    found = bus.admin.get_queue(queue.name)
    assert found.lock_duration == timedelta(seconds=45)
    assert found.max_size_in_megabytes == 2048 * (16 if bus.partitioned else 1)
    assert found.requires_duplicate_detection
    assert found.requires_session
    assert found.default_message_time_to_live == timedelta(days=3)
    assert found.dead_lettering_on_message_expiration
    assert found.duplicate_detection_history_time_window == timedelta(minutes=7)
    assert found.max_delivery_count == 4
    assert found.auto_delete_on_idle == timedelta(hours=1)
    assert found.user_metadata == "mine"
    assert found.enable_partitioning is bus.partitioned
    assert found.availability_status == EntityAvailabilityStatus.AVAILABLE


@table.behaviour()
def updating_a_queue(bus: Bus) -> None:
    queue = bus.queue()
    properties = bus.admin.get_queue(queue.name)
    properties.lock_duration = timedelta(seconds=10)
    properties.max_delivery_count = 2
    bus.admin.update_queue(properties)
    found = bus.admin.get_queue(queue.name)
    assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=10), 2)


@table.behaviour()
def what_cannot_be_changed(bus: Bus) -> None:
    queue = bus.queue()
    for name in ("requires_session", "requires_duplicate_detection"):
        properties = bus.admin.get_queue(queue.name)
        setattr(properties, name, True)
        with pytest.raises(HttpResponseError):
            bus.admin.update_queue(properties)


@table.behaviour()
def values_out_of_range(bus: Bus) -> None:
    for wrong in (
        {"lock_duration": timedelta(minutes=6)},
        {"max_delivery_count": 0},
        {"max_size_in_megabytes": 17},
        {"duplicate_detection_history_time_window": timedelta(days=8)},
    ):
        with pytest.raises(HttpResponseError):
            bus.queue(**wrong)


@table.behaviour()
def topics_and_subscriptions(bus: Bus) -> None:
    topic = bus.topic()
    bus.subscription(topic, "a", lock_duration=timedelta(seconds=30), max_delivery_count=3)
    bus.subscription(topic, "b")
    found = bus.admin.get_subscription(topic.name, "a")
    assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=30), 3)
    assert [each.name for each in bus.admin.list_subscriptions(topic.name)] == ["a", "b"]
    bus.admin.delete_subscription(topic.name, "a")
    with pytest.raises(ResourceNotFoundError):
        bus.admin.get_subscription(topic.name, "a")


@table.behaviour()
def rules_come_back_as_they_were(bus: Bus) -> None:
    topic = bus.topic()
    bus.subscription(topic)
    rule_filter = SqlRuleFilter("a = @x AND b LIKE 'c%'", parameters={"@x": 5})
    bus.admin.create_rule(topic.name, "all", "mine", filter=rule_filter, action=SqlRuleAction("SET d = 'e'"))
    found = bus.admin.get_rule(topic.name, "all", "mine")
    assert found.filter.sql_expression == "a = @x AND b LIKE 'c%'"
    assert found.filter.parameters == {"@x": 5}
    assert found.action.sql_expression == "SET d = 'e'"


@table.behaviour()
def counts_and_sizes_are_sums_over_all_partitions(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[ServiceBusMessage(b"x" * 1000) for _ in range(32)])
    runtime = queue.runtime()
    assert (runtime.total_message_count, runtime.active_message_count) == (32, 32)
    assert 32_000 < runtime.size_in_bytes < 64_000
    receiver = queue.receiver()
    take(receiver, 20)
    assert len(peek_all(receiver)) == 12
    assert queue.runtime().total_message_count == 12
    assert queue.runtime().size_in_bytes < runtime.size_in_bytes


@table.behaviour(since="7.15")
def a_topic_counts_its_filters(bus: Bus) -> None:
    topic = bus.topic()
    bus.subscription(topic, "a")
    bus.subscription(topic, "b")
    bus.admin.create_rule(topic.name, "a", "sql", filter=SqlRuleFilter("x = 1"))
    bus.admin.create_rule(topic.name, "a", "one", filter=CorrelationRuleFilter(correlation_id="1"))
    bus.admin.create_rule(topic.name, "b", "two", filter=CorrelationRuleFilter(label="2"))
    found = bus.admin.get_topic_runtime_properties(topic.name)
    assert (found.sql_filter_count, found.correlation_filter_count) == (3, 2)
    bus.admin.delete_rule(topic.name, "b", "$Default")
    bus.admin.delete_subscription(topic.name, "a")
    found = bus.admin.get_topic_runtime_properties(topic.name)
    assert (found.sql_filter_count, found.correlation_filter_count) == (0, 1)


@table.behaviour()
def times_of_an_entity(bus: Bus) -> None:
    queue = bus.queue()
    before = queue.runtime()
    queue.send("x")
    after = queue.runtime()
    assert after.created_at_utc == before.created_at_utc
    assert after.accessed_at_utc >= after.created_at_utc


@table.behaviour()
def the_namespace(bus: Bus) -> None:
    namespace = bus.admin.get_namespace_properties()
    assert (namespace.messaging_sku, namespace.name) == ("Standard", "sbemulatorns")
