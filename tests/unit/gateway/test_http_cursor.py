"""The rules of cursors, without a bus: moving on, leases, truncation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ArgumentOutOfRange, CursorLeased
from polybus.namespace.pipeline.cursor import Cursor, check_positions, cursor_from, cursor_key

CURSOR = Cursor(namespace="ns", entity_id=1, log_id=0, name="c", positions={0: 5, 1: 0})


def test_a_cursor_survives_the_catalogue() -> None:
    whole = CURSOR.leased("a", 1_000, 60_000, None, False).cut(1, 9).advanced({0: 7})
    assert cursor_from(whole.record()) == whole
    assert cursor_key(1, 0, "c") == CURSOR.key
    assert cursor_key(1, 0, "c") != cursor_key(1, 1, "c")


@given(st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 100))))
def test_positions_never_go_back(steps: list[dict[int, int]]) -> None:
    cursor = CURSOR
    for step in steps:
        moved = cursor.advanced(step)
        assert all(moved.positions[index] >= position for index, position in cursor.positions.items())
        assert all(moved.positions[index] >= position for index, position in step.items())
        assert moved.advanced(step) == moved
        cursor = moved


def test_what_was_cut_off_no_longer_holds_anything() -> None:
    cut = CURSOR.cut(0, 50)
    assert (cut.floor(0), cut.floor(1), cut.floor(2)) == (50, 0, 0)
    assert cut.advanced({0: 49}).truncated == {0: 50}
    assert cut.advanced({0: 50}).truncated == {}


def test_leases() -> None:
    first = CURSOR.leased("a", 0, 1_000, None, False)
    assert (first.fencing, first.is_held(999), first.is_held(1_000)) == (1, True, False)
    with pytest.raises(CursorLeased):
        first.leased("b", 500, 1_000, None, False)
    assert first.leased("b", 500, 1_000, None, True).fencing == 2
    assert first.leased("b", 1_000, 1_000, None, False).fencing == 2
    assert first.leased("a", 500, 1_000, None, False).fencing == 2
    renewed = first.leased("a", 500, 1_000, 1, False)
    assert (renewed.fencing, renewed.leased_until_ms) == (1, 1_500)
    assert first.leased("a", 5_000, 1_000, 1, False).fencing == 1
    with pytest.raises(CursorLeased):
        first.leased("a", 500, 1_000, 2, False)
    with pytest.raises(CursorLeased):
        renewed.leased("b", 5_000, 1_000, None, False).leased("a", 5_001, 1_000, 1, False)


@pytest.mark.parametrize(
    ("fencing", "now_ms", "allowed"),
    [(1, 0, True), (1, 5_000, True), (None, 0, False), (None, 5_000, True), (0, 0, False), (2, 5_000, False)],
)
def test_who_may_advance(fencing: int | None, now_ms: int, allowed: bool) -> None:
    held = CURSOR.leased("a", 0, 1_000, None, False)
    if allowed:
        held.check_lease(fencing, now_ms)
    else:
        with pytest.raises(CursorLeased):
            held.check_lease(fencing, now_ms)


@pytest.mark.parametrize("positions", [{2: 0}, {0: 11}, {0: -1}, {1: 1 << 62}])
def test_positions_that_no_message_has_had(positions: dict[int, int]) -> None:
    with pytest.raises(ArgumentOutOfRange):
        check_positions(positions, {0: 10, 1: None})


def test_a_partition_that_is_away_is_believed() -> None:
    check_positions({0: 10, 1: 99}, {0: 10, 1: None})
