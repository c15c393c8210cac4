"""How a check speaks of rows, and the order it expects of a log."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.limits import CHECK_FINDINGS
from polybus.operations.findings import CheckFinding, Findings, key_text
from polybus.operations.order import LogOrder
from polybus.partition import records

PREFIX = records.partition_prefix(7, 3)
SESSION = records.session_prefix(records.log_prefix(PREFIX, records.SESSION_MESSAGES, 0), "one")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (PREFIX + records.META, "counters"),
        (records.log_prefix(PREFIX, records.LOG_META, 9), "log counters subscription 2 dead-letter"),
        (records.number_key(records.log_prefix(PREFIX, records.ACTIVE, 0), 5), "active main number 5"),
        (records.number_key(SESSION, 5), "session messages main session 'one' number 5"),
        (records.expiry_key(PREFIX, 1000, 1, 5), "expiry dead-letter number 5 at 1000"),
        (records.due_key(PREFIX, 1000, 5), "due number 5 at 1000"),
        (records.outbox_key(PREFIX, 8, 1, 5), "outbox to entity 8 partition 1 number 5"),
        (records.inbox_key(PREFIX, 8, 1), "inbox from entity 8 partition 1"),
        (PREFIX + records.DUPLICATE_IDS + b"id", "duplicate ids 'id'"),
        (PREFIX + records.DUPLICATE_TIMES + (9).to_bytes(8, "big") + b"id", "duplicate times 'id' at 9"),
        (records.number_key(PREFIX + records.BODIES, 5), "bodies number 5"),
        (PREFIX + records.STAGES + bytes(16), f"stages stage {'00' * 16}"),
        (PREFIX + records.INTENT, "intent for the catalogue"),
        (b"~x", "key 7e78"),
    ],
)
def test_keys_in_words(key: bytes, text: str) -> None:
    assert key_text(key) == text


@given(st.binary(max_size=40))
def test_any_key_has_a_text(rest: bytes) -> None:
    assert key_text(rest)
    assert key_text(PREFIX + rest)


def test_findings_are_counted_and_not_all_kept() -> None:
    findings = Findings()
    for _ in range(CHECK_FINDINGS + 5):
        findings.add(CheckFinding("store", "q", 0, "key", "problem"))
    assert (findings.count, len(findings.kept)) == (CHECK_FINDINGS + 5, CHECK_FINDINGS)


def order_of(deferred: list[tuple[int, int]], by_position: bool = False) -> LogOrder:
    order = LogOrder(0, by_position)
    order.expect(array("Q", [rank for rank, _ in deferred]), array("Q", [position for _, position in deferred]))
    return order


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5), st.integers(0, 4)), max_size=30))
def test_a_log_in_order_has_no_problems(steps: list[tuple[bool, int, int]]) -> None:
    """Numbers grow by any step, positions by at least one and at most as much."""
    rank = position = 0
    active, deferred = [], []
    for is_deferred, step, less in steps:
        rank += step
        position += max(step - less, 1)
        (deferred if is_deferred else active).append((rank, position))
    order = order_of(deferred)
    problems = [problem for row in active for problem in order.step(*row, settled=False)]
    assert problems + order.finish() == []


@pytest.mark.parametrize(
    ("deferred", "active"),
    [
        ([], [(1, 1), (2, 1)]),
        ([], [(1, 2)]),
        ([], [(1, 1), (3, 4)]),
        ([], [(1, 0)]),
        ([(1, 1)], [(1, 1)]),
        ([(2, 1)], [(1, 1)]),
        ([(1, 1), (2, 1)], []),
    ],
)
def test_a_log_out_of_order_has_one(deferred: list[tuple[int, int]], active: list[tuple[int, int]]) -> None:
    order = order_of(deferred)
    problems = [problem for row in active for problem in order.step(*row, settled=False)]
    assert len(problems + order.finish()) == 1


def test_a_deferred_message_whose_row_a_cursor_keeps_is_in_order() -> None:
    order = order_of([(1, 1)])
    assert order.step(1, 1, settled=True) + order.step(2, 2, settled=False) + order.finish() == []


def test_dead_letters_are_ordered_by_position() -> None:
    order = order_of([(9, 2), (4, 1)], by_position=True)
    assert order.step(3, 3, settled=False) + order.finish() == []
    order = order_of([(9, 3)], by_position=True)
    assert len(order.step(3, 3, settled=False)) == 1
