"""Messages that rest after they were abandoned, and messages that are purged, among everything else that goes wrong."""

from __future__ import annotations

import pytest

from polybus.testing.history import OK, Op
from tests.support.simulation import simulate


@pytest.mark.parametrize("seed", range(700_000, 700_012))
def test_nothing_is_lost_doubled_or_returns(seed: int) -> None:
    outcome = simulate(seed, rests=True)
    assert outcome.clean, outcome.summary()


def test_clients_do_purge_and_wait() -> None:
    events = [event for seed in range(3) for event in simulate(seed, rests=True).history]
    assert sum(event.op == Op.PURGE and event.outcome == OK for event in events) > 5
    assert sum(event.op == Op.ABANDON and event.outcome == OK for event in events) > 20
