"""Messages that come again later, dead letters that expire, batch deletes over partitions: with the SDK and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.clock import MovableClock
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.system.http.bulk_kit import Bulk
from tests.system.http.kit import Server
from tests.system.http.test_jobs import bodies, counts, create, send
from tests.system.http.test_websocket import WAIT_S, client, run


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates, clock=MovableClock(frozen=True)).start()
    yield server
    server.stop()


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def metadata(**options: str) -> str:
    return json.dumps({"team": "shop", "polybus": options})


def advance(server: Server, seconds: float) -> None:
    assert isinstance(server.clock, MovableClock)
    server.clock.advance(round(seconds * 1000))
    server.do(server.bus.clock_moved)


def test_what_the_sdk_abandons_comes_after_the_queues_delay(
    server: Server, admin: ServiceBusAdministrationClient, partitioned: bool
) -> None:
    wanted = metadata(retryDelay="PT10S", retryDelayGrowth="double")
    admin.create_queue("q", enable_partitioning=partitioned, user_metadata=wanted)
    assert admin.get_queue("q").user_metadata == wanted

    async def abandon(count: int) -> None:
        async with client(server) as bus, bus.get_queue_receiver("q") as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert message.delivery_count == count
            await receiver.abandon_message(message)

    send(server, "q", 1)
    for count, seconds in ((0, 10), (1, 20), (2, 40)):
        run(abandon(count))
        assert counts(server, "q")["deferred"] == 1
        advance(server, seconds - 0.001)
        assert counts(server, "q")["active"] == 0
        advance(server, 0.001)
        server.wait_until(lambda: server.namespace.entity("q").counts().result().active == 1)
    with server.client() as http:
        assert bodies(http, "q") == ["m0"]


def test_a_receiver_says_itself_when_it_wants_it_again(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    send(server, "q", 1, ttl_ms=60_000)
    with server.client() as http:
        lock = unlockable(http, "q")
        for wrong in ("60", "x", "-1"):
            refused = http.put(lock, params={"retry-seconds": wrong})
            assert (refused.status_code, "polybus-retry-seconds" in refused.text) == (400, True)
        assert http.put(lock, params={"retry-seconds": "30"}).status_code == 200
        assert http.post("/q/messages/head?timeout=0").status_code == 204
        advance(server, 30)
        server.wait_until(lambda: server.namespace.entity("q").counts().result().active == 1)
        assert bodies(http, "q") == ["m0"]


def unlockable(http: httpx.Client, path: str) -> str:
    got = http.post(f"/{path}/messages/head?timeout=0")
    assert got.status_code == 201
    return str(got.headers["location"])


def test_dead_letters_live_as_long_as_the_entity_says(
    server: Server, admin: ServiceBusAdministrationClient, partitioned: bool
) -> None:
    admin.create_topic("t", enable_partitioning=partitioned)
    admin.create_subscription("t", "s", max_delivery_count=1, user_metadata=metadata(deadLetterTimeToLive="P7D"))
    send(server, "t", 5)
    with server.client() as http:
        for _ in range(5):
            assert http.put(unlockable(http, "t/Subscriptions/s")).status_code == 200
        assert counts(server, "t", 1)["dead_letter"] == 5
        advance(server, 7 * 86_400 - 1)
        assert counts(server, "t", 1)["dead_letter"] == 5
        advance(server, 1)
        server.wait_until(lambda: server.namespace.entity("t").counts(1).result().dead_letter == 0)
    assert counts(server, "t")["size_bytes"] == 0


def test_options_over_http_leave_the_rest_of_the_metadata(server: Server) -> None:
    create(server, "q", user_metadata='{"team": "shop"}')
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path="t")))
    server.wait(management.create_subscription(SubscriptionDescription(topic="t", name="s")))
    with server.client() as http:
        for path in ("q", "t/Subscriptions/s"):
            bulk = Bulk(http, path)
            assert bulk.put("options", {"deadLetterTimeToLive": "P7D"}) == {"deadLetterTimeToLive": "P7D"}
            assert bulk.put("options", {"retryDelay": "PT5S"}) == {
                "deadLetterTimeToLive": "P7D",
                "retryDelay": "PT5S",
            }
            assert bulk.put("options", {"deadLetterTimeToLive": None}) == {"retryDelay": "PT5S"}
            assert bulk.get("options") == {"retryDelay": "PT5S"}
        assert json.loads(server.namespace.entity("q").description.user_metadata) == {
            "team": "shop",
            "polybus": {"retryDelay": "PT5S"},
        }
        for wrong in ({"retryDelay": "soon"}, {"retryDelai": "PT5S"}, {"retryDelay": "P99D"}):
            assert http.put("/$polybus/entities/q/options", json=wrong).status_code == 400
        assert http.put("/$polybus/entities/t/options", json={}).status_code == 400
        create(server, "texts", user_metadata="a text of ours")
        assert http.put("/$polybus/entities/texts/options", json={"retryDelay": "PT5S"}).status_code == 400
    with server.client("q", "listener", "listen key") as http:
        assert http.put("/$polybus/entities/q/options", json={}).status_code == 401


def test_options_that_cannot_be_are_refused(server: Server, admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(HttpResponseError, match="retryDelay"):
        admin.create_queue("wrong", user_metadata=metadata(retryDelay="soon"))
    with pytest.raises(HttpResponseError, match="order"):
        admin.create_queue("wrong", requires_session=True, user_metadata=metadata(retryDelay="PT5S"))
    with pytest.raises(HttpResponseError, match="subscriptions"):
        admin.create_topic("wrong", user_metadata=metadata(retryDelay="PT5S"))
    admin.create_queue("own", user_metadata="polybus is great")
    assert admin.get_queue("own").user_metadata == "polybus is great"


def test_delays_and_times_outlive_a_restart(server: Server, certificates: Path) -> None:
    description = QueueDescription(path="q", enable_partitioning=True, user_metadata=metadata(retryDelay="PT10S"))
    server.wait(server.namespace.management.create(description))
    send(server, "q", 3)
    with server.client() as http:
        for _ in range(3):
            assert http.put(unlockable(http, "q")).status_code == 200
    again = server.restarted()
    try:
        assert counts(again, "q")["deferred"] == 3
        advance(again, 10)
        again.wait_until(lambda: again.namespace.entity("q").counts().result().active == 3)
        with again.client() as http:
            assert bodies(http, "q") == ["m0", "m1", "m2"]
    finally:
        again.stop()
        server.stop = lambda: None  # type: ignore[method-assign]


def test_a_batch_delete_reaches_every_partition(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    send(server, "q", 60)
    before_ms = server.clock.now().wall_ms + 1
    entity = server.namespace.entity("q")
    for count, deleted in ((40, 40), (4_000, 20), (4_000, 0)):
        assert server.wait(entity_verbs.delete_messages(server.namespace, entity, 0, count, before_ms)) == deleted
    assert counts(server, "q")["total"] == 0
