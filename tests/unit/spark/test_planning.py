"""How far a batch goes and who reads what, for any backlog."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from polybus.spark.offsets import Offset
from polybus.spark.planning import (
    PartitionEnd,
    Range,
    count,
    grouped,
    heads,
    levelled,
    limited,
    ranges,
    rows_for_bytes,
    split,
)

starts = st.dictionaries(st.integers(0, 31), st.integers(0, 1_000), max_size=16)
backlogs = st.dictionaries(st.integers(0, 31), st.integers(0, 1_000), max_size=16)
some_ranges = st.lists(
    st.tuples(st.integers(0, 31), st.integers(1, 500), st.integers(0, 500)),
    unique_by=lambda each: each[0],
    max_size=16,
).map(lambda found: [Range(index, first, first + more) for index, first, more in found])


def _ends(start: dict[int, int], backlog: dict[int, int]) -> dict[int, int]:
    return {index: start.get(index, 0) + backlog.get(index, 0) for index in {**start, **backlog}}


@given(starts, backlogs, st.integers(1, 2_000))
def test_a_limit_is_kept_and_nobody_starves(start: dict[int, int], backlog: dict[int, int], most: int) -> None:
    target = _ends(start, backlog)
    reached = limited(start, target, most)
    taken = {index: reached[index] - start.get(index, 0) for index in target}
    waiting = [index for index in target if backlog.get(index, 0)]
    assert sum(taken.values()) <= max(most, len(waiting))
    assert sum(taken.values()) >= min(most, sum(backlog.values()))
    assert all(taken[index] >= 1 for index in waiting)
    assert all(reached[index] <= target[index] for index in target)


@given(starts, backlogs, st.integers(1, 50))
def test_batches_reach_the_target_and_stay_there(start: dict[int, int], backlog: dict[int, int], most: int) -> None:
    target = _ends(start, backlog)
    at, steps = dict(start), 0
    while at != target and steps <= sum(backlog.values()):
        at, steps = limited(at, target, most), steps + 1
    assert at == target
    assert limited(at, target, most) == target


def test_a_partition_that_is_out_keeps_its_offset() -> None:
    start = Offset("e", {0: 5, 1: 7})
    ends = [PartitionEnd(0, 1, 9), PartitionEnd(1, 1, 0, available=False), PartitionEnd(2, 1, 0, available=False)]
    assert heads(start, ends) == {0: 9, 1: 7, 2: 0}


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert heads(Offset("e", {0: 5}), [PartitionEnd(0, 1, 5), PartitionEnd(1, 1, 3)]) == {0: 5, 1: 3}
    assert ranges({0: 5}, {0: 5, 1: 3}) == [Range(1, 1, 3)]


def test_an_end_behind_the_start_gives_nothing() -> None:
    assert limited({0: 10}, {0: 4}, None) == {0: 10}
    assert ranges({0: 10}, {0: 4}) == []


@given(some_ranges, st.integers(1, 40))
def test_groups_hold_every_range_once_and_are_no_more_than_asked(found: list[Range], tasks: int) -> None:
    groups = grouped(found, tasks)
    assert len(groups) == min(tasks, len(found))
    assert sorted(each for group in groups for each in group) == sorted(found) if groups else not found
    assert all(groups)


@given(some_ranges, st.integers(1, 8))
def test_groups_are_even(found: list[Range], tasks: int) -> None:
    loads = [sum(each.count for each in group) for group in grouped(found, tasks)]
    if loads:
        assert max(loads) - min(loads) <= max(each.count for each in found)


@given(some_ranges, st.integers(0, 60))
def test_splitting_loses_nothing(found: list[Range], pieces: int) -> None:
    cut = split(found, pieces)
    covered = [(each.partition, at) for each in cut for at in range(each.first, each.last + 1)]
    wanted = [(each.partition, at) for each in found for at in range(each.first, each.last + 1)]
    assert sorted(covered) == sorted(wanted)
    assert len(cut) >= min(pieces, len(wanted))


def test_bytes_become_rows_by_the_average_of_who_waits() -> None:
    ends = [PartitionEnd(0, 1, 100, average_bytes=1_000.0), PartitionEnd(1, 1, 100, average_bytes=9_999_999.0)]
    assert rows_for_bytes(10_000, {0: 0, 1: 100}, {0: 100, 1: 100}, ends) == 10
    assert rows_for_bytes(1_000_000, {0: 0, 1: 100}, {0: 100, 1: 100}, ends) == 100
    assert rows_for_bytes(1, {0: 0, 1: 100}, {0: 100, 1: 100}, ends) == 1


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=16), st.integers(1, 8))
def test_one_hot_partition_keeps_every_task_busy(counts: list[int], tasks: int) -> None:
    found = [Range(index, 1, rows) for index, rows in enumerate(counts) if rows]
    cut = levelled(found, tasks)
    assert count(cut) == count(found)
    for one in found:
        pieces = [each for each in cut if each.partition == one.partition]
        assert (pieces[0].first, pieces[-1].last) == (one.first, one.last)
        assert all(after.first == before.last + 1 for before, after in pairwise(pieces))
    loads = [count(group) for group in grouped(cut, tasks)]
    share = max(-(-count(found) // tasks), 1_000)
    assert all(load <= 2 * share for load in loads)


def test_a_partition_with_nine_tenths_of_all_messages_leaves_no_task_idle() -> None:
    found = [Range(0, 1, 90_000), *(Range(index, 1, 667) for index in range(1, 16))]
    loads = [count(group) for group in grouped(levelled(found, 4), 4)]
    assert len(loads) == 4
    assert min(loads) >= 0.8 * sum(loads) / 4
