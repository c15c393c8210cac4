"""Durations, ticks and typed values: the texts of clients, there and back."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.limits import INFINITE_MS
from polybus.namespace.entities import timespan
from polybus.namespace.entities.typed_value import TypedValue


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1M", 60_000),
        ("PT300S", 300_000),
        ("PT1M6S", 66_000),
        ("P25D", 25 * 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
        ("P0D", 0),
        ("PT0.0009S", 0),
        ("PT0.001S", 1),
        ("PT0.9999999S", 999),
        ("P1Y", 365 * 86_400_000),
        ("P1M", 30 * 86_400_000),
        ("P1Y2M3DT4H5M6S", 428 * 86_400_000 + 14_706_000),
        ("-PT1S", -1_000),
        ("P10675199DT2H48M5.4775807S", INFINITE_MS),
        ("P10675199DT2H48M5.477539S", INFINITE_MS),
        ("P10675199DT2H48M5.477S", INFINITE_MS),
        ("P10675199D", INFINITE_MS),
        ("P99999999999D", INFINITE_MS),
        ("P10675198DT23H59M59.999S", 10_675_199 * 86_400_000 - 1),
    ],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert timespan.ms_from_text(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "", "P", "PT", "P1DT", "1M", "PT1", "PTS", "P1H", "PT1D", "PT1M1H", "pt1m", "P1W", "PT.5S", "PT1.S",
        "PT1,5S", "PT 1M", "P-1D", "PT1M\n", " PT1M", "00:01:00", "PT\u0661M", "P" + "9" * 70 + "D", "--PT1S",
        "PT1.5M",
    ],
)  # fmt: skip
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        timespan.ticks_from_text(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (60_000, "PT1M"),
        (300_000, "PT5M"),
        (0, "PT0S"),
        (500, "PT0.5S"),
        (1, "PT0.001S"),
        (86_400_000, "P1D"),
        (86_401_000, "P1DT1S"),
        (3_600_000, "PT1H"),
        (36_000_000_000, "P416DT16H"),
        (INFINITE_MS, "P10675199DT2H48M5.4775807S"),
    ],
)
def test_durations_are_written_in_canonical_form(ms: int, text: str) -> None:
    assert timespan.text_from_ms(ms) == text


@given(st.integers(0, INFINITE_MS))
def test_milliseconds_come_back(ms: int) -> None:
    bound = timespan.INFINITE_DAYS * 86_400_000
    assert timespan.ms_from_text(timespan.text_from_ms(ms)) == (ms if ms < bound else INFINITE_MS)


@given(st.integers(-(2**62), 2**62))
def test_ticks_come_back(ticks: int) -> None:
    assert timespan.ticks_from_text(timespan.text_from_ticks(ticks)) == ticks


@given(st.text("PTDHMSY0123456789.-", max_size=20))
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    try:
        ticks = timespan.ticks_from_text(text)
    except ValueError:
        return
    assert timespan.ticks_from_text(timespan.text_from_ticks(ticks)) == ticks


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (25 * 86_400_000, "25.00:00:00"),
        (301_000, "00:05:01"),
        (1, "00:00:00.0010000"),
        (-1_000, "-00:00:01"),
        (0, "00:00:00"),
    ],
)
def test_spans_as_dotnet_prints_them(ms: int, text: str) -> None:
    assert timespan.dotnet_text(ms) == text


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("string", " a ", " a "),
        ("int", "-5", -5),
        ("int", "2147483647", 2**31 - 1),
        ("long", "9223372036854775807", 2**63 - 1),
        ("unsignedLong", "18446744073709551615", 2**64 - 1),
        ("short", "7", 7),
        ("byte", "-128", -128),
        ("boolean", "true", True),
        ("boolean", "0", False),
        ("boolean", "True", True),
        ("double", "1.5e3", 1500.0),
        ("double", "INF", math.inf),
        ("double", "-inf", -math.inf),
        ("float", "2", 2.0),
        ("decimal", "1.10", Decimal("1.10")),
        ("dateTime", "2020-07-05T11:12:13", datetime.datetime(2020, 7, 5, 11, 12, 13)),
        ("dateTime", "2020-07-05T11:12:13.1234567Z", datetime.datetime(2020, 7, 5, 11, 12, 13, 123456, datetime.UTC)),
        ("duration", "P1DT2H3M", datetime.timedelta(days=1, hours=2, minutes=3)),
        ("guid", "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
        ("base64Binary", "AAE=", b"\x00\x01"),
        ("char", "65", "A"),
        ("anyURI", "sb://a", "sb://a"),
    ],
)
def test_typed_values_are_read(type_name: str, text: str, value: object) -> None:
    read = TypedValue(type_name, text).python
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("int", "2147483648"), ("int", "1.0"), ("int", ""), ("int", "\uff11"), ("byte", "128"), ("unsignedInt", "-1"),
        ("long", "9" * 30), ("boolean", "yes"), ("double", "1e"), ("double", "0x10"), ("double", "1_0"),
        ("double", "Infinity"), ("double", "1" * 100), ("decimal", "NaN"), ("decimal", "1" * 100),
        ("dateTime", "2020-07-05"),
        ("dateTime", "2020-13-05T11:12:13"), ("duration", "1 day"), ("duration", "P9999999999D"), ("guid", "x"),
        ("guid", "0" * 100), ("base64Binary", "A"), ("base64Binary", "é"), ("char", "65536"), ("char", "A"),
        ("QName", "a:b"), ("", "x"), ("anyType", "x"),
    ],
)  # fmt: skip
def test_typed_values_that_cannot_be(type_name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"type|duration|supported"):
        TypedValue(type_name, text)


_scalars = st.one_of(
    st.text(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    st.timedeltas(),
    st.uuids(),
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=4),
)


@given(_scalars)
def test_python_values_come_back_with_their_type(value) -> None:
    read = TypedValue.of(value).python
    assert read == value
    assert type(read) is type(value)


def test_nan_is_a_double() -> None:
    assert TypedValue.of(math.nan) == TypedValue("double", "NaN")


@pytest.mark.parametrize(
    ("value", "type_name"), [(2**31 - 1, "int"), (2**31, "long"), (-(2**31), "int"), (True, "boolean")]
)
def test_integers_take_the_type_that_the_sdks_choose(value: int, type_name: str) -> None:
    assert TypedValue.of(value).type == type_name


def test_an_integer_beyond_64_bits_has_no_type() -> None:
    assert TypedValue.of(2**64 - 1).type == "unsignedLong"
    with pytest.raises(ValueError, match="range of type unsignedLong"):
        TypedValue.of(2**64)


def test_infinities_are_written_as_xml_schema_has_them() -> None:
    assert (TypedValue.of(math.inf).text, TypedValue.of(-math.inf).text) == ("INF", "-INF")
