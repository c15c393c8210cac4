"""What every messaging store does, whatever it is made of."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from polybus.errors import StoreError, StoreFenced
from polybus.store.base import Batch, Row, Store
from polybus.store.rocks import RocksStore

from .conftest import StorePlace

END = b"\xff"


def commit(store: Store, *ops: tuple[bytes, bytes | None], ranges: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    batch = Batch()
    for start, end in ranges:
        batch.delete_range(start, end)
    for key, value in ops:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    store.commit(batch)


def put(store: Store, *keys: bytes) -> None:
    commit(store, *((key, b"v" + key) for key in keys))


def keys(store: Store) -> list[bytes]:
    return [key for key, _ in store.scan(b"", END, 1_000)]


def test_a_new_store_is_empty_and_has_an_id(store: Store) -> None:
    assert store.scan(b"", END, 10) == []
    assert store.get([b"a"]) == [None]
    assert len(store.store_id) == 16


def test_get_answers_in_the_order_asked(store: Store) -> None:
    put(store, b"a", b"b", b"c")
    assert store.get([b"c", b"x", b"a", b"c"]) == [b"vc", None, b"va", b"vc"]
    assert store.get([b"b"]) == [b"vb"]
    assert store.get([]) == []


def test_scans_are_in_byte_order(store: Store) -> None:
    shuffled = [b"b", b"\x80", b"", b"a\x00", b"a", b"\xfe\xff", b"B", b"aa", b"\x00", b"a\xff", b"\x7f", b"ab"]
    put(store, *shuffled)
    assert keys(store) == sorted(shuffled)


def test_a_scan_has_its_start_and_not_its_end(store: Store) -> None:
    put(store, b"a", b"b", b"c", b"d")
    assert store.scan(b"b", b"d", 10) == [(b"b", b"vb"), (b"c", b"vc")]
    assert store.scan(b"aa", b"cc", 10) == [(b"b", b"vb"), (b"c", b"vc")]
    assert store.scan(b"e", END, 10) == []
    assert store.scan(b"d", b"b", 10) == []
    assert store.scan(b"b", b"b", 10) == []


def test_a_scan_ends_at_its_limit(store: Store) -> None:
    put(store, b"a", b"b", b"c")
    assert [key for key, _ in store.scan(b"", END, 2)] == [b"a", b"b"]
    assert store.scan(b"", END, 0) == []


@pytest.mark.parametrize(("max_bytes", "expected"), [(0, 1), (10, 1), (11, 1), (21, 1), (22, 2), (32, 2), (33, 3)])
def test_a_scan_ends_before_its_bytes_but_gives_one_row(store: Store, max_bytes: int, expected: int) -> None:
    commit(store, *((bytes([letter]), b"x" * 10) for letter in b"abcd"))
    assert len(store.scan(b"", END, 10, max_bytes)) == expected


def test_a_value_can_be_replaced_removed_and_empty(store: Store) -> None:
    commit(store, (b"a", b"1"), (b"b", b"1"))
    commit(store, (b"a", b"2"), (b"b", None), (b"c", None), (b"d", b""))
    assert store.scan(b"", END, 10) == [(b"a", b"2"), (b"d", b"")]


def test_inside_a_batch_the_last_word_counts(store: Store) -> None:
    commit(store, (b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2"), (b"c", b"3"), (b"c", b"4"))
    assert store.scan(b"", END, 10) == [(b"b", b"2"), (b"c", b"4")]


def test_range_deletes_come_before_what_the_batch_puts(store: Store) -> None:
    put(store, b"a", b"b", b"c", b"d")
    batch = Batch()
    batch.put(b"b", b"new")
    batch.delete(b"d")
    batch.delete_range(b"a", b"c")
    batch.delete_range(b"bb", b"bc")
    store.commit(batch)
    assert store.scan(b"", END, 10) == [(b"b", b"new"), (b"c", b"vc")]


def test_a_range_has_its_start_and_not_its_end(store: Store) -> None:
    put(store, b"a", b"b", b"c")
    commit(store, ranges=((b"a", b"b"),))
    assert keys(store) == [b"b", b"c"]


def test_a_range_that_ends_before_it_starts_is_empty(store: Store) -> None:
    put(store, b"a", b"b")
    commit(store, (b"c", b"1"), ranges=((b"z", b"a"), (b"a", b"a")))
    put(store, b"d")
    assert keys(store) == [b"a", b"b", b"c", b"d"]


def test_an_empty_batch_is_fine(store: Store) -> None:
    store.commit(Batch())
    assert keys(store) == []


def test_large_values_and_batches(store: Store) -> None:
    body = bytes(range(256)) * 4_096
    commit(store, (b"body", body))
    put(store, *(b"%05d" % number for number in range(3_000)))
    assert store.get([b"body"]) == [body]
    assert len(store.scan(b"0", b"9", 10_000)) == 3_000


def test_a_long_scan_ends_exactly_at_its_limits(store: Store) -> None:
    rows = [(b"%05d" % number, b"v" * (number * 37 % 301)) for number in range(3_000)]
    rows[1_500] = (rows[1_500][0], b"w" * 200_000)
    commit(store, *rows)
    for limit in (1_000, 1_500, 2_999, 3_000, 3_001):
        assert store.scan(b"", END, limit) == rows[:limit]
        assert store.scan(b"00010", b"02000", limit) == rows[10:2_000][:limit]
        for max_bytes in (0, 5, 306, 10_000, 150_000, 232_000, 240_000, 430_000, 440_000):
            expected, left = 1, max_bytes - len(rows[0][0] + rows[0][1])
            while expected < limit and expected < len(rows):
                left -= len(rows[expected][0] + rows[expected][1])
                if left < 0:
                    break
                expected += 1
            assert store.scan(b"", END, limit, max_bytes) == rows[:expected], (limit, max_bytes)


def test_a_commit_survives_reopening(place: StorePlace) -> None:
    store = place.open()
    put(store, b"a", b"b")
    commit(store, (b"a", None))
    again = place.reopen(store)
    assert keys(again) == [b"b"]
    assert again.store_id == store.store_id
    put(again, b"c")
    assert keys(place.reopen(again)) == [b"b", b"c"]


def test_a_closed_store_answers_nothing(place: StorePlace) -> None:
    store = place.open()
    put(store, b"a")
    store.close()
    store.close()
    with pytest.raises(StoreFenced):
        store.get([b"a"])
    with pytest.raises(StoreFenced):
        store.scan(b"", END, 1)
    with pytest.raises(StoreFenced):
        put(store, b"b")


def test_an_old_owner_cannot_write(place: StorePlace) -> None:
    old = place.open()
    put(old, b"a")
    new = place.reopen(old)
    with pytest.raises(StoreFenced):
        put(old, b"b")
    assert keys(new) == [b"a"]


def test_a_scan_sees_one_moment(store: Store) -> None:
    """A writer moves one row from left to right and back; whoever scans finds it on exactly one side."""
    commit(store, (b"left", b"1"))
    stop = threading.Event()

    def move() -> None:
        there = True
        while not stop.is_set():
            commit(store, (b"left", None if there else b"1"), (b"right", b"1" if there else None))
            there = not there

    mover = threading.Thread(target=move)
    mover.start()
    try:
        seen = {tuple(keys(store)) for _ in range(200)}
        together = [store.get([b"left", b"right"]) for _ in range(200)]
    finally:
        stop.set()
        mover.join()
    assert seen <= {(b"left",), (b"right",)}
    assert all((left is None) != (right is None) for left, right in together)


def test_rows_once_given_do_not_change(store: Store) -> None:
    put(store, b"a")
    rows: list[Row] = store.scan(b"", END, 10)
    commit(store, (b"a", b"other"), (b"b", b"1"))
    assert rows == [(b"a", b"va")]


def test_a_checkpoint_is_a_store_of_its_own(store: Store, tmp_path: Path) -> None:
    put(store, *(b"%05d" % number for number in range(2_500)))
    store.checkpoint(tmp_path / "copy")
    put(store, b"later")
    copy = RocksStore(tmp_path / "copy")
    try:
        assert copy.store_id == store.store_id
        assert copy.scan(b"", END, 10_000) == store.scan(b"", b"9", 10_000)
        put(copy, b"in the copy")
    finally:
        copy.close()
    assert store.get([b"later", b"in the copy"]) == [b"vlater", None]


def test_a_copy_shows_the_moment_that_was_fixed(store: Store, tmp_path: Path) -> None:
    put(store, b"a")
    copy = store.copy(tmp_path / "copy")
    put(store, b"b")
    copy.fix()
    put(store, b"c")
    copy.save()
    copy.close()
    saved = RocksStore(tmp_path / "copy")
    try:
        assert saved.scan(b"", END, 10) == [(b"a", b"va"), (b"b", b"vb")]
    finally:
        saved.close()


def test_a_copy_that_is_given_up_leaves_nothing(store: Store, tmp_path: Path) -> None:
    for fixed in (False, True):
        copy = store.copy(tmp_path / "copy")
        if fixed:
            copy.fix()
        copy.close()
    assert not (tmp_path / "copy").exists()
    put(store, b"a")
    store.checkpoint(tmp_path / "copy")


def test_a_checkpoint_does_not_overwrite(store: Store, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(StoreError, match="exists"):
        store.checkpoint(tmp_path / "copy")


def test_free_space_is_known_or_not(store: Store) -> None:
    free = store.free_bytes()
    assert free is None or free > 0
