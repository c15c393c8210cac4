from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.cli.values import duration, duration_ms, iso_duration, moment, properties, typed
from polybus.errors import ConfigError
from polybus.gateway.durations import INFINITE_MS, duration_text


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5m", 90_000),
        ("2H", 7_200_000),
        ("14d", 1_209_600_000),
        ("PT1M", 60_000),
        ("P1DT2H", 93_600_000),
        ("never", INFINITE_MS),
        (" NEVER ", INFINITE_MS),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "soon", "5", "5 minutes", "-5s", "P", "-PT5S", "1e3s"])
def test_what_is_no_duration_is_told_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="write 30s"):
        duration_ms(text)


@given(st.integers(0, 10**12))
def test_a_duration_reads_what_the_bus_writes(ms: int) -> None:
    assert duration_ms(duration_text(ms)) == ms
    assert iso_duration(f"{ms}ms") == duration_text(ms)
    assert duration(f"{ms}ms") == datetime.timedelta(milliseconds=ms)


def test_moments_are_absolute_or_from_now() -> None:
    assert moment("2026-01-31T12:00:00Z") == datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    before = datetime.datetime.now(datetime.UTC)
    assert before <= moment("+1h") - datetime.timedelta(hours=1) <= datetime.datetime.now(datetime.UTC)
    with pytest.raises(ConfigError, match="is not a time"):
        moment("noon")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("-2", -2), ("1.5", 1.5), ("true", True), ("false", False), ('"1"', "1"), ("True", "True"), ("", "")],
)
def test_properties_have_the_type_they_look_like(text: str, value: object) -> None:
    found = typed(text)
    assert (found, type(found)) == (value, type(value))


def test_a_property_needs_a_name_and_a_value() -> None:
    assert properties(["a=b=c", "n=1"]) == {"a": "b=c", "n": 1}
    assert properties(None) == {}
    for wrong in ("a", "=b"):
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            properties([wrong])
