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


@given(positions, positions)
def test_the_end_of_the_first_batch_tells_where_it_began(start: dict[int, int], end: dict[int, int]) -> None:
    initial = Offset("e", start, "h", first=True)
    first = offset_from(json.loads(json.dumps(initial.at(end).record())))
    if start == end:
        assert first == initial
    else:
        assert (first.positions, first.began, first.first) == (end, start, False)
        assert first.at({**end, 7: 1 << 61}).began is None


@given(positions)
def test_where_nothing_is_new_the_text_stays(found: dict[int, int]) -> None:
    offset = Offset("e", found, "h", began={0: 1})
    assert offset.at(dict(found)).record() == offset.record()


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
