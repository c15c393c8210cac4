"""Dead letters that go back: which edits SQL's answers make, how many go at once, what a refusal leads to."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ArgumentError, ConfigError, EntityNotFound, ServerBusy, Unauthorized
from polybus.limits import MOVE_NUMBERS, REDRIVE_REQUEST_BYTES, REDRIVE_SILENCES
from polybus.pipelines.declaration import parse
from polybus.pipelines.letters import check_columns
from polybus.pipelines.redrive import RedriveKind, planned, prune, write_outcomes
from polybus.pipelines.repairs import Repaired, letter_of
from polybus.pipelines.resubmitting import Letter, Resubmission, ResubmitOutcome, SendRate, batches

HEAD = """
bus: {connectionStringEnv: BUS}
checkpoints: state
pipelines:
  - {name: back, kind: redrive, from: orders/$DeadLetterQueue, %s}
"""


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self, ends_at: float = 1e9) -> None:
        self.seconds = 0.0
        self.ends_at = ends_at

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> bool:
        self.seconds += seconds
        return self.seconds >= self.ends_at


class DeadLetters:
    """A dead-letter queue as the bus keeps it: what is moved is there no more, whoever hears of it."""

    def __init__(self, clock: Clock, *numbers: int) -> None:
        self.clock = clock
        self.there = set(numbers)
        self.copies: list[tuple[int, str]] = []
        self.requests: list[tuple[float, dict[str, Any]]] = []
        self.locked: set[int] = set()
        self.poisoned: set[int] = set()
        self.away: set[int] = set()
        """Partitions whose store is away."""

    def move(self, body: dict[str, Any]) -> dict[str, list[int]]:
        self.requests.append((self.clock.seconds, body))
        told: dict[str, list[int]] = {"moved": [], "missing": [], "locked": [], "unreachable": []}
        failure: Exception | None = None
        for partition in dict.fromkeys(number >> 48 for number in body["numbers"]):
            own = [number for number in body["numbers"] if number >> 48 == partition]
            if partition in self.away:
                failure = ServerBusy("its store is away")
            elif self.poisoned & set(own):
                failure = ArgumentError("one of them cannot be taken")
            else:
                self._move(own, body["to"], told)
                continue
            told["unreachable"] += own
        if failure is not None and not told["moved"]:
            raise failure
        return told

    def _move(self, numbers: list[int], to: str, told: dict[str, list[int]]) -> None:
        for number in numbers:
            if number in self.locked:
                told["locked"].append(number)
            elif number in self.there:
                self.there.remove(number)
                self.copies.append((number, to))
                told["moved"].append(number)
            else:
                told["missing"].append(number)


def resubmit(bus: DeadLetters, letters: list[Letter], rate: float | None = None) -> dict[int, tuple[str, str | None]]:
    pace = SendRate(rate, bus.clock.now, bus.clock.wait)
    return {each.letter.number: (each.what, each.detail) for each in Resubmission(bus, pace).run(iter(letters))}


def some(*numbers: int, to: str = "orders") -> list[Letter]:
    return [Letter(number, to) for number in numbers]


# Moving


def test_each_letter_gets_the_outcome_that_the_bus_tells() -> None:
    bus = DeadLetters(Clock(), 1, 2, 3)
    bus.locked = {2}
    assert resubmit(bus, some(1, 2, 9)) == {1: ("moved", None), 2: ("locked", None), 9: ("missing", None)}
    assert (bus.there, bus.copies) == ({2, 3}, [(1, "orders")])


def test_a_run_that_is_cut_off_anywhere_and_repeated_loses_and_doubles_nothing() -> None:
    numbers = list(range(1, 51))
    for cut in range(1, 9):
        clock = Clock(ends_at=float(cut))
        bus = DeadLetters(clock, *numbers)
        resubmit(bus, some(*numbers), rate=5)
        assert 0 < len(bus.copies) < len(numbers)
        clock.ends_at = 1e9
        resubmit(bus, some(*sorted(bus.there)), rate=5)
        assert sorted(number for number, _ in bus.copies) == numbers
        assert bus.there == set()


def test_an_answer_that_is_lost_after_the_move_costs_nothing_but_the_answer() -> None:
    class Forgetful(DeadLetters):
        def move(self, body: dict[str, Any]) -> dict[str, list[int]]:
            super().move(body)
            return super().move(body)

    bus = Forgetful(Clock(), 1, 2)
    assert {what for what, _ in resubmit(bus, some(1, 2)).values()} == {"missing"}
    assert bus.copies == [(1, "orders"), (2, "orders")]


def test_one_letter_that_is_refused_holds_up_no_other() -> None:
    numbers = list(range(1, 40))
    bus = DeadLetters(Clock(), *numbers)
    bus.poisoned = {7, 23}
    outcomes = resubmit(bus, some(*numbers))
    assert bus.there == {7, 23}
    assert outcomes[7] == ("refused", "one of them cannot be taken")
    assert {what for number, (what, _) in outcomes.items() if number not in (7, 23)} == {"moved"}


def test_also_where_letters_of_other_partitions_were_moved_by_the_same_request() -> None:
    there = [1, 2, 3 << 48 | 1, 3 << 48 | 2]
    bus = DeadLetters(Clock(), *there)
    bus.poisoned = {3 << 48 | 1}
    outcomes = resubmit(bus, some(*there))
    assert {number for number, (what, _) in outcomes.items() if what == "moved"} == set(there) - bus.poisoned
    assert outcomes[3 << 48 | 1][0] == "refused"


def test_a_store_that_is_away_keeps_its_letters_and_the_others_go() -> None:
    there = [1, 3 << 48 | 1]
    bus = DeadLetters(Clock(), *there)
    bus.away = {3}
    assert resubmit(bus, some(*there)) == {1: ("moved", None), 3 << 48 | 1: ("unreachable", "its store is away")}


def test_a_bus_that_stays_silent_ends_the_run() -> None:
    bus = DeadLetters(Clock(), *range(1, 10))
    bus.away = {0}
    with pytest.raises(ServerBusy, match="away"):
        resubmit(bus, some(*range(1, 10)), rate=1)
    assert len(bus.requests) == REDRIVE_SILENCES


@pytest.mark.parametrize(("error", "stays"), [(EntityNotFound("gone"), True), (Unauthorized("no"), False)])
def test_a_destination_that_is_gone_is_asked_once_and_a_wrong_key_ends_the_run(error: Exception, stays: bool) -> None:
    class Refusing(DeadLetters):
        def move(self, body: dict[str, Any]) -> dict[str, list[int]]:
            self.requests.append((0.0, body))
            raise error

    bus = Refusing(Clock(), 1, 2)
    if stays:
        assert resubmit(bus, some(1, 2)) == {1: ("refused", "gone"), 2: ("refused", "gone")}
    else:
        with pytest.raises(Unauthorized):
            resubmit(bus, some(1, 2))
    assert len(bus.requests) == 1


def test_a_letter_with_a_fault_is_not_asked_for() -> None:
    bus = DeadLetters(Clock(), 1, 2)
    letters = [Letter(1, "orders", fault="no body"), Letter(2, "orders")]
    assert resubmit(bus, letters) == {1: ("refused", "no body"), 2: ("moved", None)}
    assert [body["numbers"] for _, body in bus.requests] == [[2]]


# The pace


@given(rate=st.floats(0.2, 3000), count=st.integers(1, 200))
def test_never_do_more_letters_go_than_the_rate_allows(rate: float, count: int) -> None:
    clock = Clock()
    bus = DeadLetters(clock, *range(1, count + 1))
    resubmit(bus, some(*range(1, count + 1)), rate=rate)
    burst = max(min(int(rate), MOVE_NUMBERS), 1)
    gone = 0
    for at, body in bus.requests:
        gone += len(body["numbers"])
        assert gone <= burst + rate * at + 1e-6
        assert len(body["numbers"]) <= burst
    assert gone == count
    # Nor does it take longer than it must.
    assert clock.seconds <= count / rate


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()
    bus = DeadLetters(clock, *range(1, 2_501))
    resubmit(bus, some(*range(1, 2_501)))
    assert [len(body["numbers"]) for _, body in bus.requests] == [1000, 1000, 500]
    assert clock.seconds == 0


def test_what_is_to_end_ends_between_two_requests() -> None:
    clock = Clock(ends_at=3.0)
    bus = DeadLetters(clock, *range(1, 101))
    outcomes = resubmit(bus, some(*range(1, 101)), rate=10)
    assert set(outcomes) == {number for number, _ in bus.copies} == set(range(1, 31))


# Batches


def test_a_batch_has_one_destination_and_keeps_the_order_of_its_letters() -> None:
    letters = [Letter(number, "ab"[number % 2]) for number in range(1, 8)]
    assert [[(each.to, each.number) for each in batch] for batch in batches(letters, 4)] == [
        [("a", 2), ("a", 4)],
        [("b", 1), ("b", 3)],
        [("a", 6)],
        [("b", 5), ("b", 7)],
    ]


def test_large_edits_make_small_requests_and_one_that_is_too_large_goes_alone() -> None:
    def sized(number: int, size: int) -> Letter:
        return Letter(number, "orders", {"body_base64": "x" * size})

    third = REDRIVE_REQUEST_BYTES // 3
    letters = [sized(1, third), sized(2, third), sized(3, third), sized(4, 2 * REDRIVE_REQUEST_BYTES), sized(5, 10)]
    assert [[each.number for each in batch] for batch in batches(letters, 100)] == [[1, 2], [3], [4], [5]]


def test_the_request_holds_the_edits_of_those_that_have_one() -> None:
    bus = DeadLetters(Clock(), 1, 2)
    resubmit(bus, [Letter(1, "orders", {"subject": "s"}), Letter(2, "orders")])
    assert bus.requests[0][1] == {"numbers": [1, 2], "to": "orders", "edits": {"1": {"subject": "s"}}}


# Edits

MARKS = {"DeadLetterReason": None, "DeadLetterErrorDescription": None}


def repaired(new: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Repaired:
    return Repaired(**{"number": 5, "destination": "orders", "redrives": None, "old": old or {}, "new": new, **more})


def test_what_sql_leaves_as_it_was_is_not_edited() -> None:
    same = {"body": bytearray(b"b"), "subject": "s", "to": None, "properties": {"a": "1"}}
    assert letter_of(repaired({**same, "body": "b"}, same)) == Letter(5, "orders", {"properties": MARKS})


def test_what_sql_changes_is_edited_and_nothing_else() -> None:
    old = {"body": b"b", "subject": "s", "session_id": "x", "properties": {"a": "1", "b": "2", "c": "3"}}
    new = {"body": b"\xff\x00", "subject": None, "session_id": "x", "properties": {"a": "1", "b": "5", "d": "4"}}
    assert letter_of(repaired(new, old)).edit == {
        "body_base64": base64.b64encode(b"\xff\x00").decode(),
        "subject": None,
        "properties": {**MARKS, "b": "5", "c": None, "d": "4"},
    }


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (6, 6),
        (True, True),
        (1.5, 1.5),
        ("text", "text"),
        (None, None),
        (Decimal("7"), 7),
        (Decimal("7.25"), 7.25),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
    ],
)
def test_a_property_has_the_type_of_its_expression(value: Any, sent: Any) -> None:
    edit = letter_of(repaired({"properties.tenant": value})).edit
    assert edit == {"properties": {**MARKS, "tenant": sent}}
    assert type(edit["properties"]["tenant"]) is type(sent)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ({"body": None}, "body is null"),
        ({"subject": 5}, "must be a string"),
        ({"properties.a": [1]}, "cannot be a list"),
    ],
)
def test_what_cannot_be_a_message_is_a_fault_of_that_letter(new: dict[str, Any], why: str) -> None:
    letter = letter_of(repaired(new, {"body": b"x"}))
    assert letter.fault is not None
    assert why in letter.fault


def test_a_letter_without_an_origin_stays() -> None:
    assert "origin" in (letter_of(repaired({}, destination=None)).fault or "")


def test_redrives_are_counted_where_somebody_counts() -> None:
    assert letter_of(repaired({}, redrives=2)).edit == {"properties": {**MARKS, "x-redrive-count": 3}}


@pytest.mark.parametrize(
    "columns",
    [
        ["body"],
        ["sequence_number", "other"],
        ["sequence_number", "body", "body"],
        ["sequence_number", "partition_key"],
    ],
)
def test_a_query_must_give_the_number_and_only_what_can_be_repaired(columns: list[str]) -> None:
    with pytest.raises(ConfigError, match="must give sequence_number"):
        check_columns(columns)


def test_the_columns_of_a_query_that_repair_something() -> None:
    assert check_columns(["body", "sequence_number", "destination", "properties"]) == ["body", "properties"]


# What is written down


def test_outcomes_are_written_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "run=1" / "outcomes.parquet"
    told = [ResubmitOutcome(Letter(1, "a"), "moved"), ResubmitOutcome(Letter(2, "", fault="f"), "refused", "f")]
    assert write_outcomes(path, told) == {"moved": 1, "refused": 1}
    assert pq.read_table(path, partitioning=None).to_pylist() == [
        {"sequence_number": 1, "destination": "a", "outcome": "moved", "detail": None},
        {"sequence_number": 2, "destination": None, "outcome": "refused", "detail": "f"},
    ]


def test_outcomes_of_a_run_that_fails_are_written_as_far_as_it_came(tmp_path: Path) -> None:
    def outcomes() -> Iterator[ResubmitOutcome]:
        for number in range(2_500):
            yield ResubmitOutcome(Letter(number, "a"), "moved")
        raise ServerBusy("away")

    with pytest.raises(ServerBusy):
        write_outcomes(tmp_path / "outcomes.parquet", outcomes())
    assert pq.read_table(tmp_path / "outcomes.parquet").num_rows >= 2_000
    assert [path.name for path in tmp_path.iterdir()] == ["outcomes.parquet"]


def test_a_dry_run_plans_and_tells_faults() -> None:
    told = list(planned([Letter(1, "a"), Letter(2, "a", fault="f")]))
    assert [(each.what, each.detail) for each in told] == [("planned", None), ("refused", "f")]


def test_old_runs_are_removed(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"run=2026010{number}").mkdir()
    (tmp_path / "other").mkdir()
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "run=20260103", "run=20260104"]


# The declaration


def made(text: str, folder: Path) -> RedriveKind:
    (kind,) = parse(HEAD % text, "pipelines.yml", folder).pipelines
    assert isinstance(kind, RedriveKind)
    return kind


def test_without_a_word_it_is_a_dry_run(tmp_path: Path) -> None:
    kind = made("where: delivery_count > 1", tmp_path)
    assert "would send" in kind.describe()
    assert "mode: resubmit" in kind.check()[0]
    assert kind.every_ms is None


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    text = (
        "to: topic/Subscriptions/one, where: a, set: {body: b, properties.tenant: '6'}, rate: 500/s,"
        " mode: resubmit, table: letters, every: 1m, maxRedrives: 3, keepRuns: 5"
    )
    kind = made(text, tmp_path)
    assert [each.entity for each in kind.entities()] == ["orders/$DeadLetterQueue", "topic/Subscriptions/one"]
    assert kind.describe() == "sends dead letters of orders/$DeadLetterQueue to topic/Subscriptions/one"
    assert (kind.every_ms, kind.check()) == (60_000, [])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("mode: maybe", "mode: 'maybe' is not allowed; allowed: dryRun, resubmit"),
        ("set: {partition: '1'}", "set.partition"),
        ("set: {properties.: '1'}", "set.properties."),
        ("set: {body: 5}", "set.body: 5 is not allowed"),
        ("rate: fast", "rate: 'fast' is not allowed"),
        ("sql: select 1, where: a", "either sql, or where and set"),
        ("maxRedrives: 0", "maxRedrives: 0"),
        ("mood: good", "mood"),
    ],
)
def test_a_fault_says_where_it_is(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(text, tmp_path)
    assert where in str(caught.value)
    assert "pipelines.yml: pipelines[0]" in str(caught.value)
