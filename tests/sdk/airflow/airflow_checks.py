"""Airflow's operators and hooks for Service Bus, unmodified: one by one, and in a DAG that Airflow runs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.microsoft.azure.hooks.asb import AdminClientHook, MessageHook
from airflow.providers.microsoft.azure.operators import asb
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.exceptions import MessagingEntityNotFoundError
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleFilter

BUS = {"azure_service_bus_conn_id": "bus"}
ADMIN = {"azure_service_bus_conn_id": "bus_admin"}
NAMES = itertools.count()


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def queue(partitioned: bool) -> str:
    """A queue of either kind; the operator itself makes plain ones only."""
    name = f"airflow-{os.getpid()}-{next(NAMES)}"
    if partitioned:
        with AdminClientHook("bus_admin").get_conn() as client:
            client.create_queue(name, enable_partitioning=True, max_delivery_count=2)
    else:
        asb.AzureServiceBusCreateQueueOperator(
            task_id="create", queue_name=name, max_delivery_count=2, **ADMIN
        ).execute({})
    return name


def received(queue: str, count: int = 10, wait_s: float = 5) -> list[tuple[str, dict[str, Any]]]:
    """What the operator hands to a callback: body and properties."""
    found: list[tuple[str, dict[str, Any]]] = []

    def keep(message: Any, context: Any) -> None:
        found.append((str(message), message.application_properties or {}))

    asb.AzureServiceBusReceiveMessageOperator(
        task_id="receive", queue_name=queue, max_message_count=count, max_wait_time=wait_s, message_callback=keep, **BUS
    ).execute({})
    return found


def all_received(queue: str, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        more = received(queue, count - len(found))
        assert more, f"{found} is all that came"
        found += [body for body, _ in more]
    return sorted(found)


def test_a_queue_is_made_and_removed(queue: str) -> None:
    with AdminClientHook("bus_admin").get_conn() as client:
        assert client.get_queue(queue).max_delivery_count == 2
        asb.AzureServiceBusDeleteQueueOperator(task_id="delete", queue_name=queue, **ADMIN).execute({})
        with pytest.raises(ResourceNotFoundError):
            client.get_queue(queue)
    with pytest.raises(MessagingEntityNotFoundError):
        MessageHook("bus").send_message(queue, "nobody is there")


@pytest.mark.parametrize("batch", [False, True])
def test_messages_are_sent_and_received(queue: str, batch: bool) -> None:
    wanted = [f"message {number}" for number in range(5)]
    asb.AzureServiceBusSendMessageOperator(
        task_id="send", queue_name=queue, message=wanted, batch=batch, **BUS
    ).execute({})
    assert all_received(queue, 5) == wanted
    assert received(queue, wait_s=0.2) == []


def test_a_message_has_its_id_reply_address_and_headers(queue: str) -> None:
    asb.AzureServiceBusSendMessageOperator(
        task_id="send", queue_name=queue, message="one", message_id="first", reply_to="answers",
        message_headers={"tenant": 6}, **BUS,
    ).execute({})  # fmt: skip
    message = MessageHook("bus").read_message(queue, max_wait_time=5)
    assert message is not None
    assert (message.message_id, message.reply_to, message.application_properties) == ("first", "answers", {b"tenant": 6})
    assert MessageHook("bus").read_message(queue, max_wait_time=0.2) is None


def test_a_callback_that_fails_gives_the_message_back_until_it_dies(queue: str) -> None:
    MessageHook("bus").send_message(queue, "poison")

    def fail(message: Any, context: Any) -> None:
        raise RuntimeError("not today")

    operator = asb.AzureServiceBusReceiveMessageOperator(
        task_id="receive", queue_name=queue, max_wait_time=5, message_callback=fail, **BUS
    )
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not today"):
            operator.execute({})
    assert received(queue, wait_s=0.2) == []
    dead = MessageHook("bus").read_message(f"{queue}/$DeadLetterQueue", max_wait_time=5)
    assert dead is not None
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_topics_subscriptions_and_rules(partitioned: bool) -> None:
    topic = f"airflow-topic-{os.getpid()}-{next(NAMES)}"
    made = asb.AzureServiceBusTopicCreateOperator(
        task_id="topic", topic_name=topic, enable_partitioning=partitioned, **ADMIN
    )
    assert made.execute({}) == topic
    rules: dict[str, Any] = {"all": None, "sql": SqlRuleFilter("tenant = 6"), "label": CorrelationRuleFilter(label="no")}
    for name, rule in rules.items():
        asb.AzureServiceBusSubscriptionCreateOperator(
            task_id=name, topic_name=topic, subscription_name=name,
            filter_rule=rule, filter_rule_name="own" if rule else None,
            lock_duration=timedelta(seconds=30), **ADMIN,
        ).execute({})  # fmt: skip
    asb.AzureServiceBusUpdateSubscriptionOperator(
        task_id="update", topic_name=topic, subscription_name="sql", max_delivery_count=3, **ADMIN
    ).execute({})
    with AdminClientHook("bus_admin").get_conn() as client:
        assert client.get_topic(topic).enable_partitioning is partitioned
        assert client.get_subscription(topic, "sql").max_delivery_count == 3
    MessageHook("bus").send_message(topic, "news", message_headers={"tenant": 6})
    for name, wanted in (("all", ["news"]), ("sql", ["news"]), ("label", [])):
        found: list[str] = []
        asb.ASBReceiveSubscriptionMessageOperator(
            task_id="read", topic_name=topic, subscription_name=name, max_message_count=5,
            max_wait_time=5 if wanted else 0.2, message_callback=lambda message, _, found=found: found.append(str(message)),
            **BUS,
        ).execute({})  # fmt: skip
        assert found == wanted
    asb.AzureServiceBusSubscriptionDeleteOperator(
        task_id="delete", topic_name=topic, subscription_name="all", **ADMIN
    ).execute({})
    asb.AzureServiceBusTopicDeleteOperator(task_id="delete", topic_name=topic, **ADMIN).execute({})
    with AdminClientHook("bus_admin").get_conn() as client, pytest.raises(ResourceNotFoundError):
        client.get_topic(topic)


def test_a_dag_of_operators_runs() -> None:
    airflow = Path(sys.executable).with_name("airflow")
    for command in (["dags", "reserialize"], ["dags", "test", "bus"]):
        done = subprocess.run([sys.executable, str(airflow), *command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert [body for body, _ in received("airflow-dag")] == ["b"], "the DAG has taken the first one"
