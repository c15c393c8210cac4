"""Service levels: windows, promises, and events that are read once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from polybus.errors import ConfigError
from polybus.limits import EVENTS_KEPT
from polybus.pipelines import events
from polybus.pipelines.declaration import parse
from polybus.pipelines.events import Journal, advanced, load_journal, save_journal
from polybus.pipelines.sla import SlaKind
from polybus.pipelines.sla_page import Sla, SlaWindow, Targets, filled

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


# Windows


def test_windows_in_which_nothing_happened_are_windows_too() -> None:
    windows = [SlaWindow(NOON, completed=1), SlaWindow(NOON + 3 * MINUTE, completed=2)]
    assert [(window.start, window.completed) for window in filled(windows, 60_000, 100)] == [
        (NOON, 1),
        (NOON + MINUTE, 0),
        (NOON + 2 * MINUTE, 0),
        (NOON + 3 * MINUTE, 2),
    ]
    assert filled([], 60_000, 100) == []


def test_of_many_windows_the_newest_are_shown() -> None:
    windows = [SlaWindow(NOON), SlaWindow(NOON + 100_000 * MINUTE, completed=2)]
    shown = filled(windows, 60_000, 10)
    assert len(shown) == 10
    assert shown[-1].completed == 2


def test_the_dead_letter_rate_is_of_what_ended() -> None:
    assert SlaWindow(NOON, enqueued=100, completed=15, dead=5).dead_letter_rate == 0.25
    assert SlaWindow(NOON, enqueued=100).dead_letter_rate is None


@pytest.mark.parametrize(
    ("window", "broken"),
    [
        (SlaWindow(NOON, completed=99, dead=1, latency_ms={"p95": 500, "max": 900}), []),
        (SlaWindow(NOON, completed=98, dead=2, latency_ms={"p95": 501, "max": 900}), ["p95", "dead letters"]),
        (SlaWindow(NOON), []),
    ],
)
def test_a_promise_is_broken_by_more_than_it_allows(window: SlaWindow, broken: list[str]) -> None:
    assert window.broken(Targets({"p95": 500, "max": 1000}, 0.01)) == broken
    assert window.broken(Targets()) == []


def test_the_page_has_every_number_beside_its_plot() -> None:
    windows = [
        SlaWindow(NOON, 10, 8, 2, 1, 3, {"p50": 10, "p95": 20, "p99": 30, "max": 45.5}, 1.2),
        SlaWindow(NOON + MINUTE, enqueued=4),
    ]
    sla = Sla("orders", "just now", windows, [(1, 6), (2, 2)], [("<why>", 2)], Targets({"p50": 5}, 0.5))
    html = sla.html()
    assert html.count("<svg") == html.count("<table") == 4
    for text in (
        "12:00",
        "12:01",
        "45.5",
        "&lt;why&gt;",
        "p50 at most 5ms",
        "1 of 2 windows broke",
        "at most 50.00%",
    ):
        assert text in html
    assert sla.broken == 1
    later = Sla("orders", "now", [*windows, SlaWindow(NOON + timedelta(days=1, seconds=3))], [], [], Targets())
    assert "01-31 12:00:00" in later.html()
    assert "Promised" not in later.html()


# Events


def test_the_journal_is_found_again_and_counts_only_for_its_entity(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    assert load_journal(path, "1-1") is None
    save_journal(path, Journal("1-1", 4, {0: 10, 11: 3}))
    assert load_journal(path, "1-1") == Journal("1-1", 4, {0: 10, 11: 3})
    # The number of the run goes on: what was written stays.
    assert load_journal(path, "2-1") == Journal("2-1", 4, {})
    assert [each.name for each in tmp_path.iterdir()] == ["journal.json"]


def test_the_last_run_is_the_last_that_is_whole(tmp_path: Path) -> None:
    assert events.last_run(tmp_path / "none") == 0
    for run in (1, 11, 12):
        events.run_folder(tmp_path, run).mkdir()
    for run in (1, 11):
        (events.run_folder(tmp_path, run) / "_SUCCESS").touch()
    assert events.last_run(tmp_path) == 11


def test_a_journal_goes_on_and_tells_what_was_gone() -> None:
    journal = Journal("1-1", 4, {0: 10, 1: 5, 2: 7})
    after, lost = advanced(journal, {0: (10, 19), 1: (8, 8), 3: (100, 120)})
    assert after == Journal("1-1", 5, {0: 20, 1: 9, 2: 7, 3: 121})
    assert lost == 3
    assert (after.first(1), after.first(9)) == (9, 1)


class Bus:
    """Events of two partitions, in pages."""

    def __init__(self, counts: dict[int, int], page: int) -> None:
        self.counts = counts
        self.page = page
        self.closed = False

    def events(self, partition: int, first: int, limit: int) -> dict[str, Any]:
        last = min(self.counts[partition], first + min(limit, self.page) - 1)
        found = [self._event(number) for number in range(first, last + 1)]
        return {"enabled": True, "events": found, "next": last + 1 if found else first}

    def _event(self, number: int) -> dict[str, Any]:
        return {
            "event": number,
            "sequence_number": number * 10,
            "change": "completed",
            "time": "2026-01-31T12:00:01.500Z",
            "delivery_count": 0,
            "reason": None,
            "enqueued_time": "2026-01-31T12:00:00.000Z",
        }

    def close(self) -> None:
        self.closed = True


class Place:
    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    def open(self, retry_seconds: float) -> Bus:
        return self.bus


def read(bus: Bus, *parts: tuple[int, int]) -> Any:
    wanted = pa.RecordBatch.from_pydict(
        {"partition": [each[0] for each in parts], "first": [each[1] for each in parts]}
    )
    return pa.Table.from_batches(events.read_batches(Place(bus), "1-1", iter([wanted])))  # type: ignore[arg-type]


def test_all_events_from_a_place_on_are_read_page_by_page() -> None:
    bus = Bus({0: 25, 3: 4}, page=10)
    found = read(bus, (0, 4), (3, 1))
    assert [(row["partition"], row["event"]) for row in found.to_pylist()] == [
        *((0, number) for number in range(4, 26)),
        *((3, number) for number in range(1, 5)),
    ]
    first = found.to_pylist()[0]
    assert (first["time"] - first["enqueued_time"], first["sequence_number"]) == (timedelta(seconds=1.5), 40)
    assert str(found.schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert set(found.column("entity_id").to_pylist()) == {"1-1"}
    assert bus.closed


def test_columns_are_those_that_spark_was_told() -> None:
    told = [part.split()[0] for part in events.SCHEMA.split(",")]
    assert read(Bus({0: 1}, page=1), (0, 1)).schema.names == told


def test_a_bus_that_writes_faster_than_events_are_read_is_left_at_some_point() -> None:
    bus = Bus({0: 10 * EVENTS_KEPT}, page=EVENTS_KEPT // 2)
    bus._event = lambda number: {"event": number}  # type: ignore[method-assign]
    pages = list(events._pages(bus, 0, 1))
    assert sum(len(page) for page in pages) <= EVENTS_KEPT + EVENTS_KEPT // 2
    assert len(pages) > 1


# The declaration

HEAD = """
bus: {connectionStringEnv: BUS}
checkpoints: state
pipelines:
  - {name: levels, kind: sla, from: orders, %s}
"""


def test_a_declaration(tmp_path: Path) -> None:
    text = "to: out, window: 1m, targets: {p95: 2s, deadLetterRate: 0.01}, enable: true"
    (kind,) = parse(HEAD % text, "p.yml", tmp_path).pipelines
    assert isinstance(kind, SlaKind)
    assert kind.describe() == f"service levels of orders, windows of 1m, to {tmp_path / 'out'}"
    assert (kind.every_ms, [each.entity for each in kind.entities()]) == (60_000, ["orders"])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("window: 1m", "to: is missing"),
        ("to: out, targets: {p90: 1s}", "targets.p90"),
        ("to: out, targets: {deadLetterRate: 2}", "targets.deadLetterRate: 2 is not allowed"),
        ("to: out, window: 1h, keep: 1m", "keep: '1m' is not allowed"),
        ("to: out, enable: perhaps", "enable"),
    ],
)
def test_a_fault_says_where_it_is(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(HEAD % text, "p.yml", tmp_path)
    assert where in str(caught.value)
