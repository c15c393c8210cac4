"""What `--workers` may be, and how stores are dealt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polybus.errors import ConfigError
from polybus.node import NodeOptions
from polybus.workers.spec import WorkerSpec
from polybus.workers.supervisor import told_apart, worker_count


@pytest.mark.parametrize("text", ["0", "-1", "+2", "2.0", "two", "", "257", "1e1", "٣"])
def test_what_is_no_number_of_workers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--workers is a number from 1 to 256, or auto"):
        worker_count(text)


def test_auto_is_the_cores_that_the_process_may_use() -> None:
    assert worker_count("auto") == len(os.sched_getaffinity(0))
    assert [worker_count(text) for text in ("1", "2", "256")] == [1, 2, 256]


@pytest.mark.parametrize(("workers", "owners"), [(2, ["0", "1", "0"]), (3, ["0", "1", "2"]), (5, ["0", "1", "2"])])
def test_stores_are_dealt_in_turn(workers: int, owners: list[str]) -> None:
    options = NodeOptions(data=Path("data"), stores=["memory:a", "memory:b", "memory:c"])
    spec = WorkerSpec(options, 0, workers, Path("links"), {})
    assert list(spec.owners().values()) == [f"worker-{owner}" for owner in owners]


def test_stores_in_memory_get_addresses_of_their_own() -> None:
    assert told_apart(["memory:", "rocksdb:x", "memory:"]) == ["memory:0", "rocksdb:x", "memory:2"]
    assert told_apart(["memory:", "memory:other"]) == ["memory:", "memory:other"]
