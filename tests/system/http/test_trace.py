"""One message followed through the bus, and senders who hear of dropped duplicates: with the SDK and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from polybus.clock import MovableClock
from polybus.namespace.entities.description import SubscriptionDescription, TopicDescription
from tests.system.http.bulk_kit import Bulk
from tests.system.http.kit import Server
from tests.system.http.test_jobs import counts, create
from tests.system.http.test_websocket import WAIT_S, client, run

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates, clock=MovableClock(frozen=True)).start()
    yield server
    server.stop()


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def advance(server: Server, ms: int) -> None:
    assert isinstance(server.clock, MovableClock)
    server.clock.advance(ms)


def test_a_message_is_followed_from_its_sender_to_its_end(server: Server, partitioned: bool) -> None:
    management = server.namespace.management
    create(server, "end", enable_partitioning=partitioned)
    server.wait(management.create(TopicDescription(path="t", enable_partitioning=partitioned)))
    for name, forward in (("dies", None), ("sent-on", "end")):
        described = SubscriptionDescription(topic="t", name=name, forward_to=forward)
        server.wait(management.create_subscription(described))

    async def scenario() -> None:
        async with client(server) as bus:
            async with bus.get_topic_sender("t") as sender:
                properties: dict[str | bytes, Any] = {"traceparent": PARENT, "Diagnostic-Id": PARENT}
                await sender.send_messages(
                    ServiceBusMessage("m", message_id="followed", application_properties=properties)
                )
                await sender.send_messages(ServiceBusMessage("n", message_id="another"))
            async with bus.get_subscription_receiver("t", "dies") as receiver:
                for message in await receiver.receive_messages(2, max_wait_time=WAIT_S):
                    if message.message_id == "followed":
                        advance(server, 10)
                        await receiver.dead_letter_message(message, reason="broken")

    with server.client() as http:
        for name in ("end", "t"):
            Bulk(http, name).put("events", {"enabled": True})
        run(scenario())
        advance(server, 10)
        done = Bulk(http, "t/Subscriptions/dies").post("redrive", {"to": "end", "wait_seconds": 30})
        assert done["done"] == 1
        server.wait_until(lambda: server.namespace.entity("end").counts().result().active == 3)
        by_id = http.get("/$polybus/trace", params={"message_id": "followed"}).json()
        by_trace = http.get("/$polybus/trace", params={"trace_id": TRACE_ID}).json()
        assert by_id == by_trace
        assert {row["trace"] for row in by_id["trail"]} == {PARENT}
        steps = [(row["entity"], row["change"], row["reason"]) for row in by_id["trail"]]
        assert sorted(steps) == sorted(
            [
                ("t/Subscriptions/dies", "enqueued", None),
                ("end", "enqueued", None),
                ("t/Subscriptions/dies", "dead-lettered", "broken"),
                ("t/Subscriptions/dies/$DeadLetterQueue", "deleted", "moved"),
                ("end", "enqueued", None),
            ]
        )
        times = [row["time"] for row in by_id["trail"]]
        assert times == sorted(times)
        late = http.get("/$polybus/trace", params={"message_id": "followed", "from": times[-1]}).json()["trail"]
        assert 0 < len(late) < len(steps)
        assert http.get("/$polybus/trace").status_code == 400

    async def received() -> list[Any]:
        async with client(server) as bus, bus.get_queue_receiver("end") as receiver:
            return [
                (message.message_id, (message.application_properties or {}).get(b"traceparent"))
                for message in await receiver.receive_messages(3, max_wait_time=WAIT_S)
            ]

    seen = [trace for name, trace in run(received()) if name == "followed"]
    assert seen
    assert set(seen) == {PARENT.encode()}


def test_a_sender_hears_of_dropped_duplicates_when_it_asks(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned, requires_duplicate_detection=True)

    def message(name: str, **properties: str) -> ServiceBusMessage:
        return ServiceBusMessage("m", message_id=name, application_properties=dict(properties))

    async def scenario() -> None:
        asks = {"polybus-on-duplicate": "reject"}
        async with client(server) as bus, bus.get_queue_sender("q") as sender:
            await sender.send_messages(message("one", **asks))
            await sender.send_messages(message("one"))  # who does not ask hears nothing, as ever
            with pytest.raises(ServiceBusError, match="dropped as a duplicate"):
                await sender.send_messages(message("one", **asks))
            if not partitioned:
                with pytest.raises(ServiceBusError, match="1 of 2 messages"):
                    await sender.send_messages([message("one", **asks), message("two")])
            await sender.send_messages(message("three", **asks))

    run(scenario())
    assert counts(server, "q")["active"] == (2 if partitioned else 3)
    with server.client() as http:
        headers = {"BrokerProperties": '{"MessageId": "one"}'}
        again = http.post("/q/messages", content=b"m", headers=headers)
        assert (again.status_code, again.headers["polybus-duplicates"]) == (201, "1")
        fresh = http.post("/q/messages", content=b"m", headers={"BrokerProperties": '{"MessageId": "four"}'})
        assert (fresh.status_code, "polybus-duplicates" in fresh.headers) == (201, False)


def test_dropped_duplicates_are_events(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned, requires_duplicate_detection=True)
    with server.client() as http:
        Bulk(http, "q").put("events", {"enabled": True})
        for _ in range(3):
            headers = {"BrokerProperties": '{"MessageId": "one"}'}
            assert http.post("/q/messages", content=b"m", headers=headers).status_code == 201
        trail = http.get("/$polybus/trace", params={"message_id": "one"}).json()["trail"]
        assert [(row["change"], row["sequence_number"] != 0) for row in trail] == [
            ("enqueued", True),
            ("duplicate", False),
            ("duplicate", False),
        ]
