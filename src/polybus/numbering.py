"""Sequence numbers: the partition in the upper 16 bits, the partition's own counter below.

docs/protocol/semantics.md#sequence-numbers.
"""

from __future__ import annotations

from typing import Final

COUNTER_BITS: Final = 48


def partition_of(number: int) -> int:
    """The index of the partition that gave a sequence number."""
    return number >> COUNTER_BITS


def counter_of(number: int) -> int:
    """A sequence number without its partition."""
    return number & (1 << COUNTER_BITS) - 1


def before_first(partition: int) -> int:
    """What the numbers of a partition are counted from: one less than its first."""
    return partition << COUNTER_BITS
