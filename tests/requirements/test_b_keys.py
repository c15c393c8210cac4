"""B1 to B7 and B11 to B15: which partition a message goes to."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError
from typer.testing import CliRunner

from polybus import errors, limits
from polybus.cli import client as cli_client
from polybus.cli.app import app
from polybus.hashing import partition_for
from polybus.message.message import Message as AmqpMessage
from polybus.spark import transport
from polybus.spark.connection import BusConnection
from polybus.spark.encoding import encoded_messages
from tests.requirements.kit import PARTITIONS, Bus, Gate, broker_properties, keys_for
from tests.sdk.python.bus import partition_of, peek_all, receive, take
from tests.support.raw_amqp import RawClient

DOCS = Path(__file__).parents[2] / "docs"


def test_b1_b3_the_same_key_always_selects_the_same_partition(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[Message("x", partition_key=f"key {number % 20}") for number in range(60)])
    places: dict[str, set[int]] = {}
    for each in peek_all(queue.receiver()):
        places.setdefault(each.partition_key, set()).add(partition_of(each))
    assert places == {key: {partition_for(key, PARTITIONS)} for key in places}
    assert len(places) == 20
    assert len(set.union(*places.values())) > 5, "keys are spread over the partitions"


def test_b2_the_session_id_is_the_key(bus: Bus) -> None:
    queue = bus.queue()
    sessions = [f"session {number}" for number in range(10)]
    queue.send(*[Message("x", session_id=session) for session in sessions * 3])
    for each in peek_all(queue.receiver()):
        assert partition_of(each) == partition_for(each.session_id, PARTITIONS)


def test_b4_a_session_id_and_another_partition_key_are_refused(bus: Bus, gate: Gate) -> None:
    """The SDK refuses the pair itself; put together by hand, and over HTTP, the bus does."""
    queue = bus.queue()
    sender = queue.sender(bus.client_with(retry_total=0))
    with pytest.raises(ValueError, match="partition_key"):
        Message("x", session_id="s", partition_key="p")
    by_hand = AmqpAnnotatedMessage(
        data_body=b"x", annotations={"x-opt-partition-key": "p"}, properties=AmqpMessageProperties(group_id="s")
    )
    with pytest.raises(ServiceBusError, match="PartitionKey"):
        sender.send_messages(by_hand)
    pair = broker_properties(SessionId="s", PartitionKey="p")
    assert gate.http.post(f"/{queue.name}/messages", content=b"x", headers=pair).status_code == 400
    assert sum(gate.totals(queue.name)) == 0
    sender.send_messages(Message("x", session_id="s", partition_key="s"))
    assert gate.totals(queue.name)[partition_for("s", PARTITIONS)] == 1


def test_b5_the_message_id_is_the_key_only_with_duplicate_detection(bus: Bus, gate: Gate) -> None:
    detecting, plain = bus.queue(requires_duplicate_detection=True), bus.queue()
    ids = keys_for(3, PARTITIONS)
    for queue in (detecting, plain):
        queue.send(*[Message("x", message_id=each) for each in ids])
    assert gate.totals(detecting.name) == [PARTITIONS if index == 3 else 0 for index in range(PARTITIONS)]
    assert gate.totals(plain.name) == [1] * PARTITIONS
    detecting.send(Message("x", message_id=ids[0], partition_key=keys_for(7)[0]))
    assert gate.totals(detecting.name)[7] == 1, "a partition key comes before the message id"
    detecting.send(Message("without an id"))
    assert sum(gate.totals(detecting.name)) == PARTITIONS + 2, "the client gives it an id"


def test_b6_all_copies_meet_at_one_broker_which_drops_them(bus: Bus, gate: Gate) -> None:
    queue = bus.queue(requires_duplicate_detection=True)
    queue.send(*[Message(f"copy {copy}", message_id=f"id {number}") for copy in range(3) for number in range(10)])
    assert sum(gate.totals(queue.name)) == 10
    assert {str(each) for each in take(queue.receiver(), 10)} == {"copy 0"}


def test_b7_without_a_key_messages_go_round(bus: Bus, gate: Gate) -> None:
    queue = bus.queue()
    queue.send(*["x"] * (5 * PARTITIONS))
    assert gate.totals(queue.name) == [5] * PARTITIONS


@pytest.mark.parametrize("field", ["partition_key", "session_id", "message_id"])
def test_b11_any_key_pins_the_message_in_a_transaction_or_not(bus: Bus, gate: Gate, field: str) -> None:
    queue = bus.queue(requires_duplicate_detection=True)
    keys = keys_for(11, 2)
    queue.send(Message("x", **{field: keys[0]}))
    with RawClient(bus.server.addresses["amqp"]) as raw:
        transaction = raw.declare()
        assert raw.send(raw.sender(queue.name), transaction, "x", **{"message_id": "m", field: keys[1]}) == "accepted"
        assert raw.commit(transaction)
    assert gate.totals(queue.name) == [2 if index == 11 else 0 for index in range(PARTITIONS)]


def test_b12_messages_with_the_same_key_keep_their_order(bus: Bus) -> None:
    queue = bus.queue()
    keys = [f"key {number}" for number in range(5)]
    queue.send(*[Message(str(number), partition_key=key) for number in range(20) for key in keys])
    receiver = queue.receiver()
    seen: dict[str, list[str]] = {key: [] for key in keys}
    for each in receive(receiver, 100):
        seen[each.partition_key].append(str(each))
        receiver.complete_message(each)
    assert seen == {key: [str(number) for number in range(20)] for key in keys}


def test_b13_docs_say_how_long_a_sender_must_wait_and_rerouting_takes_less() -> None:
    page = " ".join((DOCS / "concepts.md").read_text(encoding="utf-8").split())
    assert "A sending client's time-out must be greater than 15 seconds" in page
    assert limits.STORE_COMMIT_SECONDS * 2 + limits.DOUBT_MS / 1000 < 15, "two hung commits and a slow catalogue"
    assert limits.REROUTE_MS <= 15_000


@pytest.fixture
def silent() -> Iterator[str]:
    """A peer that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        yield f"Endpoint=sb://{host}:{port};SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true"


@pytest.mark.parametrize("ours", ["command line", "spark"])
def test_b13_our_clients_wait_longer_than_rerouting_takes(
    silent: str, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they wait for an answer is the limit that says so: with a short one they give up soon, and it is long."""
    module, name = (cli_client, "CLI_SECONDS") if ours == "command line" else (transport, "SPARK_REQUEST_SECONDS")
    assert getattr(module, name) > 15
    monkeypatch.setattr(module, name, 0.2)
    began = time.monotonic()
    if ours == "command line":
        done = CliRunner().invoke(app, ["stores", "--connection", silent])
        assert "does not answer" in done.output
    else:
        with pytest.raises((errors.PolybusError, OSError)):
            transport.BulkTransport(BusConnection(silent), 0).json("GET", "/x")
    assert time.monotonic() - began < 4, "another time-out was in force"


def test_b14_b15_c6_docs_say_what_a_key_buys_and_when_to_use_none() -> None:
    page = " ".join((DOCS / "concepts.md").read_text(encoding="utf-8").split())
    assert "No key buys *availability*" in page
    assert "A key buys *consistency*" in page
    assert "Use no key unless you need one" in page
    assert "keep connections alive" in page


def test_b15_what_the_docs_say_of_keys_is_what_happens(bus: Bus, gate: Gate) -> None:
    """Availability without a key, consistency with one: shown on the very same outage."""
    queue = bus.queue()
    sender = queue.sender(bus.client_with(retry_total=0))
    gate.take_down(gate.store_numbers(queue.name)[3])
    try:
        for number in range(2 * PARTITIONS):
            sender.send_messages(Message(f"without {number}"))
        with pytest.raises(ServiceBusError):
            sender.send_messages(Message("with", partition_key=keys_for(3)[0]))
    finally:
        gate.bring_back(queue.name)
    assert sum(gate.totals(queue.name)) == 2 * PARTITIONS


def test_d7_the_docs_example_of_a_transaction_uses_the_partition_key(bus: Bus, gate: Gate) -> None:
    """It is run as it stands, on a partitioned queue, where a message without that property would be refused."""
    page = (DOCS / "how-to" / "transactions.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    queue = bus.queue()
    here = example.replace("localhost:5672", bus.server.addresses["amqp"]).replace('"orders"', repr(queue.name))
    command = [sys.executable, "-c", here]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "both are sent\n", done.stderr
    found = peek_all(queue.receiver())
    assert [(each.partition_key, each.session_id) for each in found] == [("4711", None)] * 2
    assert gate.totals(queue.name)[partition_for("4711", PARTITIONS)] == 2
    assert "without a session `PartitionKey` is the property to use" in " ".join(page.split())


def test_b14_our_command_line_sets_no_key_by_itself(bus: Bus, gate: Gate) -> None:
    queue = bus.queue()
    for _ in range(2):
        done = CliRunner().invoke(app, ["send", queue.name, "x", "--connection", bus.server.connection_string])
        assert done.exit_code == 0, done.output
    for each in peek_all(queue.receiver()):
        assert (each.partition_key, each.session_id) == (None, None)
    assert sum(gate.totals(queue.name)) == 2


def test_b14_spark_sets_no_key_by_itself() -> None:
    batch = pyarrow.RecordBatch.from_pydict({"body": [b"a", b"b"], "message_id": ["1", "2"]})
    made = encoded_messages(batch)
    assert made is not None
    for raw in made.to_pylist():
        message = AmqpMessage(raw)
        assert (message.partition_key, message.session_id) == (None, None)
