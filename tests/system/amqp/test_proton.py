"""Qpid Proton, an AMQP 1.0 client that knows nothing of Service Bus: what its own examples do.

The bus makes entities on demand. Each program is a handler, run until it has what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Copy, DynamicNodeProperties, Selector
from proton.utils import BlockingConnection

from polybus import Server

TIMEOUT = 30.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(on_demand_entities=True) as server:
        yield f"amqp://{server.key_name}:{server.key}@{server.addresses['amqp']}"


@pytest.fixture
def name() -> str:
    return f"proton-{uuid4()}"


class Program(MessagingHandler):
    """Ends when it is done, and fails when that takes too long or the bus refuses something."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(**options)
        self.url = url
        self.problem: str | None = None

    def run(self) -> Program:
        self.container = Container(self)
        self.container.run()
        assert self.problem is None, self.problem
        return self

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        self.watchdog = event.container.schedule(TIMEOUT, self)
        self.begin(event)

    def begin(self, event: Any) -> None:
        raise NotImplementedError

    def done(self) -> None:
        self.watchdog.cancel()
        self.connection.close()

    def fail(self, text: str) -> None:
        self.problem = text
        self.done()

    def on_timer_task(self, event: Any) -> None:
        self.problem = "it took too long"
        self.connection.close()

    def on_link_error(self, event: Any) -> None:
        self.fail(f"{event.link.remote_condition}")

    def on_transport_error(self, event: Any) -> None:
        self.fail(f"{event.transport.condition}")


class Send(Program):
    def __init__(self, url: str, address: str | None, messages: list[Message]) -> None:
        super().__init__(url)
        self.address, self.messages = address, messages
        self.unsettled = len(messages)

    def begin(self, event: Any) -> None:
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        waiting, self.messages = self.messages, []
        for message in waiting:
            event.sender.send(message)

    def on_accepted(self, event: Any) -> None:
        self.unsettled -= 1
        if self.unsettled == 0:
            self.done()

    def on_rejected(self, event: Any) -> None:
        self.fail(f"{event.delivery.remote.condition}")


class Receive(Program):
    """Takes messages until nothing has come for the drain of its credit."""

    def __init__(self, url: str, address: str, options: Any = None) -> None:
        super().__init__(url, prefetch=0)
        self.address, self.options = address, options
        self.bodies: list[object] = []

    def begin(self, event: Any) -> None:
        self.receiver = event.container.create_receiver(self.connection, self.address, options=self.options)

    def on_link_opened(self, event: Any) -> None:
        self.receiver.drain(100)

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)

    def on_link_flow(self, event: Any) -> None:
        if event.link.is_receiver and event.link.credit == 0:
            self.done()


def numbered(count: int) -> list[Message]:
    return [Message(body=str(number), properties={"n": number}) for number in range(count)]


def received(url: str, name: str, options: Any = None) -> list[object]:
    program = Receive(url, name, options)
    program.run()
    return program.bodies


def test_sending_and_receiving(url: str, name: str) -> None:
    Send(url, name, numbered(20)).run()
    assert received(url, name) == [str(number) for number in range(20)]
    assert received(url, name) == []


def test_a_name_and_a_password_are_enough(url: str, name: str) -> None:
    """The blocking client of Proton's examples, which is told nothing of mechanisms."""
    connection = BlockingConnection(url, timeout=TIMEOUT)
    connection.create_sender(name).send(Message(body="hello"))
    receiver = connection.create_receiver(name, credit=1)
    assert receiver.receive(timeout=TIMEOUT).body == "hello"
    receiver.accept()
    connection.close()


def test_looking_at_a_queue_removes_nothing(url: str, name: str) -> None:
    Send(url, name, numbered(3)).run()
    for _ in range(4):
        assert received(url, name, Copy()) == ["0", "1", "2"]
    assert received(url, name) == ["0", "1", "2"]


def test_receiving_what_a_selector_wants(url: str, name: str) -> None:
    Send(url, name, numbered(4)).run()
    assert received(url, name, Selector("n = 2 OR n > 2")) == ["2", "3"]
    assert received(url, name) == ["0", "1"]


def test_sending_to_whatever_a_message_names(url: str, name: str) -> None:
    Send(url, None, [Message(address=f"{name}-{word}", body=word) for word in ("a", "b", "a")]).run()
    assert received(url, f"{name}-a") == ["a", "a"]
    assert received(url, f"{name}-b") == ["b"]


class Ask(Program):
    """A request whose answer comes to a node of the client's own; it plays the other side, too."""

    def __init__(self, url: str, service: str) -> None:
        super().__init__(url)
        self.service = service
        self.answer: object = None

    def begin(self, event: Any) -> None:
        self.requests = event.container.create_receiver(self.connection, self.service)
        properties = DynamicNodeProperties({"lifetime-policy": "delete-on-close"})
        self.replies = event.container.create_receiver(self.connection, None, dynamic=True, options=properties)
        self.out = event.container.create_sender(self.connection, None)

    def on_link_opened(self, event: Any) -> None:
        if event.receiver == self.replies:
            address = self.replies.remote_source.address
            self.out.send(Message(address=self.service, reply_to=address, body="what?"))

    def on_message(self, event: Any) -> None:
        if event.receiver == self.requests:
            self.out.send(Message(address=event.message.reply_to, body=f"{event.message.body} that"))
        else:
            self.answer = event.message.body
            self.done()


def test_request_and_reply_over_a_temporary_queue(url: str, name: str) -> None:
    program = Ask(url, name)
    program.run()
    assert program.answer == "what? that"


class Transact(Program, TransactionHandler):
    """Receives in a transaction, aborts the first and commits the second."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, prefetch=0, auto_accept=False)
        self.name = name
        self.transaction: Any = None
        self.counts: list[int] = []
        self.ends: list[str] = []

    def begin(self, event: Any) -> None:
        self.receiver = event.container.create_receiver(self.connection, self.name)
        event.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.counts.append(event.message.delivery_count)
        self.transaction.accept(event.delivery)
        if len(self.counts) == 1:
            self.transaction.abort()
        else:
            self.transaction.commit()

    def on_transaction_aborted(self, event: Any) -> None:
        self.ends.append("aborted")
        event.container.declare_transaction(self.connection, handler=self)

    def on_transaction_committed(self, event: Any) -> None:
        self.ends.append("committed")
        self.done()


def test_after_an_abort_a_message_is_there_at_once(url: str, name: str) -> None:
    Send(url, name, [Message(body="x")]).run()
    program = Transact(url, name)
    program.run()
    assert (program.ends, program.counts) == (["aborted", "committed"], [0, 0])
    assert received(url, name) == []
