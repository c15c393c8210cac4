"""Sessions: their locks, order, state, and what happens when a receiver goes or is too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, AutoLockRenewer, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.sdk.python.bus import (
    SHORT_LOCK,
    WAIT,
    Bus,
    Entity,
    in_background,
    nothing_comes,
    numbered,
    partition_of,
    peek_all,
    receive,
    receive_one,
    take,
    texts,
)
from tests.sdk.python.table import Table

table = Table("sessions")


def session_queue(bus: Bus, *sessions: str, count: int = 2, **options: Any) -> Entity:
    """A queue with some messages in each of these sessions."""
    queue = bus.queue(requires_session=True, **options)
    for session in sessions:
        queue.send(*numbered(count, session_id=session))
    return queue


def refused(bus: Bus, queue: Entity, error: type[Exception], words: str | None = None, **options: Any) -> None:
    with pytest.raises(error, match=words):
        queue.receiver(bus.client_with(retry_total=0), **options)


# Accepting


@table.behaviour()
def a_session_id_is_shown_as_the_partition_key(bus: Bus) -> None:
    """In every queue, with sessions or without, as the cloud does."""
    for options in ({"session_id": "s"}, {}):
        queue = bus.queue(requires_session=bool(options))
        queue.send(ServiceBusMessage("x", session_id="s"))
        receiver = queue.receiver(**options)
        message = receive_one(receiver)
        assert (message.session_id, message.partition_key) == ("s", "s")
        (peeked,) = peek_all(receiver)
        assert peeked.partition_key == "s"


@table.behaviour()
def a_session_by_its_name(bus: Bus) -> None:
    queue = session_queue(bus, "a", "b")
    receiver = queue.receiver(session_id="b")
    messages = take(receiver, 2)
    assert {message.session_id for message in messages} == {"b"}
    assert nothing_comes(receiver)
    assert receiver.session.session_id == "b"
    assert receiver.session.locked_until_utc > datetime.now(UTC)


@table.behaviour()
def the_next_session(bus: Bus) -> None:
    queue = session_queue(bus, "only")
    receiver = queue.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT)
    assert receiver.session.session_id == "only"
    assert texts(take(receiver, 2)) == ["0", "1"]


@table.behaviour()
def every_session_is_offered_once(bus: Bus) -> None:
    queue = session_queue(bus, "a", "b", "c", count=1)
    receivers = [queue.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT) for _ in range(3)]
    assert {receiver.session.session_id for receiver in receivers} == {"a", "b", "c"}
    for receiver in receivers:
        assert receive_one(receiver).session_id == receiver.session.session_id


@table.behaviour()
def no_session_within_the_time(bus: Bus) -> None:
    queue = session_queue(bus)
    refused(bus, queue, OperationTimeoutError, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)


@table.behaviour()
def a_session_that_comes_while_somebody_waits(bus: Bus) -> None:
    queue = session_queue(bus)
    sender = queue.sender()
    waiting = queue.unopened(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT)

    def wait() -> list[str]:
        with waiting as receiver:
            return texts(take(receiver, 1))

    found = in_background(wait)
    sender.send_messages(ServiceBusMessage("late", session_id="s"))
    assert found.result() == ["late"]


@table.behaviour()
def a_session_that_does_not_exist_yet(bus: Bus) -> None:
    queue = session_queue(bus)
    receiver = queue.receiver(session_id="new")
    assert nothing_comes(receiver)
    queue.send(ServiceBusMessage("x", session_id="new"), ServiceBusMessage("y", session_id="other"))
    assert texts(take(receiver, 1)) == ["x"]


@table.behaviour()
def a_locked_session(bus: Bus) -> None:
    queue = session_queue(bus, "s")
    queue.receiver(session_id="s")
    refused(bus, queue, SessionCannotBeLockedError, "'s'", session_id="s")


@table.behaviour()
def a_locked_session_is_not_the_next(bus: Bus) -> None:
    queue = session_queue(bus, "s")
    queue.receiver(session_id="s")
    refused(bus, queue, OperationTimeoutError, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)


@table.behaviour()
def closing_frees_the_session(bus: Bus) -> None:
    """What was received but not settled comes again, and the attempt counts."""
    queue = session_queue(bus, "s")
    first = queue.receiver(session_id="s")
    receive_one(first)
    first.close()
    again = receive(queue.receiver(session_id="s"), 2)
    assert texts(again) == ["0", "1"]
    assert [message.delivery_count for message in again] == [1, 0]


@table.behaviour()
def a_receiver_without_a_session(bus: Bus) -> None:
    refused(bus, session_queue(bus, "s"), ServiceBusError, "requires sessions")


@table.behaviour()
def a_session_where_there_are_none(bus: Bus) -> None:
    refused(bus, bus.queue(), ServiceBusError, "does not require sessions", session_id="s")


@table.behaviour()
def a_message_without_a_session(bus: Bus) -> None:
    queue = session_queue(bus)
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        queue.sender(bus.client_with(retry_total=0)).send_messages(ServiceBusMessage("x"))


# Order and partitions


@table.behaviour()
def order_in_a_session(bus: Bus) -> None:
    queue = session_queue(bus)
    for index in range(30):
        queue.send(ServiceBusMessage(str(index), session_id="a"), ServiceBusMessage("other", session_id="b"))
    receiver = queue.receiver(session_id="a")
    assert texts(take(receiver, 30)) == [str(index) for index in range(30)]


@table.behaviour()
def an_abandoned_message_comes_first(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=3)
    receiver = queue.receiver(session_id="s")
    receiver.abandon_message(receive_one(receiver))
    assert texts(take(receiver, 3)) == ["0", "1", "2"]


@table.behaviour(differs="B2")
def a_session_lies_in_one_partition(bus: Bus) -> None:
    names = [f"session-{index}" for index in range(8)]
    queue = session_queue(bus, *names)
    partitions = set()
    for name in names:
        with queue.unopened(session_id=name) as receiver:
            (partition,) = {partition_of(message) for message in receive(receiver, 2)}
            partitions.add(partition)
    assert (len(partitions) > 1) == bus.partitioned


@table.behaviour()
def sessions_at_the_same_time(bus: Bus) -> None:
    queue = session_queue(bus, "a", "b", "c", count=5)
    receivers = [queue.receiver(session_id=session) for session in ("a", "b", "c")]
    for index in range(5):
        for receiver in receivers:
            assert texts(take(receiver, 1)) == [str(index)]


@table.behaviour()
def a_session_with_prefetch(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=40)
    receiver = queue.receiver(session_id="s", prefetch_count=20)
    assert texts(take(receiver, 40)) == [str(index) for index in range(40)]


@table.behaviour()
def receive_and_delete_in_a_session(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=5)
    receiver = queue.receiver(session_id="s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    assert texts(receive(receiver, 5)) == ["0", "1", "2", "3", "4"]
    assert peek_all(receiver) == []


# Settling, deferring, peeking


@table.behaviour()
def dead_letters_of_a_session(bus: Bus) -> None:
    """The sub-queue has no sessions."""
    queue = session_queue(bus, "a", "b", count=1)
    for session in ("a", "b"):
        with queue.unopened(session_id=session) as receiver:
            receiver.dead_letter_message(receive_one(receiver), reason=session)
            assert peek_all(receiver) == []
    dead = take(queue.dead_letters(), 2)
    assert {(message.session_id, message.dead_letter_reason) for message in dead} == {("a", "a"), ("b", "b")}


@table.behaviour()
def deferring_in_a_session(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=3)
    receiver = queue.receiver(session_id="s")
    message = receive_one(receiver)
    receiver.defer_message(message)
    assert texts(take(receiver, 2)) == ["1", "2"]
    (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
    receiver.complete_message(deferred)
    assert peek_all(receiver) == []


@table.behaviour()
def deferred_messages_of_another_session(bus: Bus) -> None:
    queue = session_queue(bus, "a", count=1)
    first = queue.receiver(session_id="a")
    message = receive_one(first)
    first.defer_message(message)
    other = queue.receiver(bus.client_with(retry_total=0), session_id="b")
    with pytest.raises(MessageNotFoundError):
        other.receive_deferred_messages(message.sequence_number)


@table.behaviour()
def a_session_with_only_deferred_messages_is_not_the_next(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=1)
    with queue.unopened(session_id="s") as receiver:
        receiver.defer_message(receive_one(receiver))
        peek_all(receiver)
    refused(bus, queue, OperationTimeoutError, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)


@table.behaviour()
def peeking_shows_the_session_only(bus: Bus) -> None:
    queue = session_queue(bus, "a", "b", count=3)
    receiver = queue.receiver(session_id="a")
    peeked = peek_all(receiver, 2)
    assert texts(peeked) == ["0", "1", "2"]
    assert {message.session_id for message in peeked} == {"a"}


# State


@table.behaviour()
def session_state(bus: Bus) -> None:
    queue = session_queue(bus)
    receiver = queue.receiver(session_id="s")
    assert receiver.session.get_state() is None
    receiver.session.set_state(b"\x00state\xff")
    assert receiver.session.get_state() == b"\x00state\xff"
    receiver.session.set_state("text")
    assert receiver.session.get_state() == b"text"
    receiver.session.set_state(None)
    assert receiver.session.get_state() is None


@table.behaviour()
def session_state_outlives_receivers_and_messages(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=1)
    first = queue.receiver(session_id="s")
    take(first, 1)
    first.session.set_state(b"halfway")
    first.close()
    assert queue.receiver(session_id="s").session.get_state() == b"halfway"


@table.behaviour()
def session_states_are_apart(bus: Bus) -> None:
    queue = session_queue(bus)
    receivers = [queue.receiver(session_id=session) for session in ("a", "b", "c")]
    for receiver in receivers:
        receiver.session.set_state(receiver.session.session_id.encode())
    assert [receiver.session.get_state() for receiver in receivers] == [b"a", b"b", b"c"]


@table.behaviour()
def a_large_session_state(bus: Bus) -> None:
    queue = session_queue(bus)
    receiver = queue.receiver(session_id="s")
    state = bytes(range(256)) * 700
    receiver.session.set_state(state)
    assert receiver.session.get_state() == state


# Locks


@table.behaviour(alone=True)
def renewing_a_session_lock(bus: Bus) -> None:
    queue = session_queue(bus, "s", lock_duration=timedelta(seconds=60))
    receiver = queue.receiver(session_id="s")
    message = receive_one(receiver)
    before = receiver.session.locked_until_utc
    bus.move_clock(timedelta(seconds=50))
    assert receiver.session.renew_lock() >= before + timedelta(seconds=49)
    bus.move_clock(timedelta(seconds=50))
    receiver.complete_message(message)
    assert texts(take(receiver, 1)) == ["1"]


@table.behaviour()
def the_renewer_keeps_a_session(bus: Bus) -> None:
    queue = session_queue(bus, "s", count=1, lock_duration=SHORT_LOCK)
    with AutoLockRenewer() as renewer:
        receiver = queue.receiver(session_id="s", auto_lock_renewer=renewer)
        message = receive_one(receiver)
        waiting = queue.unopened(bus.client_with(retry_total=0), session_id=NEXT_AVAILABLE_SESSION, max_wait_time=8)
        with pytest.raises(OperationTimeoutError):
            bus.opened(waiting)
        receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def a_session_lock_that_runs_out(bus: Bus) -> None:
    """With the real clock: somebody else waits for the session, and gets it."""
    queue = session_queue(bus, "s", count=1, lock_duration=SHORT_LOCK)
    first = queue.receiver(session_id="s")
    message = receive_one(first)
    second = queue.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT)
    again = receive_one(second)
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)
    with pytest.raises(SessionLockLostError):
        first.complete_message(message)
    second.complete_message(again)


@table.behaviour(alone=True)
def receiving_after_the_session_lock_ran_out(bus: Bus) -> None:
    queue = session_queue(bus, "s", lock_duration=timedelta(minutes=1))
    receiver = queue.receiver(session_id="s")
    receive_one(receiver)
    bus.move_clock(timedelta(seconds=61))
    with pytest.raises(SessionLockLostError):
        receiver.receive_messages(max_wait_time=WAIT)
    assert texts(receive(queue.receiver(session_id="s"), 2)) == ["0", "1"]


@table.behaviour(alone=True)
def state_and_renewal_after_the_session_lock_ran_out(bus: Bus) -> None:
    queue = session_queue(bus, "s", lock_duration=timedelta(minutes=1))
    for attempt in ("set_state", "get_state", "renew_lock"):
        receiver = queue.receiver(session_id="s")
        bus.move_clock(timedelta(seconds=61))
        with pytest.raises(SessionLockLostError):
            getattr(receiver.session, attempt)(*([b"x"] if attempt == "set_state" else []))


# Lists


def names(sessions: object) -> list[str]:
    return sorted(sessions)  # type: ignore[call-overload]


@table.behaviour(since="7.15")
def listing_sessions_with_messages_or_state(bus: Bus) -> None:
    queue = session_queue(bus, "a", "b", "c", count=1)
    with queue.unopened(session_id="state only") as receiver:
        receiver.session.set_state(b"x")
    with queue.unopened(session_id="b") as receiver:
        take(receiver, 1)
        peek_all(receiver)
    assert names(bus.client.list_queue_sessions(queue.name)) == ["a", "c", "state only"]


@table.behaviour(since="7.15")
def listing_sessions_by_the_time_of_their_state(bus: Bus) -> None:
    queue = session_queue(bus, "a", "b", count=1)
    with queue.unopened(session_id="a") as receiver:
        receiver.session.set_state(b"x")
    long_ago, later = datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(hours=1)
    assert names(bus.client.list_queue_sessions(queue.name, state_updated_after=long_ago)) == ["a"]
    assert names(bus.client.list_queue_sessions(queue.name, state_updated_after=later)) == []


@table.behaviour(since="7.15")
def listing_no_sessions(bus: Bus) -> None:
    assert names(bus.client.list_queue_sessions(session_queue(bus).name)) == []


@table.behaviour(since="7.15")
def listing_more_sessions_than_a_page_has(bus: Bus) -> None:
    queue = session_queue(bus)
    expected = [f"{index:03}" for index in range(230)]
    queue.send(*[ServiceBusMessage("x", session_id=name) for name in expected])
    assert names(bus.client.list_queue_sessions(queue.name)) == expected


@table.behaviour(since="7.15")
def listing_sessions_of_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    bus.subscription(topic, "sub", requires_session=True)
    topic.send(*[ServiceBusMessage("x", session_id=session) for session in ("a", "b", "a")])
    assert names(bus.client.list_subscription_sessions(topic.name, "sub")) == ["a", "b"]


@table.behaviour()
def sessions_of_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic, requires_session=True)
    topic.send(*numbered(3, session_id="s"))
    receiver = subscription.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT)
    receiver.session.set_state(b"x")
    assert texts(take(receiver, 3)) == ["0", "1", "2"]
    assert receiver.session.get_state() == b"x"
