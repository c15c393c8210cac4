"""Purge, redrive, un-defer, scheduled messages and sessions in bulk: over HTTP, on plain and partitioned entities."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from polybus.clock import MovableClock
from polybus.message.message import build
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.promise import Promise
from tests.system.http.bulk_kit import Bulk, read_lines
from tests.system.http.kit import Server
from tests.system.http.test_websocket import WAIT_S, client, run

DEAD = "$DeadLetterQueue"


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates, clock=MovableClock(frozen=True)).start()
    yield server
    server.stop()


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def create(server: Server, name: str, **options: Any) -> None:
    server.wait(server.namespace.management.create(QueueDescription(path=name, **options)))


def send(server: Server, name: str, count: int, **fields: Any) -> None:
    entity = server.namespace.entity(name)

    async def all_of_them() -> None:
        for number in range(count):
            done: Promise[Any] = Promise()
            server.namespace.send(entity, [build(b"m%d" % number, **fields)], done.reply, None)
            await done

    server.wait(all_of_them())


def bodies(http: httpx.Client, path: str) -> list[str]:
    found = []
    while (got := http.delete(f"/{path}/messages/head?timeout=0")).status_code == 200:
        found.append(got.content.decode())
    return sorted(found)


def kill_all(http: httpx.Client, server: Server, path: str, times: int = 10) -> None:
    """Lets every message of a queue die of too many deliveries."""
    for _ in range(times):
        while (got := http.post(f"/{path}/messages/head?timeout=0")).status_code == 201:
            assert http.put(got.headers["location"]).status_code == 200


def counts(server: Server, name: str, number: int = 0) -> dict[str, int]:
    found: dict[str, int] = server.do(lambda: server.namespace.entity(name).counts(number).result().by_name())
    return found


def texts(count: int) -> list[str]:
    return sorted(f"m{number}" for number in range(count))


def test_a_purge_counts_first_and_spares_what_is_newer_or_held(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    with server.client() as http:
        bulk = Bulk(http, "q")
        send(server, "q", 150)
        server.clock.advance(60_000)
        middle = server.clock.now().wall_ms
        send(server, "q", 30)
        assert http.post("/q/messages/head?timeout=0").status_code == 201
        tried = bulk.post("purge", {"before": middle, "dry_run": True, "wait_seconds": 30})
        assert (tried["state"], tried["total"], tried["chosen"], tried["done"]) == ("done", 150, 150, 0)
        assert len(tried["samples"]) == 20
        assert counts(server, "q")["active"] == 180
        done = bulk.post("purge", {"before": middle, "count": True, "wait_seconds": 30})
        assert (done["state"], done["total"], done["done"], done["locked"]) == ("done", 150, 149, 1)
        assert counts(server, "q")["active"] == 31
        assert http.get(f"/$polybus/jobs/{done['job']}").json() == done
        assert [job["job"] for job in http.get("/$polybus/jobs").json()["jobs"]] == [tried["job"], done["job"]]


def test_a_purge_by_condition_and_by_state(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    with server.client() as http:
        bulk = Bulk(http, "q")
        send(server, "q", 5, application={"colour": "red"})
        send(server, "q", 7, application={"colour": "blue"})
        hour = server.clock.now().wall_ms + 3_600_000
        send(server, "q", 3, scheduled_ms=hour)
        done = bulk.post("purge", {"filter": "colour = 'red'", "wait_seconds": 30})
        assert (done["done"], done["looked_at"]) == (5, 15)
        assert bulk.post("purge", {"state": "scheduled", "wait_seconds": 30})["done"] == 3
        assert counts(server, "q")["total"] == 7
        kill_all(http, server, "q")
        assert counts(server, "q")["dead_letter"] == 7
        assert bulk.post("purge", {"state": "dead-lettered", "wait_seconds": 30, "limit": 4})["done"] == 4
        assert Bulk(http, f"q/{DEAD}").post("purge", {"wait_seconds": 30})["done"] == 3
        assert counts(server, "q")["size_bytes"] == 0


def test_a_purge_wants_to_be_told_what_and_needs_the_right(server: Server) -> None:
    create(server, "q")
    send(server, "q", 2)
    with server.client() as http:
        refused = http.post("/$polybus/entities/q/purge", json={"wait_seconds": 1})
        assert refused.status_code == 400
        misspelt = http.post("/$polybus/entities/q/purge", json={"state": "active", "befor": 5})
        assert (misspelt.status_code, "befor" in misspelt.text) == (400, True)
        wrong = http.post("/$polybus/entities/q/purge", json={"filter": "colour ="})
        assert wrong.status_code == 400
    with server.client("q", "sender", "send key") as http:
        assert http.post("/$polybus/entities/q/purge", json={"state": "active"}).status_code == 401
    assert counts(server, "q")["active"] == 2


def test_a_job_is_seen_and_stopped_only_by_those_who_may(server: Server) -> None:
    create(server, "q")
    send(server, "q", 10)
    with server.client() as http:
        job = Bulk(http, "q").post("purge", {"state": "active", "rate": 0.001})
        assert job["state"] == "running"
        with server.client("q", "sender", "send key") as other:
            assert other.get(f"/$polybus/jobs/{job['job']}").status_code == 401
            assert other.get("/$polybus/jobs").status_code == 401
        assert http.delete(f"/$polybus/jobs/{job['job']}").status_code == 200
        assert http.get("/$polybus/jobs/nothing").status_code == 404
    assert counts(server, "q")["active"] >= 9


def test_a_redrive_sends_dead_letters_back_to_their_source_with_edits(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    send(server, "q", 40, application={"tenant": 5})
    with server.client() as http:
        kill_all(http, server, "q")
        bulk = Bulk(http, "q")
        edit = {"properties": {"DeadLetterReason": None, "DeadLetterErrorDescription": None, "again": True}}
        done = bulk.post("redrive", {"edit": edit, "count": True, "wait_seconds": 30})
        assert (done["state"], done["total"], done["done"], done["error"]) == ("done", 40, 40, None)
        server.wait_until(lambda: server.namespace.entity("q").counts().result().active == 40)
        rows, _ = read_lines(http.get("/$polybus/entities/q/browse", params={"format": "json"}))
        assert {tuple(sorted(row["properties"].items())) for row in rows} == {(("again", "true"), ("tenant", "5"))}
        assert bodies(http, "q") == texts(40)


def test_a_redrive_to_another_entity_by_condition_and_rate(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned, max_delivery_count=1)
    create(server, "other", enable_partitioning=partitioned)
    send(server, "q", 6, subject="keep")
    send(server, "q", 6, subject="go")
    with server.client() as http:
        kill_all(http, server, "q", 1)
        body = {"to": "other", "filter": "sys.label = 'go'", "rate": 600, "wait_seconds": 30}
        done = Bulk(http, "q").post("redrive", body)
        assert (done["state"], done["done"]) == ("done", 6)
        server.wait_until(lambda: server.namespace.entity("other").counts().result().active == 6)
        assert bodies(http, "other") == texts(6)
        assert counts(server, "q")["dead_letter"] == 6


def test_dead_letters_of_a_subscription_go_back_to_it_alone(server: Server, partitioned: bool) -> None:
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path="t", enable_partitioning=partitioned)))
    for name in ("one", "two"):
        server.wait(
            management.create_subscription(SubscriptionDescription(topic="t", name=name, max_delivery_count=1))
        )
    send(server, "t", 9)
    with server.client() as http:
        kill_all(http, server, "t/Subscriptions/one", 1)
        done = Bulk(http, "t/Subscriptions/one").post("redrive", {"wait_seconds": 30})
        assert (done["state"], done["done"]) == ("done", 9)
        server.wait_until(lambda: server.namespace.entity("t").counts(1).result().active == 9)
        assert counts(server, "t", 2)["active"] == 9
        assert bodies(http, "t/Subscriptions/one") == texts(9)


def test_a_redrive_to_a_full_entity_is_refused_and_nothing_moves(server: Server) -> None:
    create(server, "q", max_delivery_count=1)
    create(server, "full")
    send(server, "q", 3)
    server.do(lambda: setattr(server.namespace.entity("full").settings, "max_bytes", 10))
    with server.client() as http:
        kill_all(http, server, "q", 1)
        send_one = http.post("/full/messages", content=b"x")
        assert send_one.status_code == 403
        server.do(lambda: setattr(server.namespace.entity("full").settings, "max_bytes", 0))
        refused = http.post("/$polybus/entities/q/redrive", json={"to": "full", "wait_seconds": 30})
        assert (refused.status_code, "full" in refused.text) == (403, True)
        missing = http.post("/$polybus/entities/q/redrive", json={"to": "nowhere"})
        assert missing.status_code == 404
    with server.client("", "listener", "listen key") as http:
        refused = http.post("/$polybus/entities/q/redrive", json={"to": "full"})
        assert refused.status_code == 401
        failed = Bulk(http, "q").post("redrive", {"wait_seconds": 30})
        assert (failed["state"], failed["done"]) == ("failed", 0)
    assert counts(server, "q")["dead_letter"] == 3


def test_deferred_messages_become_active_again(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    send(server, "q", 8)
    with server.client() as http:
        defer_all(server, "q", 8)
        assert counts(server, "q")["deferred"] == 8
        done = Bulk(http, "q").post("undefer", {"wait_seconds": 30})
        assert (done["state"], done["done"]) == ("done", 8)
        assert bodies(http, "q") == texts(8)


def test_active_messages_are_deferred_by_condition(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    send(server, "q", 5, subject="now")
    send(server, "q", 3, subject="later")
    with server.client() as http:
        bulk = Bulk(http, "q")
        assert bulk.post("defer", {"filter": "sys.label = 'later'", "dry_run": True, "wait_seconds": 30})["chosen"] == 3
        done = bulk.post("defer", {"filter": "sys.label = 'later'", "wait_seconds": 30})
        assert (done["state"], done["done"]) == ("done", 3)
        found = counts(server, "q")
        assert (found["active"], found["deferred"]) == (5, 3)
        assert http.post("/$polybus/entities/q/defer", json={}).status_code == 400
    with server.client("", "sender", "send key") as http:
        assert http.post("/$polybus/entities/q/defer", json={"limit": 1}).status_code == 401
    assert sorted(taken(server, "q", 3)) == texts(3)


def taken(server: Server, name: str, count: int) -> list[str]:
    """Deferred messages, received by the numbers that peeking shows, with the SDK."""

    async def scenario() -> list[str]:
        async with client(server) as bus, bus.get_queue_receiver(name) as receiver:
            peeked = await receiver.peek_messages(20)
            found = []
            for each in peeked:
                if each.state.name == "DEFERRED":
                    (message,) = await receiver.receive_deferred_messages(each.sequence_number)
                    found.append(str(message))
                    await receiver.complete_message(message)
            assert len(found) == count
            return found

    return run(scenario())


def test_the_state_of_a_session_is_read_without_its_lock(server: Server, partitioned: bool) -> None:
    create(server, "q", requires_session=True, enable_partitioning=partitioned)
    create(server, "plain")

    async def scenario() -> None:
        async with client(server) as bus:
            async with bus.get_queue_sender("q") as sender:
                await sender.send_messages(ServiceBusMessage("x", session_id="cart 7/8"))
            async with bus.get_queue_receiver("q", session_id="cart 7/8") as receiver:
                await receiver.session.set_state(b"half \xff full")
                with server.client() as http:
                    path = "/$polybus/entities/q/sessions/cart%207%2F8/state"
                    found = await asyncio.to_thread(http.get, path)
                    assert base64.b64decode(found.json()["state_base64"]) == b"half \xff full"

    run(scenario())
    with server.client() as http:
        assert http.get("/$polybus/entities/q/sessions/none/state").json() == {"session_id": "none", "state_base64": None}
        assert http.get("/$polybus/entities/plain/sessions/a/state").status_code == 400


def defer_all(server: Server, name: str, count: int) -> None:
    """With the SDK, as a receiver would."""

    async def scenario() -> None:
        async with client(server) as bus, bus.get_queue_receiver(name) as receiver:
            deferred = 0
            while deferred < count:
                for message in await receiver.receive_messages(count, max_wait_time=WAIT_S):
                    await receiver.defer_message(message)
                    deferred += 1

    run(scenario())


def test_scheduled_messages_are_listed_moved_and_cancelled_by_condition(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    now = server.clock.now().wall_ms
    send(server, "q", 5, subject="early", scheduled_ms=now + 3_600_000)
    send(server, "q", 4, subject="late", scheduled_ms=now + 7_200_000)
    with server.client() as http:
        bulk = Bulk(http, "q")
        query = {"state": "scheduled", "due_before": now + 5_000_000, "format": "json"}
        rows, end = read_lines(http.get("/$polybus/entities/q/browse", params=query))
        assert ([row["subject"] for row in rows], end["unreachable"]) == (["early"] * 5, [])
        moved = bulk.post("scheduled/move", {"filter": "sys.label = 'late'", "by_seconds": -7000, "wait_seconds": 30})
        assert moved["done"] == 4
        cancelled = bulk.post("scheduled/cancel", {"due_from": now + 3_000_000, "wait_seconds": 30})
        assert cancelled["done"] == 5
        server.clock.advance(200_000)
        server.do(server.bus.clock_moved)
        server.wait_until(lambda: server.namespace.entity("q").counts().result().active == 4)
        rows, _ = read_lines(http.get("/$polybus/entities/q/browse", params={"format": "json"}))
        assert [row["subject"] for row in rows] == ["late"] * 4
        assert counts(server, "q")["scheduled"] == 0
        assert http.post("/$polybus/entities/q/scheduled/move", json={}).status_code == 400


def test_one_time_for_all_scheduled_messages_of_a_topic(server: Server, partitioned: bool) -> None:
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path="t", enable_partitioning=partitioned)))
    server.wait(management.create_subscription(SubscriptionDescription(topic="t", name="s")))
    now = server.clock.now().wall_ms
    send(server, "t", 6, scheduled_ms=now + 3_600_000)
    with server.client() as http:
        done = Bulk(http, "t").post("scheduled/move", {"to": now, "wait_seconds": 30})
        assert done["done"] == 6
        server.wait_until(lambda: server.namespace.entity("t").counts(1).result().active == 6)


def test_a_store_that_is_away_makes_a_job_incomplete_and_asking_again_ends_it(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    send(server, "q", 64)
    with server.client() as http:
        server.take_down(2)
        first = Bulk(http, "q").post("purge", {"state": "active", "wait_seconds": 30})
        assert (first["state"], bool(first["unreachable"])) == ("incomplete", True)
        server.bring_up(2)
        rest = Bulk(http, "q").post("purge", {"state": "active", "wait_seconds": 30})
        assert (rest["state"], first["done"] + rest["done"]) == ("done", 64)
        assert counts(server, "q")["total"] == 0


def test_sessions_are_listed_with_counts_over_partitions(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned, requires_session=True)
    for number in range(5):
        send(server, "q", number + 1, session_id=f"s{number}")
    with server.client() as http:
        bulk = Bulk(http, "q")
        found = bulk.get("sessions")
        assert {each["session_id"]: each["messages"] for each in found["sessions"]} == {
            f"s{number}": number + 1 for number in range(5)
        }
        assert found["next"] is None
        names, after = [], None
        while True:
            page = bulk.get("sessions", limit=2, **({} if after is None else {"after": after}))
            names += [each["session_id"] for each in page["sessions"]]
            after = page["next"]
            if after is None:
                break
        assert sorted(names) == [f"s{number}" for number in range(5)]
        create(server, "plain")
        assert http.get("/$polybus/entities/plain/sessions").status_code == 400


def test_who_holds_a_session_is_told(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned, requires_session=True)
    send(server, "q", 2, session_id="mine")

    async def scenario() -> dict[str, Any]:
        async with client(server) as bus, bus.get_queue_receiver("q", session_id="mine") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=WAIT_S)) == 1
            with server.client() as http:
                found = Bulk(http, "q").get("sessions")["sessions"]
            return dict(found[0])

    held = run(scenario())
    assert (held["session_id"], held["messages"], held["locked"]) == ("mine", 2, 1)
    assert "/" in held["holder"]
    assert held["locked_until"] is not None
