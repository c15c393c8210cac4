"""Cursors: what they keep, how they move, who holds them, what happens when they lag, and that they survive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from polybus.clock import MovableClock
from polybus.errors import CursorTruncated
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.support.inside import host_of
from tests.system.http.bulk_kit import Bulk
from tests.system.http.kit import Disk, RocksDisk, Server

DAY_MS = 86_400_000


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates, clock=MovableClock(frozen=True)).start()
    yield server
    server.stop()


def create(server: Server, name: str, **options: Any) -> None:
    server.wait(server.namespace.management.create(QueueDescription(path=name, **options)))


def send(http: httpx.Client, path: str, *bodies: str) -> None:
    for body in bodies:
        assert http.post(f"/{path}/messages", content=body.encode()).status_code == 201


def drain(http: httpx.Client, path: str) -> int:
    count = 0
    while http.delete(f"/{path}/messages/head?timeout=0").status_code == 200:
        count += 1
    return count


def retained(server: Server, path: str) -> int:
    """Settled messages that are kept, over all partitions and logs."""
    entity = server.namespace.entity(path)
    return server.do(
        lambda: sum(log.retained for each in entity.partitions if each.broker for log in each.broker.logs.values())
    )


def positions(bulk: Bulk) -> dict[str, int]:
    return {str(index): log["stable_end"] for index, log in bulk.log().items()}


def test_moving_on_tells_how_far_the_log_goes_of_this_very_entity(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        entity_id = bulk.put("cursors/c", {})["entity_id"]
        send(http, "q", "one", "two", "three")
        told = bulk.post(f"cursors/c/advance?entity_id={entity_id}", {"positions": {}})["log"]
        asked = [
            {name: log[name] for name in ("partition", "available", "stable_end", "messages", "bytes")}
            for log in bulk.get("log")["partitions"]
        ]
        assert told == asked
        assert sum(end["messages"] for end in told) == 3
        other = http.post("/$polybus/entities/q/cursors/c/advance?entity_id=1-1", json={"positions": {"0": 1}})
        assert other.status_code == 410
        assert bulk.get("cursors/c")["positions"]["0"] == 0


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_is_settled_stays_readable_until_the_cursor_has_passed(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    with server.client() as http:
        bulk = Bulk(http, "q")
        made = http.put("/$polybus/entities/q/cursors/lake", json={})
        assert made.status_code == 201
        assert set(made.json()["positions"].values()) == {0}
        assert http.put("/$polybus/entities/q/cursors/lake", json={"start": "latest"}).status_code == 200
        sent = {f"m{number}" for number in range(40)}
        send(http, "q", *sent)
        assert drain(http, "q") == 40
        rows = bulk.everything()
        assert {row["body"].decode() for row in rows} == sent
        assert {row["state"] for row in rows} == {"settled"}
        assert bulk.get("cursors/lake")["lag_messages"] == 40
        assert retained(server, "q") == 40
        assert http.get("/q/messages").status_code == 204
        assert server.do(lambda: server.namespace.entity("q").counts().result()).size_bytes == 0

        half = {index: end // 2 for index, end in positions(bulk).items()}
        moved = bulk.post("cursors/lake/advance", {"positions": half})
        assert moved["positions"] == half
        server.wait_until(lambda: _retained(server, "q") == 40 - sum(half.values()))
        assert len(bulk.everything()) == 40 - sum(half.values())
        bulk.post("cursors/lake/advance", {"positions": positions(bulk)})
        server.wait_until(lambda: _retained(server, "q") == 0)
        assert bulk.everything() == []
        assert bulk.get("cursors/lake")["lag_messages"] == 0


def _retained(server: Server, path: str) -> int:
    entity = server.namespace.entity(path)
    return sum(log.retained for each in entity.partitions if each.broker for log in each.broker.logs.values())


def test_the_lowest_cursor_counts_and_deleting_it_frees(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        for name in ("slow", "fast"):
            bulk.put(f"cursors/{name}", {})
        send(http, "q", "1", "2", "3", "4")
        drain(http, "q")
        bulk.post("cursors/fast/advance", {"positions": {"0": 3}})
        assert len(bulk.everything()) == 4
        assert [each["name"] for each in bulk.get("cursors")["cursors"]] == ["fast", "slow"]
        bulk.delete("cursors/slow")
        server.wait_until(lambda: _retained(server, "q") == 1)
        assert [row["body"] for row in bulk.everything()] == [b"4"]
        bulk.delete("cursors/fast")
        server.wait_until(lambda: _retained(server, "q") == 0)
        send(http, "q", "5")
        drain(http, "q")
        assert retained(server, "q") == 0
        assert http.get("/$polybus/entities/q/cursors/fast").status_code == 404


def test_a_cursor_starts_where_it_is_told(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        send(http, "q", "1", "2", "3")
        drain(http, "q")
        send(http, "q", "4", "5")
        server.do(lambda: server.clock.advance(60_000))
        later = server.do(lambda: server.clock.now().wall_ms)
        send(http, "q", "6", "7")
        assert bulk.put("cursors/earliest", {"start": "earliest"})["positions"] == {"0": 3}
        assert bulk.put("cursors/latest", {"start": "latest"})["positions"] == {"0": 7}
        assert bulk.put("cursors/given", {"start": {"0": 6}})["positions"] == {"0": 6}
        import datetime

        time = datetime.datetime.fromtimestamp(later / 1000, datetime.UTC).isoformat()
        assert bulk.put("cursors/time", {"time": time})["positions"] == {"0": 5}
        for wrong in ({"start": {"0": 8}}, {"start": {"1": 0}}, {"start": "middle"}, {"start": {"x": 1}}):
            assert http.put("/$polybus/entities/q/cursors/wrong", json=wrong).status_code == 400
        assert len(bulk.get("cursors")["cursors"]) == 4


def test_advancing_is_monotone_and_bounded(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        bulk.put("cursors/c", {})
        send(http, "q", "1", "2", "3")
        assert bulk.post("cursors/c/advance", {"positions": {"0": 2}})["positions"] == {"0": 2}
        assert bulk.post("cursors/c/advance", {"positions": {"0": 1}})["positions"] == {"0": 2}
        assert bulk.post("cursors/c/advance", {"positions": {}})["positions"] == {"0": 2}
        for wrong in ({"0": 4}, {"1": 1}, {"0": -1}, {"0": "1"}, {"0": True}, [1], {"00x": 1}):
            refused = http.post("/$polybus/entities/q/cursors/c/advance", json={"positions": wrong})
            assert refused.status_code == 400


def test_a_lease_keeps_others_out_and_an_old_one_is_fenced(server: Server) -> None:
    create(server, "q")
    with server.client() as http, server.client("q", "listener", "listen key") as other:
        bulk = Bulk(http, "q")
        bulk.put("cursors/c", {})
        send(http, "q", "1", "2", "3")
        first = bulk.post("cursors/c/lease", {"holder": "a", "ttl_seconds": 60})
        assert (first["fencing"], first["lease"]["holder"]) == (1, "a")

        def refused(method: str, what: str, **body: Any) -> bool:
            response = other.request(method, f"/$polybus/entities/q/cursors/c{what}", json=body)
            assert response.status_code in (401, 409), response.text
            return True

        assert refused("POST", "/lease", holder="b")
        assert refused("POST", "/lease", holder="b", fencing=1)
        assert refused("POST", "/lease", holder="b", force=True)
        assert refused("POST", "/advance", positions={"0": 1})
        assert refused("POST", "/advance", positions={"0": 1}, fencing=2)
        assert refused("DELETE", "/lease")
        assert refused("DELETE", "")
        assert refused("DELETE", "?force=true")
        bulk.post("cursors/c/advance", {"positions": {"0": 1}, "fencing": 1})
        server.do(lambda: server.clock.advance(50_000))
        assert bulk.post("cursors/c/lease", {"holder": "a", "ttl_seconds": 60, "fencing": 1})["fencing"] == 1
        server.do(lambda: server.clock.advance(50_000))
        assert refused("POST", "/lease", holder="b")
        server.do(lambda: server.clock.advance(10_001))
        bulk.post("cursors/c/advance", {"positions": {"0": 2}, "fencing": 1})
        second = Bulk(other, "q").post("cursors/c/lease", {"holder": "b"})
        assert second["fencing"] == 2
        assert (
            http.post(
                "/$polybus/entities/q/cursors/c/advance", json={"positions": {"0": 3}, "fencing": 1}
            ).status_code
            == 409
        )
        assert (
            http.post("/$polybus/entities/q/cursors/c/lease", json={"holder": "a", "fencing": 1}).status_code == 409
        )
        assert bulk.post("cursors/c/lease", {"holder": "c", "force": True})["fencing"] == 3
        assert bulk.delete("cursors/c/lease", fencing=3)["lease"] is None
        assert Bulk(other, "q").post("cursors/c/lease", {"holder": "b"})["fencing"] == 4
        bulk.delete("cursors/c", force="true")


def test_a_topic_has_a_log_only_while_it_has_a_cursor(server: Server) -> None:
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path="t", enable_partitioning=True)))
    server.wait(management.create_subscription(SubscriptionDescription(topic="t", name="s")))
    with server.client() as http:
        send(http, "t", "unseen")
        bulk = Bulk(http, "t")
        bulk.put("cursors/c", {})
        send(http, "t", *(f"m{number}" for number in range(32)))
        assert {row["body"].decode() for row in bulk.everything()} == {f"m{number}" for number in range(32)}
        bulk.post("cursors/c/advance", {"positions": positions(bulk)})
        server.wait_until(lambda: _retained(server, "t") == 0)
        bulk.delete("cursors/c")
        send(http, "t", "unseen, too")
        assert bulk.everything() == []
        assert drain(http, "t/subscriptions/s") == 34


def test_dead_letters_have_cursors_of_their_own(server: Server) -> None:
    create(server, "q", max_delivery_count=1)
    with server.client() as http:
        dead = Bulk(http, "q/$DeadLetterQueue")
        dead.put("cursors/c", {})
        send(http, "q", "1", "2")
        for _ in range(2):
            got = http.post("/q/messages/head?timeout=0")
            http.put(httpx.URL(got.headers["Location"]).raw_path.decode())
        assert drain(http, "q/$DeadLetterQueue") == 2
        assert [row["dead_letter_reason"] for row in dead.everything()] == ["MaxDeliveryCountExceeded"] * 2
        assert dead.get("cursors/c")["entity"] == "q/$DeadLetterQueue"
        listed = http.get("/$polybus/cursors").json()["cursors"]
        assert [(each["entity"], each["name"]) for each in listed] == [("q/$DeadLetterQueue", "c")]


def truncations(server: Server) -> list[str]:
    found = [str(error) for error in server.errors if isinstance(error, CursorTruncated)]
    server.errors[:] = [error for error in server.errors if not isinstance(error, CursorTruncated)]
    return found


def test_a_cursor_that_lags_too_long_is_truncated_and_says_so(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        bulk.put("cursors/lazy", {})
        bulk.put("cursors/patient", {"max_lag_seconds": 30 * 86_400})
        send(http, "q", *(f"m{number}" for number in range(1, 601)))
        drain(http, "q")
        server.do(lambda: server.clock.advance(6 * DAY_MS))
        send(http, "q", "new")
        drain(http, "q")
        server.do(server.bus.clock_moved)
        assert truncations(server) == []
        server.do(lambda: server.clock.advance(2 * DAY_MS))
        server.do(server.bus.clock_moved)
        server.wait_until(lambda: bool(server.errors))
        server.wait_until(lambda: not trimming(server))
        # The other cursor still wants everything, so only the lazy one has lost its claim.
        assert "lazy" in truncations(server)[0]
        lazy = bulk.get("cursors/lazy")
        assert lazy["truncated"]["0"] == 256
        bulk.delete("cursors/patient")
        for _ in range(3):
            server.do(server.bus.clock_moved)
            server.wait_until(lambda: not trimming(server))
        assert bulk.get("cursors/lazy")["truncated"] == {"0": 600}
        truncations(server)
        rows, end = bulk.range(partition=0, first=1, last=601)
        assert ([row["body"] for row in rows], end["missing"]) == ([b"new"], [[1, 600]])
        assert bulk.log()[0]["earliest"] == 601
        caught_up = bulk.post("cursors/lazy/advance", {"positions": {"0": 601}})
        assert caught_up["truncated"] == {}


def test_a_cursor_may_keep_only_so_many_bytes(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        bulk.put("cursors/c", {"max_lag_bytes": 10_000})
        send(http, "q", *("x" * 1000 for _ in range(30)))
        drain(http, "q")
        server.do(server.bus.delete_idle)
        server.wait_until(lambda: bool(server.errors) and not trimming(server))
        assert len(truncations(server)) == 1
        assert 1 <= len(bulk.everything()) <= 10
        server.do(server.bus.delete_idle)
        server.wait_until(lambda: not trimming(server))
        assert truncations(server) == []


def test_a_deleted_entity_takes_its_cursors_along(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        old = bulk.put("cursors/c", {})["entity_id"]
        server.wait(server.namespace.management.delete("q"))
        server.do(lambda: server.clock.advance(1))
        create(server, "q")
        assert bulk.get("cursors") == {"cursors": []}
        assert http.get("/$polybus/entities/q/log", params={"entity_id": old}).status_code == 410
        fresh = bulk.get("log")["entity_id"]
        assert bulk.get("log", entity_id=fresh)["entity_id"] == fresh
        server.do(server.bus.delete_idle)
        assert not any(server.bus.cursors._cursors.values())


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_cursors_hold_over_a_restart(certificates: Path, tmp_path: Path, kind: str) -> None:
    """Also against a receiver that deletes as soon as the partition is there."""
    disks = [RocksDisk(tmp_path / f"{n}") for n in range(4)] if kind == "rocksdb" else None
    catalogue: Disk | None = RocksDisk(tmp_path / "catalogue") if kind == "rocksdb" else None
    server = Server(certificates, disks=disks, catalogue=catalogue).start()  # type: ignore[arg-type]
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        bulk.put("cursors/c", {})
        send(http, "q", *(f"m{number}" for number in range(48)))
        for _ in range(20):
            http.delete("/q/messages/head?timeout=0")
        leased = bulk.post("cursors/c/lease", {"holder": "driver", "ttl_seconds": 600})
        ends = {index: end // 3 for index, end in positions(bulk).items()}
        bulk.post("cursors/c/advance", {"positions": ends, "fencing": leased["fencing"]})
        expected = bulk.get("cursors/c")
    server = server.restarted()
    with server.client() as http:
        bulk = Bulk(http, "q")
        assert bulk.get("cursors/c") == expected
        assert drain(http, "q") == 28
        rows = bulk.everything()
        assert len(rows) == 48 - sum(ends.values())
        assert {row["state"] for row in rows} == {"settled"}
    server.stop()


def test_cursors_hold_when_a_store_comes_back(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        bulk.put("cursors/c", {})
        send(http, "q", *(f"m{number}" for number in range(32)))
        ends = positions(bulk)
        server.take_down(2)
        assert http.put("/$polybus/entities/q/cursors/other", json={}).status_code == 503
        down = [index for index, log in bulk.log().items() if not log["available"]]
        # What is acknowledged while a partition is away counts when it returns.
        bulk.post("cursors/c/advance", {"positions": {str(down[0]): 1}})
        server.bring_up(2)
        assert drain(http, "q") == 32
        assert len(bulk.everything()) == 31
        bulk.post("cursors/c/advance", {"positions": ends})
        server.wait_until(lambda: _retained(server, "q") == 0)


def trimming(server: Server) -> bool:
    """Whether what was kept for cursors is being removed."""
    entities = server.bus.entities.values()
    return any(host_of(partition)._trimming for entity in entities for partition in entity.partitions)
