"""Faults planted into the bus: the simulator must find each of them within a few seeds, or a green run means nothing."""

from __future__ import annotations

import pytest

import polybus
from polybus.errors import PolybusError
from polybus.hosting import partition_host, recovery
from polybus.hosting.catalogue import Catalogue
from polybus.hosting.local_partition import LocalPartition
from polybus.hosting.partition_host import PartitionHost
from polybus.hosting.recovery import Recovery
from polybus.hosting.store_host import StoreHost
from polybus.namespace.pipeline.publishing import NOTHING, Producer, Publishing
from polybus.partition import transfers
from polybus.partition.duplicates import DuplicateHistory
from tests.support.simulation import simulate

SEEDS = 12

pytestmark = pytest.mark.skipif(
    polybus.BUILD != "plain", reason="faults can only be planted into plain Python; see test_planted_elsewhere"
)


def found(kinds: list[str], troubles: list[str]) -> list[str]:
    """What the seeds find, beginning with the first that finds anything."""
    for seed in range(SEEDS):
        outcome = simulate(seed, kinds=kinds, troubles=troubles)
        if not outcome.clean:
            return outcome.problems
    return []


def test_nothing_is_found_where_nothing_is_planted() -> None:
    assert found(["wide"], ["doubt", "deaths"]) == []


def test_an_acknowledgement_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = StoreHost._flush

    def hasty(self: StoreHost) -> None:
        early, self.batch.replies = self.batch.replies, []
        flush(self)
        for reply, context, result in early:
            reply(context, result, None)

    monkeypatch.setattr(StoreHost, "_flush", hasty)
    problems = found(["plain"], ["deaths", "slowness"])
    assert any("lost" in problem or "redelivered" in problem for problem in problems), "of sends, or of settlements"


def test_a_send_in_doubt_without_a_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_host, "_mark", lambda broker, doubtful: None)
    assert any("copies of 1 sends" in problem for problem in found(["wide"], ["doubt"]))


def test_marks_that_are_not_acted_upon_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave_it(partition: object, broker: object, keys: object) -> None:
        return None

    monkeypatch.setattr(recovery, "_undo", leave_it)
    assert any("copies of 1 sends" in problem for problem in found(["wide"], ["doubt"]))


def test_marks_that_stay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave_them(marks: object) -> None:
        return None

    monkeypatch.setattr(recovery, "_remove_marks", leave_them)
    assert found(["wide"], ["doubt"]) != []


def test_a_store_that_serves_before_its_sends_have_arrived_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "reroute_begins", lambda self, store_id: None)
    monkeypatch.setattr(Recovery, "reroute_ends", lambda self, store_id: None)
    assert found(["wide"], ["doubt", "hangs", "slowness"]) != []


def test_a_transfer_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "seen", lambda broker, source, number: False)
    assert any("copies" in problem for problem in found(["chain"], ["doubt", "deaths"]))


def test_ids_that_are_forgotten_at_a_restart_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuplicateHistory, "restore", lambda self, wall_ms: None)
    assert any("duplicate_accepted" in problem for problem in found(["unique"], ["deaths"]))


def test_a_lock_that_outlives_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are numbered anew in each life, so without another incarnation an old token fits a new lock."""

    async def always_the_same(self: Catalogue) -> int:
        return 1

    monkeypatch.setattr(Catalogue, "next_incarnation", always_the_same)
    assert any("settled_late" in problem for problem in found(["plain"], ["deaths"]))


def test_an_outbox_that_nobody_looks_into_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: PartitionHost, context: object, result: object, error: PolybusError | None) -> None:
        return None

    monkeypatch.setattr(PartitionHost, "_outbox_synced", forgetful)
    assert any("on their way" in problem for problem in found(["chain"], ["deaths"]))


def test_a_catalogue_that_guesses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def surely_not(self: Catalogue) -> bool:
        return False

    monkeypatch.setattr(Catalogue, "_is_there", surely_not)
    assert found(["news"], ["catalogue", "deaths"]) != []


def test_an_epoch_that_is_published_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Publishing._claim

    async def forgetful(self: Publishing, namespace: str, name: str, query: str) -> Producer:
        known = await claim(self, namespace, name, query)
        return Producer(namespace, name, query, NOTHING, known.fenced)

    monkeypatch.setattr(Publishing, "_claim", forgetful)
    problems = found(["wide"], ["deaths"])
    assert any("copies of 1 sends" in problem for problem in problems)
    assert any("the tap has seen" in problem for problem in problems)


def test_a_publication_that_nobody_follows_after_a_restart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Publishing) -> None:
        return None

    monkeypatch.setattr(Publishing, "load", nothing)
    assert any("lost" in problem or "copies" in problem for problem in found(["wide"], ["deaths", "slowness"]))


def test_a_cursor_that_is_felt_too_late_after_a_restart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPartition, "prepare", lambda self, broker: None)
    assert any("the tap has never seen" in problem for problem in found(["wide"], ["deaths"]))
