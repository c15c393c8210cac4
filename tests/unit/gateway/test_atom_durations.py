"""Durations, times and ticks at the gateway."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ArgumentError
from polybus.gateway.durations import (
    INFINITE_MS,
    date_time_text,
    duration_text,
    etag,
    ms_from_date_time,
    ms_from_ticks,
    parse_duration,
    seconds_text,
    ticks_from_ms,
)

NOW_MS = 1_618_852_986_253


def test_the_etag_is_the_ticks_of_a_recorded_session() -> None:
    assert etag(NOW_MS) == "637544497862530000"
    assert ms_from_ticks(637_544_497_862_530_000) == NOW_MS
    assert ticks_from_ms(0) == 621_355_968_000_000_000


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_ticks_and_times_come_back(ms: int) -> None:
    assert ms_from_ticks(ticks_from_ms(ms)) == ms
    assert ms_from_ticks(ticks_from_ms(ms) + 9_999) == ms
    assert ms_from_date_time(date_time_text(ms)) == ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (NOW_MS, "2021-04-19T17:23:06.253Z"),
        (NOW_MS - 53, "2021-04-19T17:23:06.2Z"),
        (NOW_MS - 253, "2021-04-19T17:23:06Z"),
        (1_000, "1970-01-01T00:00:01Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
    ],
)
def test_times_as_dotnet_writes_them(ms: int, text: str) -> None:
    assert date_time_text(ms) == text
    assert seconds_text(ms) == text[:19] + "Z"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2021-04-19T17:23:06.2534567Z", NOW_MS),
        (" 2021-04-19T17:23:06.253 ", NOW_MS),
        ("2021-04-19T19:23:06.253+02:00", NOW_MS),
    ],
)
def test_times_are_read(text: str, ms: int) -> None:
    assert ms_from_date_time(text) == ms


@pytest.mark.parametrize(
    "text", ["", "2021-04-19", "2021-04-19 17:23:06", "2021-02-30T00:00:00Z", "now", "2021-04-19T25:00:00Z"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ArgumentError):
        ms_from_date_time(text)


@pytest.mark.parametrize("text", ["", "PT", "1M", "-PT1S", "-P1D", "P1W", "x" * 1000])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        parse_duration(text)
    assert len(refusal.value.description) < 200


@given(st.integers(0, 10**13))
def test_durations_come_back(ms: int) -> None:
    assert parse_duration(f" {duration_text(ms)} ") == ms


def test_infinity() -> None:
    assert parse_duration("P10675199DT2H48M5.477539S") == INFINITE_MS
    assert duration_text(INFINITE_MS) == "P10675199DT2H48M5.4775807S"
