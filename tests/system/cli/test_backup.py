"""A backup is a data folder: a bus started on it has everything, and the bus it was made of keeps its own."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from polybus.errors import ConfigError, StoreError, StoreFenced
from polybus.operations.backup import backup
from polybus.operations.check import catalogue_url, check, store_urls
from polybus.store.rocks import RocksStore
from tests.system.cli.small_bus import SmallBus


def make(data: Path, target: Path) -> None:
    backup(catalogue_url(data), store_urls(data), target)


def counts(data: Path) -> dict[str, tuple[int, ...]]:
    report = check(catalogue_url(data), store_urls(data))
    assert report.findings == []
    return {
        entity.name: (entity.active, entity.deferred, entity.scheduled, entity.dead_letter, entity.transfer)
        for entity in report.entities
    }


async def drain(data: Path) -> list[bytes]:
    async with SmallBus(data) as bus:
        deliveries = await bus.receive("orders", 13)
        bodies = [delivery.message.raw for delivery in deliveries]
        for delivery in deliveries:
            await bus.complete(delivery)
        return sorted(bodies)


def test_a_bus_on_the_copy_has_every_message(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    make(data, copy)
    assert counts(copy) == counts(data)
    restored = asyncio.run(drain(copy))
    assert len(restored) == 13
    assert counts(copy)["orders"][0] == 0
    assert counts(data)["orders"][0] == 13
    assert asyncio.run(drain(data)) == restored


def test_a_copy_is_not_changed_by_what_happens_later(data: Path, tmp_path: Path) -> None:
    before = counts(data)
    make(data, tmp_path / "copy")
    asyncio.run(drain(data))
    assert counts(tmp_path / "copy") == before


def test_a_running_bus_is_not_copied(data: Path, tmp_path: Path) -> None:
    with closing(RocksStore(data / "catalogue")), pytest.raises(StoreFenced):
        make(data, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_nothing_is_written_over(data: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        make(data, tmp_path / "copy")


def test_a_store_that_holds_messages_must_be_given(data: Path, tmp_path: Path) -> None:
    shutil.rmtree(data / "stores" / "1")
    with pytest.raises(ConfigError, match="was not given"):
        make(data, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_store_is_given_once(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "stores" / "1", data / "stores" / "2")
    with pytest.raises(ConfigError, match="given twice"):
        make(data, tmp_path / "copy")


def test_an_empty_folder_is_not_made_a_bus(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="no messaging store"):
        make(tmp_path / "empty", tmp_path / "copy")
    assert list((tmp_path / "empty").iterdir()) == []
