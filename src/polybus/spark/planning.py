"""Pure planning: how far a batch goes, and which task reads what.

No network and no Spark in here. A batch takes from each partition in proportion to what waits there, and at least one
message, so that a hot partition starves nobody. Ranges of many partitions are grouped into few tasks: a task costs
Spark tens of milliseconds, a further range in it next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from polybus.limits import SPARK_SPLIT_ROWS
from polybus.spark.offsets import Offset


@dataclass(frozen=True)
class PartitionEnd:
    """One partition's share of a log, as the bus describes it."""

    index: int
    earliest: int
    stable_end: int
    available: bool = True
    average_bytes: float = 0.0


@dataclass(frozen=True, order=True)
class Range:
    """Positions of one partition, both ends included."""

    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def heads(start: Offset, ends: list[PartitionEnd]) -> dict[int, int]:
    """The last positions that can be read now; a partition that is out keeps where it is."""
    found = dict(start.positions)
    for end in ends:
        if end.available:
            found[end.index] = max(end.stable_end, start.position(end.index))
        else:
            found.setdefault(end.index, 0)
    return found


def limited(start: dict[int, int], target: dict[int, int], most: int | None) -> dict[int, int]:
    """Positions on the way to the target, with at most so many messages (or one for each partition that has any)."""
    backlog = {index: max(end - start.get(index, 0), 0) for index, end in target.items()}
    total = sum(backlog.values())
    if most is None or total <= most or not any(count > 1 for count in backlog.values()):
        return {index: start.get(index, 0) + count for index, count in backlog.items()}
    waiting = sum(count > 0 for count in backlog.values())
    rest = max(most - waiting, 0)
    shares = {index: count and 1 + (count - 1) * rest // (total - waiting) for index, count in backlog.items()}
    _deal_rest(shares, backlog, most - sum(shares.values()))
    return {index: start.get(index, 0) + count for index, count in shares.items()}


def _deal_rest(shares: dict[int, int], backlog: dict[int, int], rest: int) -> None:
    """What rounding down has left over goes to those with the most waiting."""
    for index in sorted(backlog, key=lambda each: (-backlog[each], each)):
        if rest <= 0:
            return
        more = min(rest, backlog[index] - shares[index])
        shares[index] += more
        rest -= more


def rows_for_bytes(most_bytes: int, start: dict[int, int], target: dict[int, int], ends: list[PartitionEnd]) -> int:
    """How many messages make about so many bytes, by the average size in partitions that have something to read."""
    sizes = {end.index: end.average_bytes for end in ends}
    counts = {index: max(end - start.get(index, 0), 0) for index, end in target.items()}
    total = sum(counts.values())
    size = sum(counts[index] * sizes.get(index, 0.0) for index in counts)
    return total if size <= most_bytes else max(int(total * most_bytes / size), 1)


def ranges(start: dict[int, int], end: dict[int, int]) -> list[Range]:
    """What lies between two offsets; partitions with nothing new have none."""
    return [
        Range(index, start.get(index, 0) + 1, last)
        for index, last in sorted(end.items())
        if last > start.get(index, 0)
    ]


def count(found: list[Range]) -> int:
    """Messages in these ranges, as far as they are still there."""
    return sum(each.count for each in found)


def split(found: list[Range], pieces: int) -> list[Range]:
    """Cuts the longest ranges until there are so many, or all are single messages. Order inside one is then lost."""
    cut = list(found)
    while cut and len(cut) < pieces:
        longest = max(range(len(cut)), key=lambda place: cut[place].count)
        whole = cut[longest]
        if whole.count < 2:
            break
        middle = (whole.first + whole.last) // 2
        cut[longest : longest + 1] = [
            Range(whole.partition, whole.first, middle),
            Range(whole.partition, middle + 1, whole.last),
        ]
    return cut


def levelled(found: list[Range], tasks: int) -> list[Range]:
    """Cuts ranges that are more than a task's share, so that one hot partition keeps all tasks busy and not one."""
    share = max(-(-count(found) // max(tasks, 1)), SPARK_SPLIT_ROWS)
    return [
        Range(each.partition, first, min(first + share - 1, each.last))
        for each in found
        for first in range(each.first, each.last + 1, share)
    ]


def grouped(found: list[Range], tasks: int) -> list[list[Range]]:
    """Ranges dealt to at most so many tasks, the largest first to whoever has the least."""
    groups: list[list[Range]] = [[] for _ in range(min(max(tasks, 1), len(found)))]
    loads = [0] * len(groups)
    for each in sorted(found, key=lambda one: (-one.count, one.partition, one.first)):
        lightest = loads.index(min(loads))
        groups[lightest].append(each)
        loads[lightest] += each.count
    for group in groups:
        group.sort(key=lambda one: (one.partition, one.first))
    return groups
