"""The page of `kind: skew`: partitions, keys, lag, and other numbers of partitions, as plots and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from polybus.pipelines import charts
from polybus.pipelines.reports import Cell, ReportTable, Section, page
from polybus.pipelines.traffic import HotKey, KeyBucket, PartitionLoad, WhatIf, advice, imbalance


@dataclass(frozen=True)
class Lag:
    """Messages of one partition that wait: for receivers, and for each cursor. None where it cannot be told."""

    partition: int
    waiting: int | None
    cursors: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Skew:
    """Everything that the page shows."""

    entity: str
    when: str
    partitions: Sequence[PartitionLoad]
    """One for each partition that there is, in order."""
    buckets: Sequence[KeyBucket]
    hot: Sequence[HotKey]
    keyless: int
    lags: Sequence[Lag]
    lines: Sequence[WhatIf]

    @property
    def messages(self) -> int:
        return sum(load.messages for load in self.partitions)

    @property
    def imbalance(self) -> float:
        return imbalance([load.messages for load in self.partitions])

    @property
    def hottest_share(self) -> float:
        return self.hot[0].messages / self.messages if self.hot and self.messages else 0.0

    def html(self) -> str:
        subtitle = f"{self.messages:,} messages, {self.when}"
        sections = [self._partitions(), self._hot(), self._keys(), self._lag(), self._what_if()]
        return page(f"Skew of {self.entity}", subtitle, sections)

    def _partitions(self) -> Section:
        loads = self.partitions
        names = [str(load.partition) for load in loads]
        mean = self.messages / max(len(loads), 1)
        rows: list[list[Cell]] = [
            [load.partition, load.messages, _percent(load.messages, self.messages), load.keys, load.bytes]
            for load in loads
        ]
        return Section(
            "Partitions",
            f"The fullest partition has {self.imbalance:.2f} times the mean (the broken line); 1.00 is even."
            f" Messages without a key, which go to the partitions in turn: {self.keyless:,}.",
            charts.bars("Messages by partition", names, [load.messages for load in loads], mark=mean),
            ReportTable(["partition", "messages", "%", "keys", "bytes"], rows),
        )

    def _hot(self) -> Section:
        rows: list[list[Cell]] = [
            [hot.key, hot.partition, hot.messages, _percent(hot.messages, self.messages), hot.bytes]
            for hot in self.hot
        ]
        return Section(
            "Hot keys",
            "Session ids and partition keys with the most messages.",
            charts.rows("Messages by key", [hot.key for hot in self.hot], [hot.messages for hot in self.hot]),
            ReportTable(["key", "partition", "messages", "%", "bytes"], rows),
        )

    def _keys(self) -> Section:
        names = [_range(bucket) for bucket in self.buckets]
        rows: list[list[Cell]] = [
            [name, bucket.keys, bucket.messages, _percent(bucket.messages, self.messages)]
            for name, bucket in zip(names, self.buckets, strict=True)
        ]
        return Section(
            "Keys by their number of messages",
            f"{sum(bucket.keys for bucket in self.buckets):,} keys.",
            charts.bars("Keys by number of messages", names, [bucket.keys for bucket in self.buckets]),
            ReportTable(["messages of a key", "keys", "messages", "%"], rows),
        )

    def _lag(self) -> Section:
        cursors = sorted({name for lag in self.lags for name in lag.cursors})
        rows: list[list[Cell]] = [
            [lag.partition, lag.waiting, *(lag.cursors.get(name) for name in cursors)] for lag in self.lags
        ]
        known = [(str(lag.partition), lag.waiting) for lag in self.lags if lag.waiting is not None]
        return Section(
            "Lag",
            "Messages that wait for receivers, and what each cursor has not read.",
            charts.bars(
                "Waiting messages by partition", [name for name, _ in known], [waiting for _, waiting in known]
            ),
            ReportTable(["partition", "waiting", *cursors], rows),
        )

    def _what_if(self) -> Section:
        now = len(self.partitions)
        names = [
            f"{line.partitions} (now)" if line.partitions == now else str(line.partitions) for line in self.lines
        ]
        rows: list[list[Cell]] = [
            [name, round(line.largest), round(line.imbalance, 3), round(line.floor, 3), line.empty]
            for name, line in zip(names, self.lines, strict=True)
        ]
        judged = advice(now, self.lines) if self.messages else "There was none."
        return Section(
            "Other numbers of partitions",
            f"Where the bus's own hash would have put this very traffic; the broken line is an even load. {judged}",
            charts.bars(
                "Fullest partition, times the mean, by number of partitions",
                names,
                [line.imbalance for line in self.lines],
                mark=1.0,
            ),
            ReportTable(["partitions", "fullest", "times the mean", "hottest key alone", "empty"], rows),
        )


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def _range(bucket: KeyBucket) -> str:
    return str(bucket.least) if bucket.least == bucket.most else f"{bucket.least}-{bucket.most}"
