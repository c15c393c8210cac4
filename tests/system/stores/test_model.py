"""Each store against a dictionary: any sequence of batches, reopenings and reads gives the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polybus.store.base import Batch, Row, Store

from .conftest import KINDS, StorePlace, make_place

# Few bytes and short keys: puts, deletes and ranges shall meet one another.
keys = st.binary(max_size=2).map(lambda key: bytes(byte % 5 * 60 for byte in key))
values = st.binary(max_size=6)
ops = st.lists(st.tuples(keys, st.none() | values), max_size=12)
ranges = st.lists(st.tuples(keys, keys), max_size=2)
batches = st.tuples(ranges, ops)
scans = st.tuples(keys, keys, st.integers(0, 8) | st.just(10_000), st.integers(0, 40) | st.just(1 << 62))
steps = st.lists(st.one_of(batches, st.just("reopen"), scans), max_size=8)

Model = dict[bytes, bytes]


def to_batch(step: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes | None]]]) -> Batch:
    batch = Batch()
    for key, value in step[1]:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    for start, end in step[0]:
        batch.delete_range(start, end)
    return batch


def apply(model: Model, batch: Batch) -> None:
    for start, end in batch.ranges:
        for key in [key for key in model if start <= key < end]:
            del model[key]
    for key, value in batch.ops:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def expected_scan(model: Model, start: bytes, end: bytes, limit: int, max_bytes: int) -> list[Row]:
    rows: list[Row] = []
    total = 0
    for key in sorted(model):
        if not start <= key < end:
            continue
        total += len(key) + len(model[key])
        if len(rows) == limit or (rows and total > max_bytes):
            break
        rows.append((key, model[key]))
    return rows


def take(place: StorePlace, store: Store, model: Model, step: object) -> Store:
    if step == "reopen":
        return place.reopen(store)
    assert isinstance(step, tuple)
    if len(step) == 2:
        batch = to_batch(step)
        store.commit(batch)
        apply(model, batch)
    else:
        assert store.scan(*step) == expected_scan(model, *step)
    return store


@pytest.mark.parametrize("kind", KINDS)
def test_like_a_dictionary(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = make_place(kind, tmp_path, request)
    opened = place.open()

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(steps)
    def run(sequence: list[object]) -> None:
        nonlocal opened
        model: Model = {}
        clear = Batch()
        clear.delete_range(b"", b"\xff")
        opened.commit(clear)
        for step in sequence:
            opened = take(place, opened, model, step)
        assert opened.scan(b"", b"\xff", 1_000) == sorted(model.items())
        probe = [b"", *model, b"\xee"]
        assert opened.get(probe) == [model.get(key) for key in probe]

    try:
        run()
    finally:
        place.close()
