"""The verifier clears an honest bus and convicts every planted bug, by the right kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polybus.testing.history import Event, History
from polybus.testing.verifier import FinalState, Verdict, verify

from . import planted_bugs, planted_lock_bugs  # noqa: F401 - importing them plants them
from .planting import PLANTED
from .workload import Workload

STEPS = 2_000
HONEST_SEEDS = range(40)
SEEDS_TO_CONVICT = 12
"""Some bugs need a crash at the right moment, which not every seed brings."""


def by_client(history: History) -> list[list[Event]]:
    """The history as it would be had each client written a file of its own."""
    files: dict[str, list[Event]] = {}
    for event in history:
        files.setdefault(event.client, []).append(event)
    return list(files.values())


@pytest.mark.parametrize("seed", HONEST_SEEDS)
def test_an_honest_bus_is_clean(seed: int) -> None:
    history, state = Workload(seed).run(STEPS)
    for histories in ([history], by_client(history)):
        verdict = verify(histories, state)
        assert verdict.clean, verdict.summary()
    assert verdict.report["consumed"] > 0
    assert verdict.report["redeliveries"] > 0


def test_the_honest_runs_leave_nothing_out() -> None:
    """A clean verdict is worth something only if the workload does everything that can go wrong."""
    total: dict[str, int] = {}
    for seed in HONEST_SEEDS[:10]:
        history, state = Workload(seed).run(STEPS)
        for name, count in verify([history], state).report.items():
            total[name] = total.get(name, 0) + count
    assert all(total.values()), total


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_bug_is_convicted(name: str) -> None:
    bus_class, kind = PLANTED[name]
    verdict = Verdict()
    for seed in range(SEEDS_TO_CONVICT):
        history, state = Workload(seed, bus_class).run(STEPS)
        verdict = verify([history], state)
        if kind in verdict.kinds():
            return
    pytest.fail(f"{name} is not found to be {kind}: {verdict.summary()}")


def test_there_are_enough_of_them() -> None:
    assert len(PLANTED) >= 24
    assert len({kind for _, kind in PLANTED.values()}) == 16


def test_the_verdict_survives_files(tmp_path: Path) -> None:
    bus_class, kind = PLANTED["LosesDeferred"]
    history, state = Workload(1, bus_class).run(STEPS)
    files = []
    for number, events in enumerate(by_client(history)):
        files.append(tmp_path / f"{number}.jsonl")
        History(events).write(files[-1])
    from_files = verify([History.read(file) for file in files], state)
    assert kind in from_files.kinds()
    assert from_files == verify(by_client(history), state)


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    first, _ = Workload(7).run(STEPS)
    second, _ = Workload(7).run(STEPS)
    other, _ = Workload(8).run(STEPS)
    assert first.to_bytes() == second.to_bytes()
    assert first.to_bytes() != other.to_bytes()


def test_no_order_of_a_hash_table_leaks_into_a_history() -> None:
    """Two processes that hash strings differently write the same bytes."""
    code = (
        "import hashlib; from tests.unit.testing.workload import Workload;"
        f"print(hashlib.sha256(Workload(3).run({STEPS})[0].to_bytes()).hexdigest())"
    )
    root = Path(__file__).parents[3]
    prints = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root / "src")}
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, check=True, text=True
        )
        prints.add(run.stdout.strip())
    assert len(prints) == 1


def test_a_verdict_does_not_depend_on_the_order_of_the_files() -> None:
    history, state = Workload(5, PLANTED["RedeliversCompleted"][0]).run(STEPS)
    files = by_client(history)
    assert _found(files, state) == _found(files[::-1], state)
    assert _found(files, state)


def _found(files: list[list[Event]], state: FinalState) -> set[tuple[str, str | None]]:
    """What nobody's view of simultaneous events can change: kinds that the sums prove."""
    sums = {"lost", "invented", "duplicated", "duplicate_accepted", "counters", "corrupted", "numbers"}
    return {(f.kind, f.message_id) for f in verify(files, state).findings if f.kind in sums}
