"""Messages that rest after they were abandoned, and messages that others manage by number, among all that goes wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from polybus.testing.history import OK, Op
from tests.support.simulation import simulate

OWN = ("mortal", "patient")
"""The queue that every such run has, whatever kinds it plays."""


@pytest.mark.parametrize("seed", range(700_000, 700_012))
def test_nothing_is_lost_doubled_or_returns(seed: int) -> None:
    outcome = simulate(seed, rests=True)
    assert outcome.clean, outcome.summary()


def test_clients_do_all_of_it() -> None:
    events = [event for seed in range(8) for event in simulate(seed, rests=True).history]
    done = Counter(event.op for event in events if event.outcome == OK)
    assert done[Op.PURGE] > 10
    assert done[Op.ABANDON] > 50
    assert done[Op.UNDEFER] > 10
    assert done[Op.RESCHEDULE] > 30
    assert done[Op.CANCEL] > 10
    assert done[Op.MOVE] > 5


@pytest.mark.parametrize("kinds", [["graves", "plain"], ["unique"], ["sessions"], ["news"], ["short"]])
def test_dead_letters_of_every_kind_of_place_are_sent_elsewhere(kinds: list[str]) -> None:
    for seed in range(20):
        outcome = simulate(seed, kinds=kinds, troubles=["doubt"], rests=True)
        assert outcome.clean, outcome.summary()
        moved = {event.transaction for event in outcome.history if event.op == Op.MOVE and event.outcome == OK}
        taken = [event.entity for event in outcome.history if event.op == Op.COMPLETE and event.transaction in moved]
        if any(not entity.startswith(OWN) for entity in taken):
            return
    pytest.fail("no seed has sent a dead letter of it elsewhere")
