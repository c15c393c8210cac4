"""Data of every format that was ever written is opened by this version; what it must not touch it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from polybus.errors import StoreVersionMismatch
from polybus.operations.check import catalogue_url, check, store_urls
from polybus.store import format as store_format
from polybus.store.base import Batch
from polybus.store.format import FORMAT_MAJOR, FORMAT_MINOR
from polybus.store.postgres import PostgresStore
from polybus.store.rocks import RocksStore
from polybus.testing.server import ServerProcess
from tests.support.postgres import postgres_server
from tests.system.cli.small_bus import SmallBus

FIXTURES = Path(__file__).parents[2] / "fixtures"
FORMATS = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("format-*.tar.xz"))
PORTS = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")


@pytest.fixture(params=FORMATS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A data folder that another version wrote."""
    with tarfile.open(FIXTURES / f"{request.param}.tar.xz") as packed:
        packed.extractall(tmp_path / "data", filter="data")
    return request.param, tmp_path / "data"


def test_the_format_of_this_version_is_among_them() -> None:
    assert f"format-{FORMAT_MAJOR}.{FORMAT_MINOR}" in FORMATS


def entities(data: Path) -> list[dict[str, object]]:
    report = check(catalogue_url(data), store_urls(data))
    assert report.findings == []
    return [dataclasses.asdict(entity) for entity in report.entities]


def test_nothing_of_it_is_missing_or_damaged(old: tuple[str, Path]) -> None:
    name, data = old
    assert entities(data) == json.loads((FIXTURES / f"{name}.json").read_text())["entities"]


async def use(data: Path) -> dict[str, list[bytes]]:
    """Receives what is active, as a bus of the same moment, settles it, and sends more."""
    found = {}
    async with SmallBus(data) as bus:
        for path, count in (("orders", 13), ("last", 1), ("news/Subscriptions/red", 3)):
            deliveries = await bus.receive(path, count)
            found[path] = sorted(delivery.message.raw for delivery in deliveries)
            for delivery in deliveries:
                await bus.complete(delivery)
        deliveries = await bus.receive_session("talks", "s0", 5)
        found["talks"] = [delivery.message.raw for delivery in deliveries]
        found["dead"] = [delivery.message.raw for delivery in await bus.receive("orders/$DeadLetterQueue", 1)]
    return found


def test_a_bus_goes_on_where_it_stopped(old: tuple[str, Path]) -> None:
    _, data = old
    found = asyncio.run(use(data))
    assert {path: len(bodies) for path, bodies in found.items()} == {
        "orders": 13,
        "last": 1,
        "news/Subscriptions/red": 3,
        "talks": 5,
        "dead": 1,
    }
    assert b"arrives" in found["last"][0]
    left = {str(entity["name"]): entity for entity in entities(data)}
    assert (left["orders"]["active"], left["orders"]["deferred"], left["orders"]["scheduled"]) == (0, 3, 2)


def test_a_server_of_this_version_starts_on_it(old: tuple[str, Path]) -> None:
    _, data = old
    with ServerProcess(data, "--namespace", "test") as server:
        connection = server.connection_string
        with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_receiver("talks", session_id="s2", max_wait_time=5) as receiver,
        ):
            bodies = [str(message) for message in receiver.receive_messages(4, max_wait_time=5)]
        assert bodies == ["talk 2", "talk 5", "talk 8", "talk 11"]
        assert not any("ERROR" in line for line in server.output), server.output


def test_a_folder_of_a_later_version_is_refused_untouched(
    old: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store is enough: a program that does not know what it must not drop must not write."""
    _, data = old
    with monkeypatch.context() as later:
        later.setattr(store_format, "FORMAT_MINOR", FORMAT_MINOR + 1)
        for folder in (data / "catalogue", data / "stores" / "0"):
            RocksStore(folder).close()
    command = [sys.executable, "-m", "polybus", "serve", "--data", str(data), *PORTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"written in format {FORMAT_MAJOR}.{FORMAT_MINOR + 1}" in done.stderr
    assert "start a later Polybus" in done.stderr
    for folder in (data / "catalogue", data / "stores" / "0"):
        with pytest.raises(StoreVersionMismatch):
            RocksStore(folder)


def test_what_an_earlier_version_wrote_is_raised_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RocksStore(tmp_path / "store")) as store:
        store.commit(_one_row())
    with monkeypatch.context() as later:
        later.setattr(store_format, "FORMAT_MINOR", FORMAT_MINOR + 1)
        with closing(RocksStore(tmp_path / "store")) as store:
            assert store.format.minor == FORMAT_MINOR + 1
            assert store.get([b"key"]) == [b"value"]
    with pytest.raises(StoreVersionMismatch, match="start a later Polybus"):
        RocksStore(tmp_path / "store")


def test_the_same_in_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server() as server:
        url = server.url("upgraded")
        with closing(PostgresStore(url)) as store:
            store.commit(_one_row())
        with monkeypatch.context() as later:
            later.setattr(store_format, "FORMAT_MINOR", FORMAT_MINOR + 1)
            with closing(PostgresStore(url)) as store:
                assert store.get([b"key"]) == [b"value"]
        with pytest.raises(StoreVersionMismatch, match="start a later Polybus"):
            PostgresStore(url)


def _one_row() -> Batch:
    batch = Batch()
    batch.put(b"key", b"value")
    return batch
