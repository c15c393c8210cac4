"""The file as a whole: what it declares, and each of its faults with file, path, value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.declaration import load, parse
from polybus.pipelines.fields import Fields
from polybus.pipelines.kind import JobKind, Origin
from polybus.pipelines.kinds import KINDS

HEAD = "bus: {connectionStringEnv: BUS}\ncheckpoints: checkpoints\n"
WHOLE = """
bus: {connectionStringEnv: BUS}
checkpoints: /var/lib/polybus/checkpoints
spark: {master: "local[2,4]", conf: {spark.sql.shuffle.partitions: 8}}
restart: {first: 2s, most: 1m, attempts: 5}
pipelines:
  - {name: lake, kind: capture, from: orders, to: {path: lake/orders, format: parquet}, every: 5m, maxBytes: 256m}
  - {name: again, kind: replay, from: {path: lake/orders}, to: "topic:copy", speed: 2.5}
  - {name: mine, kind: python, entry: "my.module:work", from: orders, to: billing}
"""


class Counting(JobKind):
    kind = "counting"

    def __init__(self, name: str, step: int, bus: object) -> None:
        super().__init__(name)
        self.step = step
        self.bus = bus

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Counting:
        return cls(name, fields.number("step", 1), origin.bus)

    def run(self, session: Any, context: Any) -> Mapping[str, float]:
        return {}


def refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(text, "p.yml", Path("/x"), {"counting": Counting})


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    found = parse(WHOLE, "p.yml", tmp_path)
    assert found.checkpoints == Path("/var/lib/polybus/checkpoints")
    assert (found.spark.master, found.spark.conf) == ("local[2,4]", {"spark.sql.shuffle.partitions": "8"})
    assert (found.restart.first_ms, found.restart.most_ms, found.restart.attempts) == (2_000, 60_000, 5)
    assert [(kind.name, kind.kind) for kind in found.pipelines] == [
        ("lake", "capture"),
        ("again", "replay"),
        ("mine", "python"),
    ]
    lake, again, mine = found.pipelines
    assert isinstance(lake, CaptureKind)
    assert lake.place.path == tmp_path / "lake/orders"
    assert lake.describe() == f"orders to {tmp_path}/lake/orders (parquet), every 5m"
    assert again.describe() == f"{tmp_path}/lake/orders (parquet) to copy, run 1, at 2.5 times the speed"
    assert mine.describe() == "orders through my.module:work to billing"


def test_every_kind_knows_its_own_word() -> None:
    assert all(kind.kind == word for word, kind in KINDS.items())
    assert {"capture", "replay", "python"} <= set(KINDS)


def test_pipelines_can_be_chosen_by_name() -> None:
    found = parse(WHOLE, "p.yml", Path("/x"))
    assert [kind.name for kind in found.named(("mine",)).pipelines] == ["mine"]
    assert found.named(()).pipelines == found.pipelines
    with pytest.raises(ConfigError, match="there is no pipeline 'other'; there are: lake, again, mine"):
        found.named(("other",))


def test_a_pipeline_may_have_a_bus_of_its_own() -> None:
    second = "{name: b, kind: counting, bus: {connectionStringEnv: B}}"
    text = f"{HEAD}pipelines: [{{name: a, kind: counting}}, {second}]"
    first, other = parse(text, "p.yml", Path("/x"), {"counting": Counting}).pipelines
    assert isinstance(first, Counting)
    assert isinstance(other, Counting)
    assert first.bus.options == {"connectionStringEnv": "BUS"}  # type: ignore[attr-defined]
    assert other.bus.options == {"connectionStringEnv": "B"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p.yml: the file: None is not allowed; allowed: a mapping"),
        ("- a", "p.yml: the file: ['a'] is not allowed"),
        ("a: [", "p.yml: is not YAML: "),
        ("a: 1\na: 2", "p.yml: is not YAML: the name 'a' is there twice (line 2, column 1)"),
        ("a: &x [1]\nb: *x", "p.yml: is not YAML: an alias is not allowed (line 2, column 4)"),
        ("a: !!python/object:os.system {}", "p.yml: is not YAML: could not determine a constructor"),
        ("pipelines: []", "p.yml: checkpoints: is missing; allowed: a folder"),
        ("checkpoints: c", "p.yml: pipelines: is missing; allowed: a list of pipelines"),
        (f"{HEAD}pipelines: {{}}", "p.yml: pipelines: {} is not allowed; allowed: a list of pipelines"),
        (f"{HEAD}pipelines: [1]", "p.yml: pipelines[0]: 1 is not allowed; allowed: a mapping"),
        (f"{HEAD}pipelines: [{{kind: counting}}]", "p.yml: pipelines[0].name: is missing"),
        (f"{HEAD}pipelines: [{{name: a/b, kind: counting}}]", "p.yml: pipelines[0].name: 'a/b' is not allowed"),
        (
            f"{HEAD}pipelines: [{{name: a, kind: cuonting}}]",
            "p.yml: pipelines[0].kind: 'cuonting' is not allowed; allowed: counting",
        ),
        (
            f"{HEAD}pipelines: [{{name: a, kind: counting}}, {{name: A, kind: counting}}]",
            "pipelines[1].name: 'A' is not allowed; allowed: a name",
        ),
        (
            f"{HEAD}pipelines: [{{name: a, kind: counting, stpe: 1}}]",
            "pipelines[0].stpe: 1 is not allowed; allowed: only the fields name, kind",
        ),
        (
            f"{HEAD}pipelines: [{{name: a, kind: counting, step: x}}]",
            "pipelines[0].step: 'x' is not allowed; allowed: a whole number",
        ),
        (
            f"{HEAD}extra: 1\npipelines: [{{name: a, kind: counting}}]",
            "p.yml: extra: 1 is not allowed; allowed: only the fields bus, checkpoints",
        ),
        (
            f"{HEAD}restart: {{first: 2m, most: 1s}}\npipelines: [{{name: a, kind: counting}}]",
            "p.yml: restart.most: '1s' is not allowed",
        ),
        (
            f"{HEAD}spark: {{master: 'sc://there:15002'}}\npipelines: [{{name: a, kind: counting}}]",
            "p.yml: spark.master: 'sc://there:15002' is not allowed; allowed: local[*,4]",
        ),
        ("bus: {}\ncheckpoints: c", "p.yml: bus.connectionStringEnv: is missing; allowed: either"),
        (
            "bus: {connectionString: a, connectionStringEnv: b}\ncheckpoints: c",
            "p.yml: bus.connectionStringEnv: is missing; allowed: either",
        ),
    ],
)
def test_faults_are_told_with_their_place(text: str, said: str) -> None:
    refused(text, said)


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("kind: capture, to: {path: l}", "pipelines[0].from: is missing; allowed: an entity"),
        ("kind: capture, from: q", "pipelines[0].to: is missing; allowed: a mapping with path"),
        (
            "kind: capture, from: q, to: {path: l, format: orc}",
            "pipelines[0].to.format: 'orc' is not allowed; allowed: parquet, avro, delta, iceberg",
        ),
        (
            "kind: capture, from: q, to: {path: l, layout: week}",
            "pipelines[0].to.layout: 'week' is not allowed; allowed: hive, flat",
        ),
        ("kind: capture, from: q, to: {path: l, layout: [week]}", "pipelines[0].to.layout: ['week'] is not allowed"),
        (
            "kind: capture, from: q, to: {path: l, table: t}",
            "pipelines[0].to.table: 't' is not allowed; allowed: only the fields",
        ),
        (
            "kind: capture, from: q, to: {path: l, format: iceberg, table: t}",
            "pipelines[0].to.table: 't' is not allowed; allowed: a table with its namespace",
        ),
        ("kind: capture, from: q, to: {path: l}, every: 1ms", "pipelines[0].every: '1ms' is not allowed"),
        (
            "kind: capture, from: {entity: q, options: {a: {}}}, to: {path: l}",
            "pipelines[0].from.options.a: {} is not allowed",
        ),
        ("kind: capture, from: {entitty: q}, to: {path: l}", "pipelines[0].from.entity: is missing"),
        ("kind: replay, from: lake, to: q", "pipelines[0].from: 'lake' is not allowed; allowed: a mapping"),
        ("kind: replay, from: {path: l}, to: q, speed: -1", "pipelines[0].speed: -1 is not allowed"),
        ("kind: replay, from: {path: l}, to: q, run: a/b", "pipelines[0].run: 'a/b' is not allowed"),
        (
            "kind: replay, from: {path: l}, to: q, between: {from: 2026-01-02T00:00:00Z, to: 2026-01-01T00:00:00Z}",
            "pipelines[0].between.to: '2026-01-01T00:00:00+00:00' is not allowed; allowed: a time after",
        ),
        (
            "kind: python, entry: my.module, from: q, to: r",
            "pipelines[0].entry: 'my.module' is not allowed; allowed: module:function",
        ),
        (
            "kind: python, entry: 'm:f', from: q",
            "pipelines[0].to: None is not allowed; allowed: an entity, or path and format",
        ),
        ("kind: python, entry: 'm:f', each: batch, from: q, to: r", "pipelines[0].to: 'r' is not allowed"),
        (
            "kind: python, entry: 'm:f', from: q, to: {path: p, format: avro}",
            "pipelines[0].to.format: 'avro' is not allowed; allowed: parquet, orc, json, csv",
        ),
    ],
)
def test_faults_of_each_kind(pipeline: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(f"{HEAD}pipelines: [{{name: a, {pipeline}}}]", "p.yml", Path("/x"))


def test_an_entity_without_any_bus_is_a_fault() -> None:
    text = "checkpoints: c\npipelines: [{name: a, kind: capture, from: q, to: {path: l}}]"
    with pytest.raises(
        ConfigError, match=re.escape("p.yml: bus: is missing; allowed: a mapping with connectionStringEnv")
    ):
        parse(text, "p.yml", Path("/x"))


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yml")
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "binary.yml")


def test_relative_paths_begin_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text(f"{HEAD}pipelines: [{{name: a, kind: counting}}]")
    assert load(tmp_path / "p.yml", {"counting": Counting}).checkpoints == tmp_path / "checkpoints"


def test_yaml_faults_show_no_line_of_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("bus: {connectionString: 'SharedAccessKey=hush", "p.yml", Path("/x"))
    assert "hush" not in str(caught.value)
