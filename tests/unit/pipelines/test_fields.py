"""One mapping of the file: values with their types, faults with file, path, value and what is allowed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ConfigError
from polybus.pipelines.fields import Fields, duration_text


def fields(**values: Any) -> Fields:
    return Fields("pipelines.yml", "pipelines[2].to", values)


def fault(text: str) -> Any:
    return pytest.raises(ConfigError, match=re.escape(text))


@pytest.mark.parametrize(
    ("method", "value", "meaning"),
    [
        ("duration_ms", "500ms", 500),
        ("duration_ms", "1.5h", 5_400_000),
        ("duration_ms", "7d", 604_800_000),
        ("size_bytes", "256m", 256 << 20),
        ("size_bytes", "64 KiB", 64 << 10),
        ("size_bytes", 4096, 4096),
        ("rate", "500/s", 500.0),
        ("rate", "60 / m", 1.0),
        ("number", 7, 7),
        ("fraction", 2, 2.0),
        ("flag", True, True),
        ("texts", "one", ("one",)),
        ("texts", ["one", "two"], ("one", "two")),
        ("moment", "2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("moment", "2026-01-31T13:00:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("moment", datetime(2026, 1, 31, 12), datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_values_are_read(method: str, value: Any, meaning: Any) -> None:
    assert getattr(fields(it=value), method)("it") == meaning


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("duration_ms", "5"),
        ("duration_ms", 5),
        ("duration_ms", "-5s"),
        ("duration_ms", "5 s"),
        ("size_bytes", "0"),
        ("size_bytes", "many"),
        ("size_bytes", 1.5),
        ("size_bytes", True),
        ("rate", "500"),
        ("rate", "0/s"),
        ("number", -1),
        ("number", True),
        ("number", "7"),
        ("fraction", -0.1),
        ("fraction", False),
        ("flag", "true"),
        ("flag", 1),
        ("text", ""),
        ("text", 3),
        ("texts", []),
        ("texts", ["a", "a"]),
        ("texts", ["a", 1]),
        ("moment", "noon"),
        ("moment", 12),
    ],
)
def test_faults_name_file_path_value_and_what_is_allowed(method: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        getattr(fields(it=value), method)("it")
    assert str(caught.value).startswith(f"pipelines.yml: pipelines[2].to.it: {value!r} is not allowed; allowed: ")


def test_a_field_that_must_be_there_is_missed_with_its_rule() -> None:
    with fault("pipelines.yml: pipelines[2].to.every: is missing; allowed: a duration such as"):
        fields().duration_ms("every")
    assert fields().duration_ms("every", 5) == 5


def test_bounds_are_kept_and_told() -> None:
    with fault("allowed: a whole number from 1 to 3"):
        fields(it=4).number("it", least=1, most=3)
    with fault("from 1s to 1m"):
        fields(it="2m").duration_ms("it", least=1_000, most=60_000)
    with fault("a list of some of date, hour"):
        fields(it=["week"]).texts("it", words=("date", "hour"))


def test_words_are_found_in_any_case_and_others_refused_with_the_list() -> None:
    assert fields(it="PARQUET").word("it", ("parquet", "avro")) == "parquet"
    with fault("pipelines[2].to.it: 'orc' is not allowed; allowed: parquet, avro"):
        fields(it="orc").word("it", ("parquet", "avro"))


def test_what_nobody_asked_for_is_refused_when_the_mapping_is_closed() -> None:
    asked = fields(path="/lake", fromat="parquet")
    asked.text("path")
    asked.word("format", ("parquet",), "parquet")
    with fault("pipelines[2].to.fromat: 'parquet' is not allowed; allowed: only the fields path, format"):
        asked.close()


def test_a_mapping_must_be_one_and_its_names_texts() -> None:
    with fault("pipelines.yml: pipelines[2].to.inner: 3 is not allowed; allowed: a mapping"):
        fields(inner=3).mapping("inner")
    with fault("names that are text"):
        Fields("f", "", {True: 1})
    with fault("f: the file: None is not allowed"):
        Fields("f", "", None)


def test_lists_of_mappings_are_numbered() -> None:
    found = fields(many=[{"a": 1}, {"a": "x"}]).mappings("many")
    assert found[0].number("a") == 1
    with fault("pipelines[2].to.many[1].a: 'x'"):
        found[1].number("a")
    with fault("allowed: a list of mappings"):
        fields(many={}).mappings("many")
    assert fields().mappings("many") == []


def test_options_for_others_become_texts() -> None:
    assert fields(o={"a": True, "b": 3, "c": "x", "d": 0.5}).options("o") == {
        "a": "true",
        "b": "3",
        "c": "x",
        "d": "0.5",
    }
    with fault("pipelines[2].to.o.a: [1] is not allowed"):
        fields(o={"a": [1]}).options("o")
    assert fields().options("o") == {}


@pytest.mark.parametrize(
    "values",
    [
        {"connectionString": ["Endpoint=sb://x;SharedAccessKey=hush"]},
        {"bus": ["SharedAccessKey=hush"]},
        {"bus": [{"connectionString": "hush"}]},
    ],
)
def test_no_fault_shows_a_secret(values: dict[str, Any]) -> None:
    name = next(iter(values))
    with pytest.raises(ConfigError) as caught:
        fields(**values).text(name)
    assert "hush" not in str(caught.value)
    assert "not shown" in str(caught.value)


def test_long_values_are_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        fields(it="x" * 1_000).number("it")
    assert len(str(caught.value)) < 300


@given(st.integers(0, 10**12))
def test_durations_are_written_as_they_are_read(ms: int) -> None:
    assert fields(it=duration_text(ms)).duration_ms("it") == ms
