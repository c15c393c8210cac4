"""G1 to G14: every operation over AMQP, on partitioned entities."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.exceptions import MessageNotFoundError
from azure.servicebus.management import SqlRuleFilter

from tests.requirements.kit import PARTITIONS, Bus, Gate, keys_for, sequence_partitions, until
from tests.sdk.python.bus import peek_all, receive, receive_one, take, texts
from tests.support.raw_amqp import RawClient

SERVER = ("--clock", "movable")


def test_g1_g2_g3_send_and_receive_one_and_many(bus: Bus, gate: Gate) -> None:
    queue = bus.queue()
    sender, receiver = queue.sender(), queue.receiver()
    sender.send_messages(Message("one"))
    assert texts(take(receiver, 1)) == ["one"]
    for batch in range(4):
        sender.send_messages([Message(f"{batch}-{number}") for number in range(20)])
    assert sorted(gate.totals(queue.name)) == [0] * 12 + [20] * 4, (
        "a batch goes to one partition, the next to another"
    )
    got = receive(receiver, 80)
    assert len(set(sequence_partitions(got))) == 4
    assert sorted(texts(got)) == sorted(f"{batch}-{number}" for batch in range(4) for number in range(20))
    sender.send_messages([Message("keyed", partition_key=keys_for(3)[0]) for _ in range(5)])
    assert gate.totals(queue.name)[3] >= 5


def test_g4_receive_by_sequence_number(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(number) for number in range(PARTITIONS)])
    receiver = queue.receiver()
    numbers = {}
    for each in receive(receiver, PARTITIONS):
        numbers[each.sequence_number] = str(each)
        receiver.defer_message(each)
    for number, body in numbers.items():
        (deferred,) = receiver.receive_deferred_messages(number)
        assert str(deferred) == body
        receiver.complete_message(deferred)
    with pytest.raises(MessageNotFoundError):
        queue.receiver(bus.client_with(retry_total=0)).receive_deferred_messages(next(iter(numbers)))


def test_g5_peek(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(number) for number in range(PARTITIONS)])
    receiver = queue.receiver()
    assert sorted(map(int, texts(peek_all(receiver, page=5)))) == list(range(PARTITIONS))
    assert len(take(receiver, PARTITIONS)) == PARTITIONS, "peeking locks nothing"


def test_g6_renew_lock(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(seconds=60))
    queue.send("x")
    receiver = queue.receiver()
    held = receive_one(receiver)
    bus.move_clock(timedelta(seconds=40))
    renewed = receiver.renew_message_lock(held)
    assert renewed is not None
    bus.move_clock(timedelta(seconds=40))
    receiver.complete_message(held)
    assert queue.runtime().total_message_count == 0


def test_g7_g8_schedule_and_cancel(bus: Bus, gate: Gate) -> None:
    queue = bus.queue()
    sender, due = queue.sender(), bus.server_time() + timedelta(hours=1)
    numbers = [sender.schedule_messages(Message(str(number)), due)[0] for number in range(PARTITIONS)]
    assert sorted(number >> 48 for number in numbers) == list(range(PARTITIONS))
    sender.cancel_scheduled_messages(numbers[:4])
    with pytest.raises(MessageNotFoundError):
        queue.sender(bus.client_with(retry_total=0)).cancel_scheduled_messages(numbers[0])
    assert sum(each["counts"]["scheduled"] for each in gate.partitions(queue.name)) == PARTITIONS - 4
    bus.move_clock(timedelta(hours=2))
    assert sorted(map(int, texts(take(queue.receiver(), PARTITIONS - 4)))) == list(range(4, PARTITIONS))


def test_g9_g10_add_and_remove_rules(bus: Bus) -> None:
    """Over AMQP, as the SDKs' rule managers do; the Python SDK has none, and its administration client sees them."""
    topic = bus.topic()
    subscription = bus.subscription(topic, "sub")
    red = {"rule-name": "red", "rule-description": {"sql-filter": {"expression": "colour = 'red'"}}}
    with RawClient(bus.server.addresses["amqp"]) as raw:
        assert raw.ask(subscription.path, "add-rule", red) == (200, None)
        assert raw.ask(subscription.path, "remove-rule", {"rule-name": "$Default"}) == (200, None)
    (rule,) = bus.admin.list_rules(topic.name, "sub")
    assert (rule.name, rule.filter.sql_expression) == ("red", "colour = 'red'")
    for colour in ["red", "blue"] * PARTITIONS:
        topic.send(Message(colour, application_properties={"colour": colour}))
    until(lambda: subscription.runtime().active_message_count == PARTITIONS)
    assert set(texts(peek_all(subscription.receiver()))) == {"red"}
    bus.admin.create_rule(topic.name, "sub", "blue", filter=SqlRuleFilter("colour = 'blue'"))
    topic.send(Message("blue", application_properties={"colour": "blue"}))
    assert subscription.runtime().active_message_count == PARTITIONS + 1


def test_g11_g12_g13_session_lock_and_state(bus: Bus) -> None:
    queue = bus.queue(requires_session=True, lock_duration=timedelta(seconds=60))
    queue.send(*[Message(f"{session}", session_id=f"session {session}") for session in range(4)])
    for session in range(4):
        receiver = queue.receiver(session_id=f"session {session}")
        assert receiver.session.get_state() is None
        receiver.session.set_state(f"state {session}".encode())
        bus.move_clock(timedelta(seconds=40))
        assert receiver.session.renew_lock() is not None
        bus.move_clock(timedelta(seconds=40))
        assert texts(take(receiver, 1)) == [f"{session}"]
        assert receiver.session.get_state() == f"state {session}".encode()
        receiver.close()
    again = queue.receiver(session_id="session 2")
    assert again.session.get_state() == b"state 2"


def test_g14_enumerate_sessions(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    names = sorted(f"session {number}" for number in range(30))
    queue.send(*[Message("x", session_id=name) for name in names])
    assert sorted(bus.client.list_queue_sessions(queue.name)) == names
    receiver = queue.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
    take(receiver, 1)
    gone = receiver.session.session_id
    assert sorted(bus.client.list_queue_sessions(queue.name)) == [name for name in names if name != gone]
