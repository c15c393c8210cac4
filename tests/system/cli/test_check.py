"""`check` finds nothing where nothing is wrong, and every kind of damage where something is."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import StoreError, StoreFenced
from polybus.hosting import catalogue
from polybus.operations.check import Report, catalogue_url, check, store_urls
from polybus.partition import records
from polybus.rows import Batch
from polybus.store.rocks import RocksStore
from tests.system.cli.damage import DAMAGES, Damage, Rows
from tests.system.cli.small_bus import SmallBus


def look_at(data: Path) -> Report:
    return check(catalogue_url(data), store_urls(data))


def problems(report: Report) -> list[str]:
    return [f"{finding.place}: {finding.key}: {finding.problem}" for finding in report.findings]


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_bus_that_used_everything_leaves_nothing_to_find(filled: Path) -> None:
    report = look_at(filled)
    assert problems(report) == []
    assert report.clean
    by_name = {entity.name: entity for entity in report.entities}
    orders = by_name["orders"]
    assert (orders.active, orders.deferred, orders.scheduled, orders.dead_letter) == (13, 3, 2, 2)
    assert (orders.partitions, orders.reachable) == (4, 4)
    assert by_name["news"].retained > 0
    assert by_name["chain"].transfer == 3


def test_every_table_has_rows_that_are_looked_at(filled: Path, filled_rows: list[dict[bytes, bytes]]) -> None:
    tables = {key[7:8] for store in filled_rows for key in store if key.startswith(b"P")}
    every = {
        value
        for name, value in vars(records).items()
        if name[0].isupper() and name.isupper() and isinstance(value, bytes)
    }
    assert tables == every
    assert sum(map(len, filled_rows)) == sum(store.rows for store in look_at(filled).stores)


def test_looking_changes_nothing(filled: Path) -> None:
    before = contents(filled)
    look_at(filled)
    assert contents(filled) == before


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name.replace(" ", "-"))
def test_damage_is_found(damage: Damage, data: Path, filled_rows: list[dict[bytes, bytes]]) -> None:
    damage.change(Rows(data, filled_rows))
    report = look_at(data)
    assert not report.clean
    assert any(damage.says in problem for problem in problems(report)), problems(report)


@pytest.mark.parametrize("name", ["an active message flipped", "a body flipped", "no expiry row", "active counter"])
def test_one_damage_is_one_finding(name: str, data: Path, filled_rows: list[dict[bytes, bytes]]) -> None:
    next(damage for damage in DAMAGES if damage.name == name).change(Rows(data, filled_rows))
    assert look_at(data).finding_count == 1


def test_a_damaged_table_file_is_found_and_the_rest_is_looked_at(data: Path) -> None:
    table = max((data / "stores" / "0" / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 1
    table.write_bytes(content)
    report = look_at(data)
    assert any("orruption" in problem for problem in problems(report)), problems(report)
    assert report.stores[1].rows > 0


def test_a_damaged_log_is_found(data: Path) -> None:
    manifest = next((data / "stores" / "0" / "db").glob("MANIFEST-*"))
    content = bytearray(manifest.read_bytes())
    content[6] = 7  # the type of the first record: one of recycled logs
    manifest.write_bytes(content)
    report = look_at(data)
    assert any("impossible type" in problem for problem in problems(report))
    assert [entity.reachable for entity in report.entities if entity.name == "orders"] == [2]


def test_a_store_that_is_gone_is_missed(data: Path) -> None:
    shutil.rmtree(data / "stores" / "1")
    assert any("not there to be looked at" in problem for problem in problems(look_at(data)))


def test_a_store_given_twice_is_noticed(data: Path) -> None:
    shutil.copytree(data / "stores" / "1", data / "stores" / "2")
    assert any("one is a copy" in problem for problem in problems(look_at(data)))


def test_a_store_of_another_bus_is_noticed(data: Path) -> None:
    RocksStore(data / "stores" / "2").close()
    assert any("does not know this messaging store" in problem for problem in problems(look_at(data)))


def test_a_store_in_use_cannot_be_looked_at(data: Path) -> None:
    with closing(RocksStore(data / "stores" / "0")), pytest.raises(StoreFenced, match="stop it first"):
        look_at(data)


def test_a_folder_without_a_bus_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no messaging store"):
        look_at(tmp_path)
    assert list(tmp_path.iterdir()) == []


# The catalogue


def change_catalogue(data: Path, key: bytes, change: Callable[[dict[str, Any]], object] | None) -> None:
    with closing(RocksStore(data / "catalogue")) as store:
        batch = Batch()
        if change is None:
            batch.delete(key)
        else:
            value = store.get([key])[0]
            assert value is not None
            record = json.loads(value[4:])
            change(record)
            batch.put(key, records.sealed(json.dumps(record).encode()))
        store.commit(batch)


CATALOGUE_DAMAGES: list[tuple[str, bytes, Callable[[dict[str, Any]], object] | None, str]] = [
    ("no meta", catalogue.META, None, "own record is missing"),
    ("ids given again", catalogue.META, lambda record: record.update(next_entity=2), "would be given again"),
    ("another format", catalogue.META, lambda record: record.update(format=2), "format 2"),
    ("a store is not listed", catalogue.META, lambda record: record.update(stores=[]), "is not listed"),
    ("no entity", catalogue.entity_key(1), None, "rows of entity 1, which does not exist"),
    ("another id", catalogue.entity_key(1), lambda record: record.update(id=7), "its id is 7"),
    ("too few places", catalogue.entity_key(1), lambda record: record["placement"].pop(), "but places for 3"),
    ("no description", catalogue.entity_key(1), lambda record: record.pop("description"), "the record lacks"),
    (
        "the same name twice",
        catalogue.entity_key(2),
        lambda record: record["description"].update(path="ORDERS"),
        "another entity has the same name",
    ),
    ("no topic", catalogue.entity_key(3), None, "its topic is missing"),
    ("no subscription", catalogue.subscription_key(3, 1), None, "its subscription is missing"),
    (
        "numbers given again",
        catalogue.entity_key(3),
        lambda record: record.update(next_subscription=1),
        "its number is not its own, or not below",
    ),
    (
        "a rule that cannot be read",
        catalogue.rule_key(3, 2, 1),
        lambda record: record["filter"].update(expression="((("),
        "expected",
    ),
]


@pytest.mark.parametrize(
    ("name", "key", "change", "says"), CATALOGUE_DAMAGES, ids=[row[0] for row in CATALOGUE_DAMAGES]
)
def test_damage_of_the_catalogue_is_found(
    name: str, key: bytes, change: Callable[[dict[str, Any]], object] | None, says: str, data: Path
) -> None:
    change_catalogue(data, key, change)
    found = problems(look_at(data))
    assert any(says.lower() in problem.lower() for problem in found), found


def test_a_record_of_the_catalogue_that_was_flipped_is_found_once(data: Path) -> None:
    with closing(RocksStore(data / "catalogue")) as store:
        key = catalogue.entity_key(1)
        value = store.get([key])[0]
        assert value is not None
        batch = Batch()
        batch.put(key, value[:-1] + b"?")
        store.commit(batch)
    report = look_at(data)
    assert [finding.problem for finding in report.findings] == ["the checksum of a record of the catalogue is wrong"]


# What is being removed


def test_rows_that_are_being_removed_are_no_finding(data: Path) -> None:
    """As after a crash between the deletion and the removal of the rows."""
    with closing(RocksStore(data / "catalogue")) as store:
        value = store.get([catalogue.entity_key(1)])[0]
        assert value is not None
        record = json.loads(value[4:])
        remains = {"entity": 1, "subscription": 0, "placement": record["placement"]}
        batch = catalogue.Changes().delete(catalogue.entity_key(1)).put(b"d/x", remains).batch
        store.commit(batch)
    assert problems(look_at(data)) == []


def test_a_subscription_that_is_being_removed_is_no_finding(data: Path) -> None:
    key = catalogue.subscription_key(3, 2)
    remains = {"entity": 3, "subscription": 2, "placement": []}
    with closing(RocksStore(data / "catalogue")) as store:
        changes = catalogue.Changes().delete(key).delete_prefix(catalogue.rules_prefix(3, 2))
        store.commit(changes.put(b"d/x", remains).batch)
    assert problems(look_at(data)) == []


def test_a_bus_that_was_restarted_and_drained_is_clean(data: Path) -> None:
    async def drain() -> None:
        async with SmallBus(data) as bus:
            for delivery in await bus.receive("orders", 13):
                await bus.complete(delivery)
            bus.clock.advance(3_600_000)
            bus.bus.clock_moved()

    asyncio.run(drain())
    report = look_at(data)
    assert problems(report) == []
