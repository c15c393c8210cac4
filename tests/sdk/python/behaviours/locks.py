"""Locks: renewed, kept by the SDK's renewer, lost, and what a late settlement is told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import AutoLockRenewer
from azure.servicebus.exceptions import MessageLockLostError

from tests.sdk.python.bus import SHORT_LOCK, WAIT, Bus, numbered, peek_all, receive, receive_one, soon, take, texts
from tests.sdk.python.table import Table

table = Table("locks")


@table.behaviour()
def the_lock_lasts_as_long_as_the_queue_says(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=2))
    queue.send("x")
    message = receive_one(queue.receiver())
    left = message.locked_until_utc - datetime.now(UTC)
    assert timedelta(minutes=1, seconds=30) < left <= timedelta(minutes=2, seconds=1)


@table.behaviour(alone=True)
def renewing_a_lock(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(seconds=30))
    queue.send("x")
    receiver = queue.receiver()
    message = receive_one(receiver)
    before = message.locked_until_utc
    bus.move_clock(timedelta(seconds=20))
    after = receiver.renew_message_lock(message)
    assert after >= before + timedelta(seconds=19)
    assert message.locked_until_utc == after
    bus.move_clock(timedelta(seconds=20))
    receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def renewing_the_lock_of_a_deferred_message(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    receiver = queue.receiver()
    message = receive_one(receiver)
    receiver.defer_message(message)
    (deferred,) = receiver.receive_deferred_messages([message.sequence_number])
    assert receiver.renew_message_lock(deferred) >= deferred.enqueued_time_utc
    receiver.complete_message(deferred)


@table.behaviour()
def the_renewer_keeps_a_lock(bus: Bus) -> None:
    """Another receiver waits for longer than the lock lasts, and gets nothing."""
    queue = bus.queue(lock_duration=SHORT_LOCK)
    queue.send("x")
    with AutoLockRenewer() as renewer:
        receiver = queue.receiver(auto_lock_renewer=renewer)
        message = receive_one(receiver)
        assert queue.receiver().receive_messages(max_wait_time=8) == []
        assert message.auto_renew_error is None
        receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def many_locks_renewed_at_once(bus: Bus) -> None:
    """The SDK's threads number their requests alike; the receiver lives on, and each request has its answer."""
    queue = bus.queue(lock_duration=timedelta(minutes=1))
    queue.send(*numbered(40))
    receiver = queue.receiver()
    messages = receive(receiver, 40)
    before = max(message.locked_until_utc for message in messages)
    with ThreadPoolExecutor(16) as pool:
        for _ in range(5):
            renewed = list(pool.map(receiver.renew_message_lock, messages))
    assert min(renewed) >= before
    with ThreadPoolExecutor(8) as pool:
        peeked = list(pool.map(lambda _: len(receiver.peek_messages(40, sequence_number=1)), range(24)))
    assert peeked == [40] * 24
    for message in messages:
        receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def the_renewer_keeps_many_locks(bus: Bus) -> None:
    """All of them, by several threads at once: none comes to anybody else while they are renewed."""
    queue = bus.queue(lock_duration=2 * SHORT_LOCK)
    queue.send(*numbered(30))
    with AutoLockRenewer(max_workers=16) as renewer:
        receiver = queue.receiver(auto_lock_renewer=renewer)
        messages = receive(receiver, 30)
        first = {message.message_id: message.locked_until_utc for message in messages}
        other = queue.receiver()
        deadline = soon(WAIT)
        while any(message.locked_until_utc <= first[message.message_id] for message in messages):
            assert datetime.now(UTC) < deadline, "not every lock was renewed"
            assert other.receive_messages(max_wait_time=1) == []
        assert [message.auto_renew_error for message in messages] == [None] * 30
        for message in messages:
            receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def the_renewer_gives_up_after_its_time(bus: Bus) -> None:
    queue = bus.queue(lock_duration=SHORT_LOCK)
    queue.send("x")
    with AutoLockRenewer(max_lock_renewal_duration=1) as renewer:
        receiver = queue.receiver(auto_lock_renewer=renewer)
        receive_one(receiver)
        again = queue.receiver().receive_messages(max_wait_time=WAIT)
    assert [message.delivery_count for message in again] == [1]


@table.behaviour()
def a_lock_that_runs_out(bus: Bus) -> None:
    queue = bus.queue(lock_duration=SHORT_LOCK)
    queue.send("x")
    first, second = queue.receiver(), queue.receiver()
    message = receive_one(first)
    (again,) = second.receive_messages(max_wait_time=WAIT)
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)
    with pytest.raises(MessageLockLostError):
        first.complete_message(message)
    second.complete_message(again)


def after_the_lock_ran_out(bus: Bus):
    """A message whose lock the bus ended, though the SDK's clock has not seen it."""
    queue = bus.queue(lock_duration=timedelta(minutes=1))
    queue.send("x")
    receiver = queue.receiver()
    message = receive_one(receiver)
    bus.move_clock(timedelta(seconds=61))
    return queue, receiver, message


@table.behaviour(since="7.15", alone=True)
def completing_too_late(bus: Bus) -> None:
    queue, receiver, message = after_the_lock_ran_out(bus)
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message)
    assert receive_one(queue.receiver()).delivery_count == 1


@table.behaviour(since="7.15", alone=True)
def settling_otherwise_too_late(bus: Bus) -> None:
    queue, receiver, message = after_the_lock_ran_out(bus)
    for settle in (receiver.abandon_message, receiver.defer_message, receiver.dead_letter_message):
        with pytest.raises(MessageLockLostError):
            settle(message)
    assert receive_one(queue.receiver()).delivery_count == 1


@table.behaviour(alone=True)
def settling_over_management_too_late(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=1))
    queue.send("x")
    receiver = queue.receiver()
    message = receive_one(receiver)
    receiver.defer_message(message)
    (deferred,) = receiver.receive_deferred_messages([message.sequence_number])
    bus.move_clock(timedelta(seconds=61))
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(deferred)
    (again,) = receiver.receive_deferred_messages([message.sequence_number])
    assert again.delivery_count == deferred.delivery_count + 1


@table.behaviour(alone=True)
def renewing_too_late(bus: Bus) -> None:
    _, receiver, message = after_the_lock_ran_out(bus)
    with pytest.raises(MessageLockLostError):
        receiver.renew_message_lock(message)


@table.behaviour(alone=True)
def lost_locks_count_as_deliveries(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=1), max_delivery_count=2)
    queue.send("x")
    receiver = queue.receiver()
    for count in (0, 1):
        assert receive_one(receiver).delivery_count == count
        bus.move_clock(timedelta(seconds=61))
    dead = receive_one(queue.dead_letters())
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


@table.behaviour(alone=True)
def messages_keep_their_order_when_locks_run_out(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=1))
    queue.send(*numbered(4))
    receive(queue.receiver(), 2)
    bus.move_clock(timedelta(seconds=61))
    assert texts(take(queue.receiver(), 4)) == ["0", "1", "2", "3"]
