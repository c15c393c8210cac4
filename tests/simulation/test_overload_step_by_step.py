"""F1: a store for which too much waits refuses what must go there, and what may go elsewhere goes elsewhere."""

from __future__ import annotations

import pytest

from polybus.errors import ServerBusy
from polybus.hashing import partition_for
from polybus.hosting import store_host
from tests.support.simulation.small_world import SmallWorld


def key_for(index: int) -> str:
    return next(key for key in map(str, range(100)) if partition_for(key, 2) == index)


def test_f1_a_store_that_is_overloaded_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_host, "UNCOMMITTED_BYTES", 1_000)
    small = SmallWorld(2)
    queue = small.queue("q", 2)
    busy, free = queue.partitions
    assert busy.store is not free.store
    busy.store.batch.put(b"~waits", bytes(2_000))  # and nobody has told the store to write it yet
    assert (busy.store.overloaded, free.store.overloaded) == (True, False)
    with pytest.raises(ServerBusy, match="Too much waits"):
        small.sent("q", "keyed", partition_key=key_for(busy.index))
    small.sent("q", "keyed elsewhere", partition_key=key_for(free.index))
    for number in range(4):
        small.sent("q", f"unkeyed {number}")
    held = [number >> 48 for _, number in small.peeked("q")]
    assert held == [free.index] * 5
    busy.store.touch()
    small.run(1)
    assert not busy.store.overloaded
    small.sent("q", "keyed again", partition_key=key_for(busy.index))
    assert busy.index in [number >> 48 for _, number in small.peeked("q")]
