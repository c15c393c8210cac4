"""What the tests of the requirements share: a look into partitions over HTTP, fault switches, waiting without sleep."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import httpx

from polybus.client.sas import make_token
from polybus.hashing import partition_for
from polybus.testing.sdk_clients import RecordedClient, connect, message
from polybus.testing.server import ServerProcess
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, Verdict, verify
from tests.sdk.python.bus import Bus, Entity

ATOM = "http://www.w3.org/2005/Atom"
SCHEMA = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
PATIENCE_S = 60.0
PARTITIONS = 16


def http_client(server: ServerProcess) -> httpx.Client:
    """A client over HTTP that may do everything."""
    token = make_token(f"{server.http_url}/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 3600)
    return httpx.Client(base_url=server.http_url, headers={"Authorization": token}, timeout=PATIENCE_S)


class Gate:
    """The bus as its operator sees it: partitions, faults, time."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.http = http_client(server)

    def switch(self, what: str, **body: Any) -> Any:
        answer = self.http.post(f"/$polybus/faults/{what}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def partitions(self, name: str, subscription: str | None = None) -> list[dict[str, Any]]:
        path = name if subscription is None else f"{name}/Subscriptions/{subscription}"
        answer = self.http.get(f"/$polybus/entities/{path.replace('/', '%2F')}/partitions")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["partitions"]
        return found

    def totals(self, name: str) -> list[int]:
        return [each["counts"]["total"] for each in self.partitions(name)]

    def missing(self, name: str) -> list[int]:
        return [each["index"] for each in self.partitions(name) if not each["available"]]

    def store_numbers(self, name: str) -> list[int]:
        """The number of each partition's store, as the fault switches count them."""
        urls = [each["url"] for each in self.http.get("/$polybus/stores").json()["stores"]]
        return [urls.index(each["store"]) for each in self.partitions(name)]

    def metric(self, name: str) -> int:
        lines = httpx.get(f"{self.server.http_url}/metrics").text.splitlines()
        found = [line for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        assert found, name
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in found)

    def take_down(self, *stores: int) -> None:
        for store in stores:
            self.switch(f"stores/{store}/down")

    def bring_back(self, *names: str) -> None:
        """Heals every store and returns when the entities are whole."""
        self.switch("heal")
        for name in names:
            until(lambda name=name: not self.missing(name))

    def close(self) -> None:
        self.http.close()


def until(condition: Callable[[], Any]) -> None:
    """Returns when the condition holds. Each look is a question to the bus, so nobody sleeps."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"


def keys_for(partition: int, count: int = 1, partitions: int = PARTITIONS) -> list[str]:
    """Keys that select this partition."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if partition_for(f"key {number}", partitions) == partition:
            found.append(f"key {number}")
        number += 1
    return found


def entry(kind: str, **elements: object) -> str:
    """An ATOM document of a description."""
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in elements.items()}
    inside = "".join(f"<{name}>{word}</{name}>" for name, word in words.items())
    described = f'<{kind} xmlns="{SCHEMA}">{inside}</{kind}>'
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{described}</content></entry>'


def broker_properties(**values: object) -> dict[str, str]:
    return {"BrokerProperties": json.dumps(values)}


class Judged:
    """Clients whose every act is recorded, on one entity, for the verifier."""

    def __init__(self, server: ServerProcess, name: str, options: EntityOptions | None = None) -> None:
        self.server = server
        self.name = name
        self.options = options or EntityOptions(partitions=PARTITIONS)
        self.clients: list[RecordedClient] = []
        self._exits = ExitStack()
        self._sdk = self._exits.enter_context(connect(server.connection_string))
        self.sender = self.open_sender()
        self.recorder = self.client("main")
        self._ids = 0

    def client(self, name: str) -> RecordedClient:
        made = RecordedClient(name)
        self.clients.append(made)
        return made

    def open_sender(self) -> Any:
        return self._exits.enter_context(self._sdk.get_queue_sender(self.name))

    def open_receiver(self, **options: Any) -> Any:
        return self._exits.enter_context(self._sdk.get_queue_receiver(self.name, **options))

    def send(self, key: str | None = None, **properties: Any) -> str:
        """Sends a message of its own; gives the outcome."""
        self._ids += 1
        sent = message(f"message {self._ids}", partition_key=key, **properties)
        return self.recorder.send(self.sender, self.name, sent)

    def drain(self, count: int, client: RecordedClient | None = None, receiver: Any = None) -> int:
        """Receives and completes so many, or as many as come."""
        client = client or self.recorder
        receiver = receiver or self.open_receiver()
        done = 0
        while done < count:
            found = client.receive(receiver, self.name, min(100, count - done), PATIENCE_S)
            if not found:
                break
            for each in found:
                assert client.settle(receiver, self.name, each) == "ok"
            done += len(found)
        return done

    def verdict(self, gate: Gate) -> Verdict:
        """Judges what was recorded against an entity that was emptied."""
        left = [each["counts"] for each in gate.partitions(self.name)]
        counters = {name: sum(each[name] for each in left) for name in ("active", "scheduled", "deferred", "total")}
        contents = EntityContents(self.options, [], counters)
        final = FinalState({self.name: contents}, int(time.time() * 1000))
        return verify([client.history for client in self.clients], final, slack_ms=50)

    def close(self) -> None:
        self._exits.close()


def sequence_partitions(messages: Sequence[Any]) -> list[int]:
    return [each.sequence_number >> 48 for each in messages]


__all__ = ["Bus", "Entity", "Gate", "Judged", "broker_properties", "entry", "http_client", "keys_for", "until"]
