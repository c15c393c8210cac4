"""Sends without a key while stores fail after writing: moved elsewhere, and neither lost nor doubled (B8, B10)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.simulation import simulate

TROUBLES = (["doubt"], ["doubt", "outages"], ["doubt", "hangs"], ["doubt", "deaths"], ["doubt", "catalogue"])


@pytest.mark.parametrize("troubles", TROUBLES, ids=" and ".join)
def test_sends_in_doubt_are_neither_lost_nor_doubled(troubles: list[str]) -> None:
    figures: Counter[str] = Counter()
    for seed in range(500, 508):
        outcome = simulate(seed, kinds=["wide"], troubles=troubles)
        assert outcome.clean, outcome.summary()
        figures.update(outcome.figures)
    assert figures["rerouted"] > 50
    assert figures["fences"] > 50


def test_topics_move_their_copies_with_the_message() -> None:
    rerouted = 0
    for seed in range(600, 608):
        outcome = simulate(seed, kinds=["news"], troubles=["doubt", "outages"])
        assert outcome.clean, outcome.summary()
        rerouted += outcome.figures["rerouted"]
    assert rerouted > 20
