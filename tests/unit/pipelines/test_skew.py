"""Where traffic is and where it would be: the bus's own hash over keys, added up and judged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ConfigError, Unauthorized
from polybus.hashing import partition_for
from polybus.pipelines.declaration import parse
from polybus.pipelines.skew import SkewKind, lags_of
from polybus.pipelines.skew_page import Lag, Skew
from polybus.pipelines.traffic import (
    HotKey,
    KeyBucket,
    PartitionLoad,
    WhatIf,
    advice,
    imbalance,
    spread,
    spread_batches,
    what_if,
)
from polybus.spark.bus import LogState
from polybus.spark.planning import PartitionEnd

KEYS = st.dictionaries(st.text(min_size=1, max_size=20), st.integers(1, 1000), max_size=50)


@given(KEYS, st.integers(0, 500))
def test_every_message_is_somewhere_for_every_number_of_partitions(keys: dict[str, int], keyless: int) -> None:
    loads = spread(keys.items(), (1, 3, 16))
    for count in (1, 3, 16):
        assert sum(messages for place, messages in loads.items() if place[0] == count) == sum(keys.values())
        assert all(0 <= partition < count for number, partition in loads if number == count)
    for line in what_if(loads, keyless, max(keys.values(), default=0), (1, 3, 16)):
        total = sum(keys.values()) + keyless
        assert line.largest <= total + 1e-6
        assert line.imbalance >= 1 - 1e-9
        # The hottest key is in one partition, whatever their number.
        assert line.imbalance >= line.floor - 1e-6
        assert line.imbalance == pytest.approx(line.largest * line.partitions / total if total else 1.0)


def test_keys_go_where_the_bus_itself_puts_them() -> None:
    keys = [(f"customer {number}", number + 1) for number in range(300)]
    expected: dict[tuple[int, int], int] = {}
    for key, messages in keys:
        place = (16, partition_for(key, 16))
        expected[place] = expected.get(place, 0) + messages
    assert spread(keys, (16,)) == expected


def test_tasks_add_up_what_they_were_given() -> None:
    keys = [(f"k{number}", number) for number in range(1, 60)]
    batches = [
        pa.RecordBatch.from_pydict({"key": [key for key, _ in part], "messages": [count for _, count in part]})
        for part in (keys[:20], keys[20:])
    ]
    (out,) = spread_batches((2, 5), iter(batches))
    found = {(row["partitions"], row["partition"]): row["messages"] for row in out.to_pylist()}
    assert found == spread(keys, (2, 5))
    assert [str(field.type) for field in out.schema] == ["int32", "int32", "int64"]


def test_messages_without_a_key_are_even() -> None:
    assert what_if({}, 120, 0, (1, 4)) == [WhatIf(1, 120, 0, 1.0, 1.0), WhatIf(4, 30, 0, 1.0, 1.0)]
    assert what_if({}, 0, 0, (4,)) == [WhatIf(4, 0, 4, 1.0, 1.0)]


def test_one_hot_key_is_not_spread_by_any_number_of_partitions() -> None:
    keys = {"hot": 800, **{f"k{number}": 1 for number in range(200)}}
    lines = what_if(spread(keys.items(), (4, 16, 64)), 0, 800, (4, 16, 64))
    assert [line.floor for line in lines] == pytest.approx([3.2, 12.8, 51.2])
    assert "finer key" in advice(16, lines)


def test_the_advice_follows_the_lines() -> None:
    def line(partitions: int, uneven: float) -> WhatIf:
        return WhatIf(partitions, 32_000 / partitions * uneven, 0, uneven, 1.0)

    assert "spread well" in advice(16, [line(8, 3.0), line(16, 1.1)])
    assert "spread well" in advice(7, [line(8, 3.0)])
    # Fewer partitions are always more even, and carry more each.
    assert "With 32 partitions the fullest would have 1,100 messages, instead of 5,000." in advice(
        16, [line(1, 1.0), line(8, 1.2), line(16, 2.5), line(32, 1.1), line(64, 1.1)]
    )
    assert "much smaller" in advice(16, [line(1, 1.0), line(8, 2.4), line(16, 2.5), line(32, 4.9)])


@pytest.mark.parametrize(("values", "uneven"), [([], 1.0), ([0, 0], 1.0), ([5, 5], 1.0), ([9, 0, 0], 3.0)])
def test_imbalance_is_the_largest_against_the_mean(values: list[float], uneven: float) -> None:
    assert imbalance(values) == uneven


# Lag


class OneEntity:
    def __init__(self, may_manage: bool) -> None:
        self.may_manage = may_manage

    def log(self) -> LogState:
        ends = [PartitionEnd(0, 1, 100), PartitionEnd(1, 1, 0, available=False), PartitionEnd(2, 1, 50)]
        return LogState("1-1", ends, {})

    def cursors(self) -> list[dict[str, object]]:
        return [
            {"name": "own", "positions": {"0": 1}},
            {"name": "lake", "positions": {"0": 90, "2": 60}},
        ]

    def partitions(self) -> list[dict[str, object]]:
        if not self.may_manage:
            raise Unauthorized("no")
        return [{"index": index, "counts": {"active": index + 7}} for index in range(3)]


def test_lag_is_told_for_receivers_and_for_the_cursors_of_others() -> None:
    assert lags_of(OneEntity(True), "own") == [  # type: ignore[arg-type]
        Lag(0, 7, {"lake": 10}),
        Lag(1, None, {}),
        Lag(2, 9, {"lake": 0}),
    ]


def test_who_may_not_manage_is_told_the_cursors() -> None:
    assert lags_of(OneEntity(False), "own")[0] == Lag(0, None, {"lake": 10})  # type: ignore[arg-type]


# The page


def test_the_page_has_every_number_beside_its_plot() -> None:
    skew = Skew(
        entity="orders",
        when="just now",
        partitions=[PartitionLoad(0, 30, 3000, 2), PartitionLoad(1, 10, 1000, 1)],
        buckets=[KeyBucket(1, 1, 1, 1), KeyBucket(16, 31, 2, 39)],
        hot=[HotKey("<hot>", 0, 28, 2800)],
        keyless=3,
        lags=[Lag(0, 12, {"lake": 4}), Lag(1, None)],
        lines=[WhatIf(2, 30, 0, 1.5, 1.4), WhatIf(4, 25, 1, 2.5, 1.0)],
    )
    assert (skew.messages, skew.imbalance, skew.hottest_share) == (40, 1.5, 0.7)
    html = skew.html()
    assert html.count("<svg") == html.count("<table") == 5
    for text in ("&lt;hot&gt;", "1.50 times the mean", "16-31", "2 (now)", "finer key", "in turn: 3."):
        assert text in html


# The declaration

HEAD = """
bus: {connectionStringEnv: BUS}
checkpoints: state
pipelines:
  - {name: hot, kind: skew, from: orders, %s}
"""


def test_a_declaration(tmp_path: Path) -> None:
    (kind,) = parse(HEAD % "to: out, over: 2h, partitions: [8, 4, 8], top: 5", "p.yml", tmp_path).pipelines
    assert isinstance(kind, SkewKind)
    assert kind.describe() == f"keys and partitions of orders, over 2h, to {tmp_path / 'out'}"
    assert [each.entity for each in kind.entities()] == ["orders"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("over: 1h", "to: is missing"),
        ("to: out, partitions: [0]", "partitions: [0] is not allowed"),
        ("to: out, partitions: 5", "partitions: 5 is not allowed"),
        ("to: out, partitions: [true]", "partitions: [True] is not allowed"),
        ("to: out, top: 0", "top: 0 is not allowed"),
    ],
)
def test_a_fault_says_where_it_is(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(HEAD % text, "p.yml", tmp_path)
    assert where in str(caught.value)
