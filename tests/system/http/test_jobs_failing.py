"""Purge, redrive, un-defer, scheduled messages and batch delete while a store fails: told, nothing lost or doubled, and
whoever asks again comes to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from polybus.clock import MovableClock
from polybus.errors import PolybusError
from polybus.namespace.delivery import entity_verbs
from polybus.store.failing import FailingStore, Faults
from polybus.store.memory import MemoryStore
from tests.system.http.bulk_kit import Bulk
from tests.system.http.kit import Disk, Server
from tests.system.http.test_jobs import counts, create, defer_all, kill_all, send, texts

COUNT = 48
HOUR_MS = 3_600_000
TRIES = 20


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    disks = [Disk(FailingStore(MemoryStore()), threaded=True) for _ in range(4)]
    server = Server(certificates, faults=True, clock=MovableClock(frozen=True), disks=disks).start()
    yield server
    for disk in server.disks:
        disk.store.faults.heal()
    server.stop()


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def _not_written(faults: Faults) -> None:
    """Commits fail before anything is written."""
    faults.fail_from_now("commit")


def _in_doubt(faults: Faults) -> None:
    """Commits are written, and their sync fails: nobody knows."""
    faults.fail_from_now("sync")


def _gone(faults: Faults) -> None:
    faults.take_down()


@pytest.fixture(params=[_not_written, _in_doubt, _gone], ids=["not written", "in doubt", "gone"])
def fault(request: pytest.FixtureRequest) -> Callable[[Faults], None]:
    return request.param  # type: ignore[no-any-return]


def received(http: httpx.Client, path: str) -> list[str]:
    """As many bodies as were sent, waited for, and any that are there beside them."""
    found = []
    for number in range(COUNT + 1):
        got = http.delete(f"/{path}/messages/head?timeout={0 if number == COUNT else 20}")
        if got.status_code == 200:
            found.append(got.content.decode())
    return sorted(found)


class Failing:
    """A queue with messages, one store that fails, and a verb that is asked for until it is done."""

    def __init__(self, server: Server, http: httpx.Client, fault: Callable[[Faults], None]) -> None:
        self.server = server
        self.http = http
        self.fault = fault

    def run(self, verb: str, **order: Any) -> list[dict[str, Any]]:
        """What each call answered; the first one meets the fault."""
        first = self.broken(lambda: self.asked(verb, order))
        assert first["state"] in ("incomplete", "failed"), first
        assert first["done"] < COUNT
        answers = [first]
        while answers[-1]["state"] != "done":
            assert len(answers) < TRIES, answers
            answers.append(self.asked(verb, order))
        return answers

    def broken(self, call: Callable[[], Any]) -> Any:
        """What a call gives while one store of the queue fails; afterwards everything is whole."""
        entity = self.server.namespace.entity("q")
        store = entity.partitions[len(entity.partitions) // 2].store
        faults: Faults = self.server.disks[self.server.bus.stores.index(store)].store.faults
        self.fault(faults)
        try:
            return call()
        finally:
            faults.heal()
            self.server.wait_until(self.whole)

    def whole(self) -> bool:
        return all(not entity.missing_partitions() for entity in self.server.namespace.entities.values())

    def asked(self, verb: str, order: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = Bulk(self.http, "q").post(verb, {"wait_seconds": 30, **order})
        return answer


@pytest.fixture
def failing(server: Server, fault: Callable[[Faults], None], partitioned: bool) -> Iterator[Failing]:
    create(server, "q", enable_partitioning=partitioned, max_delivery_count=1)
    with server.client() as http:
        yield Failing(server, http, fault)


def test_a_purge(server: Server, failing: Failing) -> None:
    send(server, "q", COUNT)
    answers = failing.run("purge", state="active")
    assert sum(answer["done"] for answer in answers) <= COUNT
    assert counts(server, "q")["total"] == 0


def test_a_redrive_to_the_source(server: Server, failing: Failing) -> None:
    send(server, "q", COUNT)
    kill_all(failing.http, server, "q", 1)
    assert counts(server, "q")["dead_letter"] == COUNT
    failing.run("redrive")
    server.wait_until(lambda: server.namespace.entity("q").counts().result().active == COUNT)
    assert received(failing.http, "q") == texts(COUNT)
    assert counts(server, "q")["total"] == 0


def test_a_redrive_to_another_entity_with_an_edit(server: Server, failing: Failing, partitioned: bool) -> None:
    create(server, "other", enable_partitioning=not partitioned)
    send(server, "q", COUNT)
    kill_all(failing.http, server, "q", 1)
    failing.run("redrive", to="other", edit={"properties": {"tried": "again"}})
    server.wait_until(lambda: server.namespace.entity("other").counts().result().active == COUNT)
    assert received(failing.http, "other") == texts(COUNT)
    assert counts(server, "q")["total"] == counts(server, "other")["total"] == 0


def test_a_redrive_whose_destination_is_away_arrives_when_it_is_back(server: Server) -> None:
    """What is on its way lies in the outbox of where it was: the job is done, and the messages come."""
    create(server, "q", max_delivery_count=1)
    create(server, "other", enable_partitioning=True)
    send(server, "q", COUNT)
    with server.client() as http:
        kill_all(http, server, "q", 1)
        own = server.namespace.entity("q").partitions[0].store
        away = next(number for number, store in enumerate(server.bus.stores) if store is not own)
        server.take_down(away)
        done = Bulk(http, "q").post("redrive", {"to": "other", "wait_seconds": 30})
        assert done["done"] + counts(server, "q")["dead_letter"] == COUNT
        server.bring_up(away)
        while counts(server, "q")["dead_letter"]:
            Bulk(http, "q").post("redrive", {"to": "other", "wait_seconds": 30})
        server.wait_until(lambda: server.namespace.entity("other").counts().result().active == COUNT)
        assert received(http, "other") == texts(COUNT)


def test_an_undefer(server: Server, failing: Failing) -> None:
    send(server, "q", COUNT)
    defer_all(server, "q", COUNT)
    failing.run("undefer")
    assert counts(server, "q")["deferred"] == 0
    assert received(failing.http, "q") == texts(COUNT)
    assert counts(server, "q")["total"] == 0


def test_another_time_for_scheduled_messages(server: Server, failing: Failing) -> None:
    now = server.clock.now().wall_ms
    send(server, "q", COUNT, scheduled_ms=now + HOUR_MS)
    failing.run("scheduled/move", to=now + 2 * HOUR_MS)
    server.clock.advance(HOUR_MS + 60_000)
    server.do(server.bus.clock_moved)
    assert counts(server, "q")["scheduled"] == COUNT, "the old time means nothing any more"
    server.clock.advance(HOUR_MS)
    server.do(server.bus.clock_moved)
    server.wait_until(lambda: server.namespace.entity("q").counts().result().active == COUNT)
    assert received(failing.http, "q") == texts(COUNT)
    assert counts(server, "q")["total"] == 0


def test_scheduled_messages_taken_back(server: Server, failing: Failing) -> None:
    send(server, "q", COUNT, scheduled_ms=server.clock.now().wall_ms + HOUR_MS)
    failing.run("scheduled/cancel")
    assert counts(server, "q")["total"] == 0


def test_a_batch_delete(server: Server, failing: Failing) -> None:
    """A client is told how many, or of the failure; asking again deletes the rest."""
    send(server, "q", COUNT)
    before_ms = server.clock.now().wall_ms + 1
    entity = server.namespace.entity("q")

    def delete() -> int:
        try:
            return int(server.wait(entity_verbs.delete_messages(server.namespace, entity, 0, 4_000, before_ms)))
        except PolybusError:
            return -1

    assert failing.broken(delete) < COUNT
    left = counts(server, "q")["active"]
    assert delete() == left
    assert counts(server, "q")["total"] == 0
