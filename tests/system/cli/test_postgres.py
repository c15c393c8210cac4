"""Stores in PostgreSQL are looked at and copied as folders are, without displacing who owns them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from polybus.errors import StoreError
from polybus.operations.backup import backup
from polybus.operations.check import catalogue_url, check, store_urls
from polybus.partition import records
from polybus.rows import Batch
from polybus.store.postgres import PostgresStore
from tests.support.postgres import PostgresServer, postgres_server
from tests.system.cli.small_bus import fill


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def urls(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A catalogue and two messaging stores that a bus has filled."""
    urls = [server.url("catalogue"), server.url("one"), server.url("two")]
    asyncio.run(fill(tmp_path_factory.mktemp("unused"), urls[1:], urls[0]))
    return urls


def test_a_store_that_was_filled_is_clean_and_its_owner_stays(urls: list[str]) -> None:
    with closing(PostgresStore(urls[1])) as owner:
        report = check(urls[0], urls[1:])
        assert report.findings == []
        assert report.rows > 200
        owner.commit(Batch())


def test_a_copy_of_databases_is_a_data_folder(urls: list[str], tmp_path: Path) -> None:
    backup(urls[0], urls[1:], tmp_path / "copy")
    copied = check(catalogue_url(tmp_path / "copy"), store_urls(tmp_path / "copy"))
    assert copied.findings == []
    assert copied.entities == check(urls[0], urls[1:]).entities


def test_damage_in_a_database_is_found(urls: list[str]) -> None:
    with closing(PostgresStore(urls[2])) as store:
        rows = store.scan(b"P", b"Q", 1 << 20)
        key, value = next(row for row in rows if row[0][7:8] == records.ACTIVE)
        _put(store, key, value[:-1] + bytes([value[-1] ^ 1]))
        try:
            problems = [finding.problem for finding in check(urls[0], urls[1:]).findings]
        finally:
            _put(store, key, value)
    assert problems == ["the checksum of a message record is wrong"]


def _put(store: PostgresStore, key: bytes, value: bytes) -> None:
    batch = Batch()
    batch.put(key, value)
    store.commit(batch)


def test_a_database_without_a_store_cannot_be_looked_at(server: PostgresServer, urls: list[str]) -> None:
    with pytest.raises(StoreError):
        check(server.url("nothing"), urls[1:])
    with pytest.raises(StoreError):
        check(urls[0], [server.url("nothing")])
