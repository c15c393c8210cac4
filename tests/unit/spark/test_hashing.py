"""The pipeline's copy of the hash is the bus's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polybus.namespace.delivery import routing
from polybus.spark import hashing


@given(st.text(max_size=128), st.integers(1, 64))
def test_both_select_the_same_partition(key: str, partitions: int) -> None:
    assert hashing.partition_for(key, partitions) == routing.partition_for(key, partitions)
