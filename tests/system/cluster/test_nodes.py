"""Three nodes on one PostgreSQL server are one bus: everything works through any of them, whoever owns what."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import SqlRuleFilter

from polybus.hosting.opener import shown_url
from polybus.testing.sdk_clients import connect
from tests.support.cluster import Cluster
from tests.support.raw_amqp import RawClient


def received(client: Any, path: str, count: int, **options: Any) -> list[Any]:
    """So many messages, completed."""
    found: list[Any] = []
    with client.get_queue_receiver(path, **options) as receiver:
        until_s = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until_s:
            for message in receiver.receive_messages(count - len(found), max_wait_time=2):
                receiver.complete_message(message)
                found.append(message)
    return found


def bodies(messages: list[Any]) -> list[str]:
    return sorted(str(message) for message in messages)


def test_first_starts_at_once_are_one_cluster_with_every_store_owned_once(cluster: Cluster) -> None:
    done = cluster.command("nodes", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [node["name"] for node in shown["nodes"]] == ["a", "b", "c"]
    assert {node["state"] for node in shown["nodes"]} == {"alive"}
    owned = [one["store"] for node in shown["nodes"] for one in node["owns"]]
    assert sorted(owned) == sorted(["catalogue", *(shown_url(url) for url in cluster.stores)])
    assert shown["unowned"] == []
    assert all(one["lease_lag_ms"] < 3000 and one["epoch"] > 0 for node in shown["nodes"] for one in node["owns"])
    table = cluster.command("nodes")
    assert table.returncode == 0
    assert "lease lag" in table.stdout


def test_what_one_node_is_told_all_know_at_once(cluster: Cluster) -> None:
    for maker, user in (("a", "b"), ("b", "c"), ("c", "a")):
        cluster.admin(maker).create_queue(f"made-by-{maker}", enable_partitioning=True)
        with (
            connect(cluster.nodes[user].connection_string) as client,
            client.get_queue_sender(f"made-by-{maker}") as s,
        ):
            s.send_messages(ServiceBusMessage("x"))
        assert cluster.admin(user).get_queue_runtime_properties(f"made-by-{maker}").total_message_count == 1
        cluster.admin(user).delete_queue(f"made-by-{maker}")
        assert f"made-by-{maker}" not in [queue.name for queue in cluster.admin(maker).list_queues()]


def test_send_and_receive_through_nodes_that_do_not_own(cluster: Cluster) -> None:
    cluster.admin("b").create_queue("plain", enable_partitioning=True)
    sent = [f"message {number}" for number in range(60)]
    with connect(cluster.nodes["b"].connection_string) as client, client.get_queue_sender("plain") as sender:
        for number, body in enumerate(sent):
            key = f"k{number}" if number % 2 else None
            sender.send_messages(ServiceBusMessage(body, partition_key=key))
    with connect(cluster.nodes["c"].connection_string) as client:
        with client.get_queue_receiver("plain") as receiver:
            assert len({message.sequence_number for message in receiver.peek_messages(100)}) == len(sent)
        assert bodies(received(client, "plain", len(sent))) == sorted(sent)
    assert cluster.admin("a").get_queue_runtime_properties("plain").active_message_count == 0


def test_settlements_schedules_and_dead_letters_through_the_second_node(cluster: Cluster) -> None:
    cluster.admin("b").create_queue("settled", enable_partitioning=True, max_delivery_count=2)
    with connect(cluster.nodes["b"].connection_string) as client:
        with client.get_queue_sender("settled") as sender:
            sender.send_messages([ServiceBusMessage(str(number), partition_key="one") for number in range(4)])
            due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
            numbers = sender.schedule_messages(ServiceBusMessage("later", partition_key="two"), due)
            sender.cancel_scheduled_messages(numbers)
        with client.get_queue_receiver("settled") as receiver:
            first, second, third, fourth = receiver.receive_messages(4, max_wait_time=10)
            receiver.complete_message(first)
            receiver.dead_letter_message(second, reason="bad")
            receiver.defer_message(third)
            receiver.renew_message_lock(fourth)
            receiver.abandon_message(fourth)
            again = receiver.receive_messages(1, max_wait_time=10)[0]
            assert again.delivery_count == 1
            receiver.complete_message(again)
            deferred = receiver.receive_deferred_messages([third.sequence_number])[0]
            receiver.complete_message(deferred)
        dead = received(client, "settled", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert [message.dead_letter_reason for message in dead] == ["bad"]


def test_sessions_on_stores_of_all_nodes(cluster: Cluster) -> None:
    cluster.admin("b").create_queue("sessions", enable_partitioning=True, requires_session=True)
    names = [f"session {number}" for number in range(8)]
    with connect(cluster.nodes["b"].connection_string) as client:
        with client.get_queue_sender("sessions") as sender:
            for name in names:
                sender.send_messages([ServiceBusMessage(f"{name}/{number}", session_id=name) for number in range(3)])
        seen: dict[str, list[str]] = {}
        for _ in names:
            with client.get_queue_receiver(
                "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
            ) as receiver:
                receiver.session.set_state(b"state")
                messages: list[Any] = []
                while len(messages) < 3:
                    messages += receiver.receive_messages(3, max_wait_time=5)
                for message in messages:
                    receiver.complete_message(message)
                seen[receiver.session.session_id] = [str(message) for message in messages]
    assert seen == {name: [f"{name}/{number}" for number in range(3)] for name in names}
    with (
        connect(cluster.nodes["c"].connection_string) as client,
        client.get_queue_receiver("sessions", session_id=names[0]) as receiver,
    ):
        assert receiver.session.get_state() == b"state"


def test_topics_rules_and_forwarding_between_stores_of_different_nodes(cluster: Cluster) -> None:
    admin = cluster.admin("b")
    admin.create_queue("collected", enable_partitioning=True)
    admin.create_topic("news", enable_partitioning=True)
    admin.create_subscription("news", "red", forward_to="collected")
    admin.delete_rule("news", "red", "$Default")
    admin.create_rule("news", "red", "only-red", filter=SqlRuleFilter("colour = 'red'"))
    with connect(cluster.nodes["c"].connection_string) as client:
        with client.get_topic_sender("news") as sender:
            for number in range(12):
                colour = "red" if number % 3 == 0 else "blue"
                properties: dict[str | bytes, Any] = {"colour": colour}
                sender.send_messages(ServiceBusMessage(str(number), application_properties=properties))
        assert bodies(received(client, "collected", 4)) == ["0", "3", "6", "9"]


def test_duplicates_are_found_whichever_node_takes_them(cluster: Cluster) -> None:
    cluster.admin("b").create_queue("once", enable_partitioning=True, requires_duplicate_detection=True)
    for name in ("a", "b", "c"):
        with connect(cluster.nodes[name].connection_string) as client, client.get_queue_sender("once") as sender:
            sender.send_messages([ServiceBusMessage("x", message_id="same")])
            sender.send_messages(ServiceBusMessage("y", message_id=f"only {name}"))
    assert cluster.admin("b").get_queue_runtime_properties("once").active_message_count == 4


def test_a_transaction_lives_at_its_partitions_owner(cluster: Cluster) -> None:
    cluster.admin("b").create_queue("ledger", enable_partitioning=True)
    for owner in ("a", "c"):
        key = cluster.keys_of("ledger", owner, "b")[0]
        with RawClient(cluster.nodes["b"].addresses["amqp"]) as raw:
            sender = raw.sender("ledger")
            kept = raw.declare()
            for number in range(3):
                assert raw.send(sender, kept, f"kept {number}", message_id=f"{owner}{number}", partition_key=key)
            assert raw.commit(kept)
            dropped = raw.declare()
            raw.send(sender, dropped, "dropped", message_id=f"{owner} dropped", partition_key=key)
            assert raw.roll_back(dropped)
    assert cluster.admin("a").get_queue_runtime_properties("ledger").active_message_count == 6


def test_health_and_stores_show_one_bus_through_every_node(cluster: Cluster) -> None:
    cluster.admin("b").create_queue("shown", enable_partitioning=True)
    for name in ("a", "b", "c"):
        stores = cluster.get(name, "/$polybus/stores")["stores"]
        assert [each["url"] for each in stores] == sorted(shown_url(url) for url in cluster.stores)
        assert {each["state"] for each in stores} == {"open"}
        assert all(each["available"] for each in cluster.partitions("shown", name))
