"""Offsets: the same offset is always the same text, and what is not ours is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ConfigError
from polybus.spark.offsets import Offset, offset_from

positions = st.dictionaries(st.integers(0, 300), st.integers(0, 1 << 62), max_size=20)


@given(positions)
def test_an_offset_comes_back_from_its_journal(found: dict[int, int]) -> None:
    offset = Offset("7-123", found, "holder")
    assert offset_from(json.loads(json.dumps(offset.record()))) == offset


@given(positions)
def test_the_text_does_not_depend_on_the_order_of_partitions(found: dict[int, int]) -> None:
    turned = dict(reversed(list(found.items())))
    assert json.dumps(Offset("e", found).record()) == json.dumps(Offset("e", turned).record())


@given(positions)
def test_partitions_are_in_order_as_text_too(found: dict[int, int]) -> None:
    keys = list(Offset("e", found).record()["p"])
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"e": "1", "h": "", "p": [], "v": 1},
        {"e": "1", "h": "", "p": {"x": 1}, "v": 1},
        {"e": "1", "p": {}, "v": 2},
    ],
)
def test_what_is_not_ours_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        offset_from(record)
