"""A namespace moved from one bus to another over TLS, with a connection string such as the cloud gives."""

from __future__ import annotations

import datetime
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue, TransportType
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from polybus.cli.transfer.journal import SENDING, SENT, TransferJournal
from tests.system.cli.server import Served, Shell

WAIT_S = 20


class Bus:
    """One of the two."""

    def __init__(self, folder: Path) -> None:
        self.served = Served(folder)
        self.ca = str(folder / "certificates" / "ca.pem")
        self.connection = self.served.connection(emulator=False, host="localhost")
        self.shell = Shell(self.served.connection())

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self.connection,
            ssl_context=ssl.create_default_context(cafile=self.ca),
            custom_endpoint_address=f"sb://localhost:{self.served.port}",
            transport_type=TransportType.Amqp,
        )


@pytest.fixture(scope="module")
def buses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bus, Bus]]:
    folder = tmp_path_factory.mktemp("buses")
    source, target = Bus(folder / "source"), Bus(folder / "target")
    yield source, target
    for bus in (source, target):
        bus.served.stop()


def fill(source: Bus) -> None:
    shell = source.shell
    shell.run("queue", "create", "plain", "--user-metadata", "mine")
    shell.run("queue", "create", "many", "--enable-partitioning", "--forward-dead-lettered-messages-to", "plain")
    shell.run("queue", "create", "sessions", "--requires-session")
    shell.run("topic", "create", "news", "--enable-partitioning")
    for name in ("all", "german"):
        shell.run("subscription", "create", "news", name)
    shell.run("rule", "create", "news", "german", "de", "--sql", "country = 'DE'")
    shell.run("rule", "delete", "news", "german", "$Default", "--yes")
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    with source.client() as client:
        with client.get_queue_sender("plain") as sender:
            sender.send_messages([_message(f"p{number}", number=number) for number in range(30)])
            sender.schedule_messages(_message("later"), later)
            properties = AmqpMessageProperties(message_id="parts", subject="s")
            sender.send_messages(AmqpAnnotatedMessage(data_body=[b"two ", b"parts"], properties=properties))
        with client.get_queue_receiver("plain") as receiver:
            dead, deferred = receiver.receive_messages(2, max_wait_time=WAIT_S)
            receiver.dead_letter_message(dead, reason="broken", error_description="so it is")
            receiver.defer_message(deferred)
        with client.get_queue_sender("many") as sender:
            sender.send_messages([_message(f"m{number}") for number in range(20)])
        with client.get_queue_sender("sessions") as sender:
            for number in range(12):
                sender.send_messages(_message(f"s{number}", session_id=f"session-{number % 3}"))
        with client.get_topic_sender("news") as sender:
            sender.send_messages([_message("n0", country="DE"), _message("n1", country="FR")])


def _message(body: str, session_id: str | None = None, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=body, session_id=session_id, application_properties=properties or None)


def drain(receiver: Any) -> list[Any]:
    found: list[Any] = []
    with receiver:
        while batch := receiver.receive_messages(100, max_wait_time=2):
            found += batch
            for message in batch:
                receiver.complete_message(message)
    return found


def test_everything_arrives_once_and_is_counted(buses: tuple[Bus, Bus], tmp_path: Path) -> None:
    source, target = buses
    fill(source)
    journal = str(tmp_path / "journal.jsonl")
    command = ["move-in", "--from", source.connection, "--other-ca", source.ca, "--journal", journal]
    shell = Shell(target.connection)
    told = shell.json(*command, "--ca", target.ca)
    assert told["entities"] == {"created": 6, "present": 0}
    moved = {path: each["moved"] for path, each in told["messages"].items()}
    assert moved == {
        "plain": 32,
        "many": 20,
        "sessions": 12,
        "news/Subscriptions/all": 2,
        "news/Subscriptions/german": 1,
    }
    assert {each["left"] for each in told["messages"].values()} == {0}
    assert target.shell.json("queue", "show", "plain")["user_metadata"] == "mine"
    assert target.shell.json("queue", "show", "many")["forward_dead_lettered_messages_to"].endswith("plain")
    with target.client() as client:
        plain = drain(client.get_queue_receiver("plain"))
        assert sorted(message.message_id for message in plain) == sorted(
            [*(f"p{number}" for number in range(1, 30)), "parts"]
        )
        parts = next(message for message in plain if message.message_id == "parts")
        assert (b"".join(parts.body), parts.subject) == (b"two parts", "s")
        numbered = next(message for message in plain if message.message_id == "p7")
        assert numbered.application_properties == {b"number": 7}
        (dead,) = drain(client.get_queue_receiver("plain", sub_queue=ServiceBusSubQueue.DEAD_LETTER))
        assert (dead.message_id, dead.dead_letter_reason, dead.dead_letter_error_description) == (
            "p0",
            "broken",
            "so it is",
        )
        assert len(drain(client.get_queue_receiver("many"))) == 20
        for number in range(3):
            messages = drain(client.get_queue_receiver("sessions", session_id=f"session-{number}"))
            assert [message.message_id for message in messages] == [f"s{number + 3 * place}" for place in range(4)]
        ids = {
            name: sorted(message.message_id for message in drain(client.get_subscription_receiver("news", name)))
            for name in ("all", "german")
        }
        assert ids == {"all": ["n0", "n1"], "german": ["n0"]}
    assert target.shell.json("queue", "show", "plain")["counts"]["scheduled"] == 1
    again = shell.json(*command, "--ca", target.ca)
    assert again["entities"] == {"created": 0, "present": 6}
    assert sum(each["moved"] for each in again["messages"].values()) == 0


def test_whoever_goes_on_sends_nothing_twice(buses: tuple[Bus, Bus], tmp_path: Path) -> None:
    source, target = buses
    for bus in buses:
        bus.shell.run("queue", "create", "resumed")
    with source.client() as client, client.get_queue_sender("resumed") as sender:
        sender.send_messages([_message(f"r{number}") for number in range(6)])
        with client.get_queue_receiver("resumed") as receiver:
            numbers = {each.message_id: each.sequence_number for each in receiver.peek_messages(10)}
    with target.client() as client, client.get_queue_sender("resumed") as sender:
        sender.send_messages([_message("r0"), _message("r1")])
    path = tmp_path / "journal.jsonl"
    journal = TransferJournal(path, f"localhost:{source.served.port}", f"localhost:{target.served.port}")
    journal.note("resumed", SENDING, [numbers["r0"]])
    journal.note("resumed", SENT, [numbers["r0"]])
    journal.note("resumed", SENDING, [numbers["r1"], numbers["r2"]])  # of these, one had arrived
    journal.close()
    with path.open("a") as torn:
        torn.write('{"place": "resu')
    command = ["move-out", "--to", target.connection, "--other-ca", target.ca, "--journal", str(path)]
    told = Shell(source.connection).json(*command, "--ca", source.ca)
    assert told["messages"]["resumed"] == {"moved": 4, "resumed": 2, "left": 0}
    with target.client() as client:
        ids = [message.message_id for message in drain(client.get_queue_receiver("resumed"))]
    assert sorted(ids) == [f"r{number}" for number in range(6)]


def test_a_journal_of_another_transfer_is_refused(buses: tuple[Bus, Bus], tmp_path: Path) -> None:
    source, target = buses
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps({"source": "elsewhere", "target": "here"}) + "\n")
    command = ["move-in", "--from", source.connection, "--other-ca", source.ca, "--journal", str(path)]
    text = Shell(target.connection).run(*command, "--ca", target.ca, code=2)
    assert "elsewhere" in text
