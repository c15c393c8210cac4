"""Faults planted into what manages messages by their numbers: the simulator finds each of them within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

import polybus
from polybus.clock import Now
from polybus.partition import by_number, moving, rescheduling, retrying, settling, storing, transfers
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import Moved
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.reading import find, let_go
from polybus.testing.verifier import FindingKind
from tests.support.simulation import simulate

SEEDS = 12

pytestmark = pytest.mark.skipif(polybus.BUILD != "plain", reason="only into plain Python; see test_planted_elsewhere")


def found(kinds: list[str], seeds: int = SEEDS) -> set[str]:
    """The kinds of what the seeds find, beginning with the first that finds anything."""
    for seed in range(seeds):
        outcome = simulate(seed, kinds=kinds, troubles=["slowness"], rests=True)
        if not outcome.clean:
            return {problem.split(":")[0] for problem in outcome.problems}
    return set()


def test_nothing_is_found_where_nothing_is_planted() -> None:
    assert found(["plain", "wide"], 4) == set()


def test_a_message_that_stays_deferred_beside_its_active_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "remove", lambda broker, entry: None)
    assert found(["plain", "wide"]) & {
        FindingKind.INVENTED,
        FindingKind.NUMBERS,
        FindingKind.COUNTERS,
        "AssertionError",
    }


def test_an_undeferred_message_that_vanishes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(broker: Broker, entry: Entry, reason: str) -> None:
        del reason
        storing.remove(broker, entry)

    monkeypatch.setattr(by_number, "activate", lost)
    assert FindingKind.LOST in found(["plain", "wide"])


def test_a_new_time_that_is_told_and_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescheduling, "_move", lambda broker, stored, old_ms, new_ms: None)
    assert FindingKind.EARLY in found(["plain", "wide"])


def test_a_dead_letter_that_is_taken_and_never_sent_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "dispatch", lambda *told: None)
    assert found(["plain", "wide"]) & {FindingKind.LOST, FindingKind.TORN}


def test_a_dead_letter_that_is_sent_on_and_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(broker: Broker, entry: Entry) -> None:
        let_go(entry)

    monkeypatch.setattr(moving, "remove", keep)
    assert found(["plain", "wide"]) != set(), "it is counted as gone, and yet there to be drained"


def test_a_purge_that_tells_of_more_than_it_did_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(broker: Broker, log: Log, now: Now, numbers: list[int], reply: Any, context: object) -> Steps[None]:
        found = yield from find(broker, log, numbers)
        for entry in found.values():
            let_go(entry)
        broker.wall(now)
        broker.out().replies.append((reply, context, Moved(list(found), [], [])))

    monkeypatch.setattr("polybus.hosting.local_moving.by_number.delete", nothing)
    assert FindingKind.REDELIVERED in found(["plain", "wide"])


def test_dead_letters_that_go_before_their_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def short_lived(broker: Broker, log: Log, entry: Entry) -> None:
        entry.expires_ms = broker.wall_ms + 200
        storing.enter(broker, log, entry)

    monkeypatch.setattr(settling, "enter", short_lived)
    assert FindingKind.LOST in found(["plain", "wide"])
