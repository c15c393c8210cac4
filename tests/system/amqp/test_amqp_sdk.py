"""The official Python SDK, unchanged, against a bus over real sockets.

Opening and closing one of its links takes the SDK about a second of polling, so each test does a lot with few links;
what plain and partitioned entities have in common is shown without a socket in tests/unit/gateway.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from polybus.namespace.entities.description import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tests.system.amqp.server import Server

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The SDK does not close the sockets of links that were refused; they are collected while these tests run."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(
        server.connection_string(), retry_total=0, uamqp_transport=False
    ) as client:
        yield client


@pytest.fixture
def queue(server: Server, fresh: str) -> str:
    make_queue(server, fresh, enable_partitioning=True)
    return fresh


@pytest.fixture
def session_queue(server: Server, fresh: str) -> str:
    make_queue(server, fresh, enable_partitioning=True, requires_session=True)
    return fresh


def make_queue(server: Server, name: str, **fields: Any) -> None:
    server.manage(lambda: server.namespace.management.create(QueueDescription(path=name, **fields)))


def send(client: ServiceBusClient, queue: str, *bodies: str, **fields: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body, **fields))


def receive(client: ServiceBusClient, queue: str, count: int, **options: Any) -> list[str]:
    """Receives and completes; order counts only where the entity promises one."""
    found: list[str] = []
    with client.get_queue_receiver(queue, max_wait_time=5, **options) as receiver:
        for message in receiver:
            found.append(str(message))
            receiver.complete_message(message)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
@pytest.mark.parametrize("kind", ["server", "rocks_server"])
def test_send_receive_complete(request: pytest.FixtureRequest, fresh: str, kind: str, partitioned: bool) -> None:
    server: Server = request.getfixturevalue(kind)
    make_queue(server, fresh, enable_partitioning=partitioned)
    with ServiceBusClient.from_connection_string(server.connection_string(), retry_total=0) as client:
        send(client, fresh, *[f"m{n}" for n in range(20)])
        found = receive(client, fresh, 20)
    assert sorted(found) == sorted(f"m{n}" for n in range(20))
    if not partitioned:
        assert found == [f"m{n}" for n in range(20)]
    counts = server.do(lambda: server.namespace.entity(fresh).counts().result())
    assert (counts.total, counts.locked) == (0, 0)


def test_a_list_and_a_batch(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(f"list{n}") for n in range(50)])
        batch = sender.create_message_batch()
        for n in range(50):
            batch.add_message(ServiceBusMessage(f"batch{n}"))
        sender.send_messages(batch)
    found = receive(client, queue, 100, prefetch_count=20)
    assert sorted(found) == sorted([f"list{n}" for n in range(50)] + [f"batch{n}" for n in range(50)])


def test_every_property_comes_back(client: ServiceBusClient, queue: str) -> None:
    properties = {"s": "text", "i": 5, "f": 1.5, "b": True}
    sent = ServiceBusMessage(
        b"body",
        application_properties=dict(properties),
        message_id="id",
        correlation_id="correlation",
        content_type="text/plain",
        subject="subject",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        partition_key="key",
        time_to_live=timedelta(hours=1),
    )
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(sent)
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (got,) = receiver.receive_messages(1)
        assert {key.decode(): value for key, value in got.application_properties.items()} == {
            name: value.encode() if isinstance(value, str) else value for name, value in properties.items()
        }
        assert (got.message_id, got.correlation_id, got.content_type) == ("id", "correlation", "text/plain")
        assert (got.subject, got.to, got.reply_to) == ("subject", "to", "reply")
        assert (got.reply_to_session_id, got.partition_key) == ("reply session", "key")
        assert got.time_to_live == timedelta(hours=1)
        assert got.delivery_count == 0
        assert got.state == ServiceBusMessageState.ACTIVE
        assert got.locked_until_utc is not None
        assert got.sequence_number is not None
        receiver.complete_message(got)


def test_bodies_of_every_size(client: ServiceBusClient, queue: str) -> None:
    with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=5) as receiver,
    ):
        for size in (0, 1, 70_000, 200_000):
            body = bytes(n % 251 for n in range(size))
            sender.send_messages(ServiceBusMessage(body))
            (got,) = receiver.receive_messages(1)
            assert b"".join(got.body) == body
            receiver.complete_message(got)


def test_abandon_and_dead_letter(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "m")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        for count in range(3):
            (got,) = receiver.receive_messages(1)
            assert got.delivery_count == count
            if count < 2:
                receiver.abandon_message(got)
        receiver.dead_letter_message(got, reason="why", error_description="how")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5) as receiver:
        (dead,) = receiver.receive_messages(1)
        assert dead.dead_letter_reason == "why"
        assert dead.dead_letter_error_description == "how"
        assert dead.dead_letter_source == queue
        receiver.complete_message(dead)


def test_defer_and_receive_by_number(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "m")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (got,) = receiver.receive_messages(1)
        receiver.defer_message(got)
        (deferred,) = receiver.receive_deferred_messages(got.sequence_number)
        assert deferred.state == ServiceBusMessageState.DEFERRED
        receiver.complete_message(deferred)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(got.sequence_number)


def test_peek(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, *[str(n) for n in range(12)])
    with client.get_queue_receiver(queue) as receiver:
        seen: list[int] = []
        while found := receiver.peek_messages(5, sequence_number=seen[-1] + 1 if seen else 0):
            seen += [one.sequence_number for one in found]
    assert len(seen) == len(set(seen)) == 12


def test_schedule_and_cancel(client: ServiceBusClient, queue: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    with client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], later)
        assert len(set(numbers)) == 2
        with client.get_queue_receiver(queue) as receiver:
            states = [one.state for one in receiver.peek_messages(5)]
        assert states == [ServiceBusMessageState.SCHEDULED] * 2
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)


def test_a_scheduled_message_arrives_when_the_clock_says(
    server: Server, client: ServiceBusClient, queue: str
) -> None:
    when = datetime.fromtimestamp(server.clock.now().wall_ms / 1000, UTC) + timedelta(minutes=30)
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("m"), when)
    server.advance(31 * 60)
    assert receive(client, queue, 1) == ["m"]


def test_locks_are_renewed_and_lost(server: Server, client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "m")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (got,) = receiver.receive_messages(1)
        before = got.locked_until_utc
        receiver.renew_message_lock(got)
        assert got.locked_until_utc >= before
        server.advance(61)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(got)
        (again,) = receiver.receive_messages(1)
        assert again.delivery_count == 1
        receiver.complete_message(again)


def test_receive_and_delete(server: Server, client: ServiceBusClient, queue: str) -> None:
    send(client, queue, *[str(n) for n in range(10)])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    found: list[str] = []
    with client.get_queue_receiver(queue, receive_mode=mode, max_wait_time=5) as receiver:
        while len(found) < 10:
            found += [str(one) for one in receiver.receive_messages(10)]
    assert sorted(found) == [str(n) for n in range(10)]
    assert server.do(lambda: server.namespace.entity(queue).counts().result()).total == 0


def test_messages_that_were_prefetched_and_not_taken_come_back(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, *[str(n) for n in range(5)])
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (first,) = receiver.receive_messages(1)
        receiver.complete_message(first)
    assert len(receive(client, queue, 4)) == 4


def test_a_lost_connection_gives_its_messages_back_after_their_locks(
    server: Server, client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, "m")
    dying = ServiceBusClient.from_connection_string(server.connection_string(), retry_total=0)
    receiver = dying.get_queue_receiver(queue, max_wait_time=5)
    (got,) = receiver.receive_messages(1)
    assert got.delivery_count == 0
    server.drop_connections(besides=0)
    with client.get_queue_receiver(queue, max_wait_time=5) as other:
        server.advance(61)
        (again,) = other.receive_messages(1)
        assert again.sequence_number == got.sequence_number
        assert again.delivery_count == 1
        other.complete_message(again)
    receiver.close()
    dying.close()


class TestSessions:
    def test_a_named_session_in_order(self, client: ServiceBusClient, session_queue: str) -> None:
        send(client, session_queue, *[str(n) for n in range(10)], session_id="one")
        send(client, session_queue, "other", session_id="two")
        assert receive(client, session_queue, 10, session_id="one") == [str(n) for n in range(10)]

    def test_the_next_session(self, client: ServiceBusClient, session_queue: str) -> None:
        send(client, session_queue, "m", session_id="found")
        options = {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": 5}
        with client.get_queue_receiver(session_queue, **options) as receiver:
            (got,) = receiver.receive_messages(1)
            assert (got.session_id, receiver.session.session_id) == ("found", "found")
            receiver.complete_message(got)

    def test_none_available(self, client: ServiceBusClient, session_queue: str) -> None:
        with pytest.raises(OperationTimeoutError):  # noqa: SIM117
            with client.get_queue_receiver(
                session_queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
            ) as receiver:
                receiver.receive_messages(1)

    def test_state_and_lock(self, server: Server, client: ServiceBusClient, session_queue: str) -> None:
        with client.get_queue_receiver(session_queue, session_id="s", max_wait_time=5) as receiver:
            session = receiver.session
            assert session.get_state() is None
            session.set_state("some state")
            assert session.get_state() == b"some state"
            server.advance(30)
            until = session.renew_lock()
            assert until == session.locked_until_utc
            with pytest.raises(SessionCannotBeLockedError):
                client.get_queue_receiver(session_queue, session_id="s").__enter__()
        with client.get_queue_receiver(session_queue, session_id="s", max_wait_time=5) as receiver:
            assert receiver.session.get_state() == b"some state"
            receiver.session.set_state(None)
            assert receiver.session.get_state() is None

    def test_a_lost_lock(self, server: Server, client: ServiceBusClient, session_queue: str) -> None:
        send(client, session_queue, "m", session_id="s")
        with client.get_queue_receiver(session_queue, session_id="s", max_wait_time=5) as receiver:
            (got,) = receiver.receive_messages(1)
            server.advance(61)
            with pytest.raises(SessionLockLostError):
                receiver.complete_message(got)
        assert receive(client, session_queue, 1, session_id="s") == ["m"]

    def test_a_session_queue_wants_sessions(self, client: ServiceBusClient, session_queue: str) -> None:
        with pytest.raises(ServiceBusError, match="requires sessions"):
            client.get_queue_receiver(session_queue).__enter__()
        with client.get_queue_sender(session_queue) as sender, pytest.raises(ServiceBusError, match="SessionId"):
            sender.send_messages(ServiceBusMessage("m"))


def test_topics_and_subscriptions(server: Server, client: ServiceBusClient, fresh: str) -> None:
    management = server.namespace.management
    described = TopicDescription(path=fresh, enable_partitioning=True)
    server.manage(lambda: management.create(described))
    for name in ("one", "two"):
        subscription = SubscriptionDescription(topic=fresh, name=name)
        server.manage(lambda subscription=subscription: management.create_subscription(subscription))
    with client.get_topic_sender(fresh) as sender:
        sender.send_messages([ServiceBusMessage(str(n)) for n in range(5)])
    for name in ("one", "two"):
        with client.get_subscription_receiver(fresh, name, max_wait_time=5) as receiver:
            found: list[str] = []
            while len(found) < 5:
                for message in receiver.receive_messages(5):
                    found.append(str(message))
                    receiver.complete_message(message)
            assert sorted(found) == [str(n) for n in range(5)]


class TestRefusals:
    def test_a_wrong_key(self, server: Server, queue: str) -> None:
        with (
            ServiceBusClient.from_connection_string(server.connection_string(key="wrong"), retry_total=0) as client,
            pytest.raises(ServiceBusAuthenticationError),
        ):
            client.get_queue_sender(queue).__enter__()

    def test_no_such_queue(self, client: ServiceBusClient) -> None:
        with pytest.raises(MessagingEntityNotFoundError):
            client.get_queue_receiver("no-such-queue").__enter__()

    def test_a_message_that_is_too_large(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_sender(queue) as sender, pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage("x" * 300_000))

    def test_a_disabled_queue(self, server: Server, client: ServiceBusClient, fresh: str) -> None:
        make_queue(server, fresh, status=EntityStatus.DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            client.get_queue_sender(fresh).__enter__()

    def test_a_queue_that_is_deleted_under_its_receiver(
        self, server: Server, client: ServiceBusClient, fresh: str
    ) -> None:
        make_queue(server, fresh)
        with client.get_queue_receiver(fresh, max_wait_time=5) as receiver:
            receiver.peek_messages(1)
            server.manage(lambda: server.namespace.management.delete(fresh))
            with pytest.raises(MessagingEntityNotFoundError):
                receiver.receive_messages(1)
