"""The pytest plugin as people use it: in a run of its own, with the official SDK, synchronous and asynchronous."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = '''
import asyncio

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import ServiceBusError

ORDERS = pytest.mark.polybus(queues={"orders": {"EnablePartitioning": True, "DefaultMessageTimeToLive": "P7D"}})


def said(connection_string, send=None):
    """What is in the queue, after this was sent."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        if send is not None:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage(send))
        return [str(each) for each in client.get_queue_receiver("orders").peek_messages(10)]


@ORDERS
@pytest.mark.parametrize("number", range(2))
def test_no_test_meets_another(connection_string, number):
    assert said(connection_string, f"order {number}") == [f"order {number}"]


@ORDERS
def test_fourteen_days_pass_at_once(connection_string, clock):
    assert said(connection_string, "old") == ["old"]
    clock.advance(days=14)
    assert said(connection_string) == []


@ORDERS
def test_a_store_is_lost_and_comes_back(connection_string, fail_store):
    fail_store(2)
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            for number in range(16):
                sender.send_messages(ServiceBusMessage("goes elsewhere"))
            refused = 0
            for number in range(32):
                try:
                    sender.send_messages(ServiceBusMessage("keyed", partition_key=f"key {number}"))
                except ServiceBusError:
                    refused += 1
    assert 0 < refused < 32
    fail_store.heal()


@pytest.mark.polybus(topics={"news": {"Subscriptions": ["all"]}}, stores=1)
def test_asynchronous_clients(connection_string):
    async def through():
        async with AsyncClient.from_connection_string(connection_string) as client:
            async with client.get_topic_sender("news") as sender:
                await sender.send_messages(ServiceBusMessage("heard"))
            async with client.get_subscription_receiver("news", "all") as receiver:
                (message,) = await receiver.receive_messages(max_wait_time=10)
                await receiver.complete_message(message)
                return str(message)

    assert asyncio.run(through()) == "heard"


def test_a_bus_without_a_mark_is_empty(bus):
    from azure.servicebus.management import ServiceBusAdministrationClient

    administration = ServiceBusAdministrationClient.from_connection_string(
        bus.admin_connection_string, connection_verify=str(bus.authority)
    )
    with administration:
        assert list(administration.list_queues()) == []
'''


def run_tests(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_application.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "polybus.testing.pytest_plugin"]
    return subprocess.run(
        [*command, *options, "."], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_its_fixtures_work_with_the_sdk_side_by_side(tmp_path: Path) -> None:
    done = run_tests(tmp_path, TESTS, "--strict-markers", "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_a_wrong_mark_is_told(tmp_path: Path) -> None:
    wrong = 'import pytest\n@pytest.mark.polybus(queues="orders")\ndef test_it(bus): ...\n'
    done = run_tests(tmp_path, wrong)
    assert done.returncode != 0
    assert "the mark polybus takes a list of names, not 'orders'" in done.stdout
