"""How traffic spreads over partitions, and how it would over others: the bus's own hash over the keys as they came.

Pure arithmetic over keys and counts; Spark hands the keys over in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polybus.hashing import partition_for

Loads = Mapping[tuple[int, int], int]
"""(number of partitions, partition) to messages with a key that would be there."""


@dataclass(frozen=True)
class PartitionLoad:
    partition: int
    messages: int
    bytes: int
    keys: int


@dataclass(frozen=True)
class HotKey:
    key: str
    partition: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class KeyBucket:
    """Keys that have from `least` to `most` messages each."""

    least: int
    most: int
    keys: int
    messages: int


@dataclass(frozen=True)
class WhatIf:
    """This very traffic on an entity with so many partitions."""

    partitions: int
    largest: float
    """Messages of the fullest partition."""
    empty: int
    imbalance: float
    """The fullest partition against the mean: 1 is even."""
    floor: float
    """What the hottest key alone makes of the imbalance; no number of partitions goes below it."""


def spread(keys: Iterable[tuple[str, int]], counts: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where the messages of these keys would be, for each number of partitions."""
    loads: dict[tuple[int, int], int] = {}
    for key, messages in keys:
        for count in counts:
            place = (count, partition_for(key, count))
            loads[place] = loads.get(place, 0) + messages
    return loads


def spread_batches(counts: Sequence[int], batches: Iterator[Any]) -> Iterator[Any]:
    """For `mapInArrow`: rows (key, messages) in, rows (partitions, partition, messages) out, added up for this task."""
    import pyarrow as pa

    loads: dict[tuple[int, int], int] = {}
    for batch in batches:
        pairs = zip(batch.column("key").to_pylist(), batch.column("messages").to_pylist(), strict=True)
        for place, messages in spread(pairs, counts).items():
            loads[place] = loads.get(place, 0) + messages
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([place[0] for place in loads], pa.int32()),
            pa.array([place[1] for place in loads], pa.int32()),
            pa.array(list(loads.values()), pa.int64()),
        ],
        names=["partitions", "partition", "messages"],
    )


def what_if(loads: Loads, keyless: int, hottest: int, counts: Sequence[int]) -> list[WhatIf]:
    """One line for each number of partitions. Messages without a key go to the partitions in turn."""
    keyed = dict.fromkeys(counts, 0)
    for (count, _), messages in loads.items():
        keyed[count] += messages
    return [_what_if(loads, count, keyed[count], keyless, hottest) for count in counts]


def _what_if(loads: Loads, count: int, keyed: int, keyless: int, hottest: int) -> WhatIf:
    filled = [loads.get((count, partition), 0) + keyless / count for partition in range(count)]
    mean = (keyed + keyless) / count
    return WhatIf(
        partitions=count,
        largest=max(filled),
        empty=sum(1 for messages in filled if not messages),
        imbalance=max(filled) / mean if mean else 1.0,
        floor=max(1.0, hottest / mean) if mean else 1.0,
    )


def imbalance(values: Sequence[float]) -> float:
    """The largest against the mean; 1 where there is nothing to compare."""
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def advice(now: int, lines: Sequence[WhatIf]) -> str:
    """What the lines say about the number of partitions that there is now."""
    current = next((line for line in lines if line.partitions == now), None)
    if current is None or current.imbalance < 1.25:
        return "The keys spread well over the partitions that there are."
    if current.floor > 0.9 * current.imbalance:
        return (
            "One key alone fills the fullest partition: more partitions would not help, a finer key would"
            " (the order within it is then that of the finer key)."
        )
    # What the fullest has to carry is what counts: a single partition would be even, and carry everything.
    better = [line for line in lines if line.largest < 0.8 * current.largest]
    if not better:
        return (
            "The keys are few or uneven: no number of partitions that was looked at makes the fullest much smaller."
        )
    # Among those that are clearly better the fewest partitions cost the least.
    chosen = min(better, key=lambda line: line.partitions)
    return (
        f"With {chosen.partitions} partitions the fullest would have {round(chosen.largest):,} messages,"
        f" instead of {round(current.largest):,}."
    )
