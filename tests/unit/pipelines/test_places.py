"""Entities and buses in the file, and the user's own function; no key is ever shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.checking import check_pipelines
from polybus.pipelines.declaration import parse
from polybus.pipelines.entry import function_of, module_file
from polybus.pipelines.fields import Fields
from polybus.pipelines.places import BusReference, EntityReference, VariableMissing, bus_from, entity_from
from polybus.spark import session
from polybus.spark.starting import settings

STRING = "Endpoint=sb://localhost:1;SharedAccessKeyName=k;SharedAccessKey=hush;UseDevelopmentEmulator=true;"
BUS = BusReference({"connectionStringEnv": "POLYBUS_TEST_BUS"})


def entity(value: Any, bus: BusReference | None = BUS) -> EntityReference:
    return entity_from(Fields("f", "p", {"from": value}), "from", bus)


@pytest.mark.parametrize("text", ["orders", "/orders/", "topic:orders", "queue:orders"])
def test_an_entity_is_a_name(text: str) -> None:
    assert entity(text) == EntityReference("orders", BUS)


def test_an_entity_may_have_a_bus_and_options_of_its_own() -> None:
    found = entity(
        {"entity": "t/Subscriptions/s", "bus": {"connectionString": STRING}, "options": {"targetTasks": 2}}
    )
    assert found.options(cursor="c", targetTasks=4, maxBytesPerTrigger=None) == {
        "connectionString": STRING,
        "entity": "t/Subscriptions/s",
        "cursor": "c",
        "targetTasks": "2",
    }


def test_options_of_the_file_cannot_name_another_entity_or_bus() -> None:
    found = entity({"entity": "a", "options": {"Entity": "b", "connectionString": "hush"}})
    assert found.options() == {"entity": "a", "connectionStringEnv": "POLYBUS_TEST_BUS"}
    assert "hush" not in repr(found)


def test_names_of_options_count_in_any_case() -> None:
    found = entity({"entity": "a", "options": {"CURSOR": "mine"}}).options(cursor="default", targetTasks=1)
    assert {name.lower(): value for name, value in found.items()} == {
        "cursor": "mine",
        "targettasks": "1",
        "connectionstringenv": "POLYBUS_TEST_BUS",
        "entity": "a",
    }


def test_a_reference_is_resolved_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = entity("orders")
    monkeypatch.delenv("POLYBUS_TEST_BUS", raising=False)
    with pytest.raises(VariableMissing, match=r"'POLYBUS_TEST_BUS'.* is not set here"):
        found.bus.connection()
    assert found.check_source() == [
        "the environment variable 'POLYBUS_TEST_BUS', named by 'connectionStringEnv', is not set here"
    ]
    monkeypatch.setenv("POLYBUS_TEST_BUS", STRING)
    assert found.bus.connection().port == 1
    assert found.check_source(cursor="c") == []


def test_options_are_looked_at_as_spark_will(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYBUS_TEST_BUS", STRING)
    with pytest.raises(ConfigError, match="there is no option 'cursro'"):
        entity({"entity": "a", "options": {"cursro": "x"}}).check_source()
    with pytest.raises(ConfigError, match="'delivery' must be one of"):
        entity({"entity": "a", "options": {"delivery": "x"}}).check_sink()


def test_no_text_of_a_reference_shows_the_key() -> None:
    bus = bus_from(Fields("f", "bus", {"connectionString": STRING, "caFile": "ca.pem"}))
    assert bus is not None
    assert "hush" not in repr(bus)
    assert "hush" not in repr(EntityReference("q", bus))
    assert "hush" not in repr(bus.connection())


def test_functions_are_found_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_file.py").write_text("def work(frame):\n    return 3\nvalue = 1\n")
    assert function_of("beside_the_file:work", tmp_path)(None) == 3
    assert module_file("beside_the_file:work", tmp_path) == tmp_path / "beside_the_file.py"
    assert module_file("json:dumps", tmp_path) is None
    with pytest.raises(ConfigError, match="the module 'beside_the_file' has no function 'value'"):
        function_of("beside_the_file:value", tmp_path)
    with pytest.raises(ConfigError, match="the module cannot be imported: No module named 'nowhere_at_all'"):
        function_of("nowhere_at_all:work", tmp_path)


def test_checking_looks_at_functions_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYBUS_TEST_BUS", STRING)
    text = "bus: {{connectionStringEnv: POLYBUS_TEST_BUS}}\ncheckpoints: c\npipelines: [{{name: a, {}}}]"
    good = parse(text.format("kind: python, entry: 'json:dumps', from: q, to: r"), "f.yml", tmp_path)
    assert check_pipelines(good, connect=False) == [
        {"name": "a", "kind": "python", "what": "q through json:dumps to r", "remarks": []}
    ]
    wrong = parse(text.format("kind: python, entry: 'json:nothing', from: q, to: r"), "f.yml", tmp_path)
    with pytest.raises(ConfigError, match=r"f\.yml: pipeline 'a': entry 'json:nothing'"):
        check_pipelines(wrong, connect=False)


def test_sparks_settings_are_ours_then_the_files() -> None:
    conf = settings("local[2]", {"spark.ui.enabled": "true", "spark.x": "1"})
    assert (conf["spark.ui.enabled"], conf["spark.x"], conf["spark.driver.host"]) == ("true", "1", "127.0.0.1")
    assert "spark.driver.host" not in settings("spark://host:7077", {})


def test_without_java_it_is_said_that_spark_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="Spark needs Java 17 or newer, and there is none"):
        session()


# PySpark leaves the pipe to the Java that has ended to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_java_with_which_spark_does_not_start_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    (home / "bin" / "java").chmod(0o755)
    for name, value in (
        ("JAVA_HOME", str(home)),
        ("PYSPARK_PYTHON", sys.executable),
        ("SPARK_LOCAL_IP", "127.0.0.1"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"Spark does not start \(master local\[1\]\): .*JAVA_GATEWAY_EXITED"):
        session("local[1]")
