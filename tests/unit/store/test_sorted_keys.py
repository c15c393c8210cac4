from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from polybus.store import sorted_keys
from polybus.store.sorted_keys import SortedKeys

END = b"\xff" * 9


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_keys_come_back_in_order() -> None:
    keys = SortedKeys()
    for number in (5, 1, 3, 2, 4):
        keys.add(key(number))
    assert list(keys.walk(b"", END)) == [key(number) for number in (1, 2, 3, 4, 5)]
    assert list(keys.walk(key(2), key(4))) == [key(2), key(3)]


def test_a_removed_key_can_come_back() -> None:
    keys = SortedKeys()
    keys.add(key(1))
    assert list(keys.walk(b"", END)) == [key(1)]
    keys.remove(key(1))
    assert list(keys.walk(b"", END)) == []
    keys.add(key(1))
    assert list(keys.walk(b"", END)) == [key(1)]


def test_a_queue_that_moves_on_keeps_no_trace_of_what_it_was() -> None:
    keys = SortedKeys()
    for number in range(50_000):
        keys.add(key(number))
        if number >= 100:
            keys.remove(key(number - 100))
        if number % 500 == 0:
            list(keys.walk(key(max(number - 100, 0)), END))
    assert list(keys.walk(b"", END)) == [key(number) for number in range(49_900, 50_000)]
    held = sum(len(run) for run in keys._runs)
    assert held + len(keys._removed) < 4 * sorted_keys._RUN


def test_a_walk_from_an_old_place_clears_its_way() -> None:
    keys = SortedKeys()
    for number in range(5_000):
        keys.add(key(number))
    assert len(list(keys.walk(b"", END))) == 5_000
    for number in range(1_000):
        keys.remove(key(number))
    assert next(keys.walk(b"", END)) == key(1_000)
    assert len(keys._removed) < sorted_keys._SKIPPED


def test_middle_inserts_keep_runs_short() -> None:
    keys = SortedKeys()
    for start in range(7):
        for number in range(start, 14_000, 7):
            keys.add(key(number))
        list(keys.walk(b"", b"\0"))
    assert list(keys.walk(b"", END)) == [key(number) for number in range(14_000)]
    assert max(len(run) for run in keys._runs) <= 2 * sorted_keys._RUN


class AgainstASet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.keys = SortedKeys()
        self.model: set[bytes] = set()

    @rule(first=st.integers(0, 3_000), count=st.integers(1, 400), step=st.integers(1, 7))
    def add(self, first: int, count: int, step: int) -> None:
        for number in range(first, first + count * step, step):
            if key(number) not in self.model:
                self.model.add(key(number))
                self.keys.add(key(number))

    @rule(first=st.integers(0, 3_000), count=st.integers(1, 400), step=st.integers(1, 7))
    def remove(self, first: int, count: int, step: int) -> None:
        for number in range(first, first + count * step, step):
            if key(number) in self.model:
                self.model.remove(key(number))
                self.keys.remove(key(number))

    @rule(start=st.integers(0, 5_000), length=st.integers(0, 2_000))
    def take(self, start: int, length: int) -> None:
        gone = self.within(start, start + length)
        assert self.keys.take(key(start), key(start + length)) == gone
        self.model.difference_update(gone)

    @rule(start=st.integers(0, 5_000), length=st.integers(0, 2_000))
    def walk(self, start: int, length: int) -> None:
        assert list(self.keys.walk(key(start), key(start + length))) == self.within(start, start + length)

    @rule(start=st.integers(0, 5_000))
    def peek(self, start: int) -> None:
        expected = self.within(start, 100_000)
        assert next(self.keys.walk(key(start), END), None) == (expected[0] if expected else None)

    @invariant()
    def held_counts_the_runs(self) -> None:
        assert self.keys._held == sum(len(run) for run in self.keys._runs)
        assert self.keys._lasts == [run[-1] for run in self.keys._runs]

    def within(self, start: int, end: int) -> list[bytes]:
        return sorted(each for each in self.model if key(start) <= each < key(end))


TestAgainstASet = AgainstASet.TestCase
TestAgainstASet.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.binary(max_size=4), unique=True))
def test_any_bytes_sort_as_bytes(all_keys: list[bytes]) -> None:
    keys = SortedKeys()
    for each in all_keys:
        keys.add(each)
    assert list(keys.walk(b"", END)) == sorted(all_keys)
