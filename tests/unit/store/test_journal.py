"""Records of a journal: what is written is read again, what a crash cut off is left out, and damage is said to be."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import StoreCorrupt
from polybus.store.journal import PAGE, Mark, decode, encode, replay, seal
from polybus.store.layers import Change, Layer

MARK = Mark(b"saltsalt", 7, clean=False)
SIZE = 64 * PAGE
small = st.binary(max_size=40)


def record(number: int, ops: list[Change] | None = None, mark: Mark = MARK) -> bytes:
    made = encode([], [(b"key %d" % number, b"value")] if ops is None else ops, number)
    seal(made, mark.seed)
    return bytes(made)


class Files:
    """Segments in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: int, *records: bytes, left_over: bytes = b"") -> None:
        data = b"".join(records)
        (self.folder / f"journal-{name:06d}").write_bytes((data + left_over).ljust(SIZE, b"\0"))

    def replayed(self, mark: Mark = MARK) -> list[int]:
        """The numbers of the records that were found."""
        layer = Layer()
        following = replay(self.folder, mark, layer)
        assert set(layer.rows) == {b"key %d" % number for number in range(mark.following, following)}
        return list(range(mark.following, following))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@given(st.lists(st.tuples(small, small)), st.lists(st.tuples(small, st.none() | small)), st.integers(1, 1 << 60))
def test_a_record_is_read_as_it_was_written(
    ranges: list[tuple[bytes, bytes]], ops: list[Change], number: int
) -> None:
    made = encode(ranges, ops, number)
    assert len(made) % PAGE == 0
    seal(made, 5)
    found = decode(bytes(made), 0, 5, number)
    assert found is not None
    assert (found.ranges, found.ops, found.pages_end) == (ranges, ops, len(made))
    assert decode(bytes(made), 0, 6, number) is None
    assert decode(bytes(made), 0, 5, number + 1) is None


def test_the_form_stays_readable() -> None:
    made = encode([(b"a", b"b")], [(b"k", b"v"), (b"gone", None)], 3)
    seal(made, Mark(b"saltsalt", 1, clean=False).seed)
    head = "50624a31 c9cb921a 20000000 02000000 01000000 00000000 0300000000000000"
    lengths = "01000000 01000000 01000000 02000000 04000000 00000000"
    assert made[:64].hex() == (head.replace(" ", "") + lengths.replace(" ", "") + b"abkvgone".hex())
    assert not any(made[64:])
    assert Mark(b"saltsalt", 258, clean=True).encode().hex() == b"saltsalt".hex() + "0000000000000102" + "01"


def test_no_segment_and_an_empty_one_hold_nothing(files: Files) -> None:
    assert files.replayed() == []
    files.put(1)
    assert files.replayed() == []


def test_records_follow_one_another_over_segments_whatever_their_names(files: Files) -> None:
    files.put(2, record(7), record(8, [(b"key 8", bytes(3 * PAGE))]), record(9))
    files.put(1, record(10), record(11))
    assert files.replayed() == [7, 8, 9, 10, 11]


def test_what_an_earlier_use_left_is_not_read(files: Files) -> None:
    files.put(1, record(7), left_over=record(3) + record(4))
    files.put(2, record(1), record(2), record(5))
    assert files.replayed() == [7]
    assert files.replayed(Mark(MARK.salt, 8, clean=False)) == []


def test_a_clean_journal_is_not_even_looked_at(files: Files) -> None:
    files.put(1, record(7))
    assert files.replayed(Mark(MARK.salt, 7, clean=True)) == []


def test_a_record_that_was_cut_off_at_the_end_is_left_out(files: Files) -> None:
    whole, last = record(7), record(8, [(b"key 8", Random(1).randbytes(5 * PAGE))])
    for page in range(len(last) // PAGE):
        torn = last[: page * PAGE] + bytes(PAGE) + last[(page + 1) * PAGE :]
        files.put(1, whole, torn)
        assert files.replayed() == [7]
        files.put(1, whole, last[: page * PAGE], left_over=record(2))
        assert files.replayed() == [7]


def test_the_first_record_of_a_segment_may_be_cut_off(files: Files) -> None:
    files.put(1, record(7))
    files.put(2, record(8, [(b"key 8", bytes(3 * PAGE))])[:PAGE], left_over=record(3))
    assert files.replayed() == [7]


def test_every_bit_of_a_record_that_others_follow_is_guarded(files: Files) -> None:
    first, second, third = record(7), record(8), record(9)
    random = Random(3)
    places = [*range(32 * 8), *random.sample(range(32 * 8, PAGE * 8), 60)]
    for at, damaged in ((0, first), (1, second)):
        for bit in places:
            flipped = bytearray(damaged)
            flipped[bit // 8] ^= 1 << bit % 8
            records = [first, second, third]
            records[at] = bytes(flipped)
            files.put(1, *records)
            with pytest.raises(StoreCorrupt, match=r"damaged at byte|is missing"):
                files.replayed()


def test_damage_before_another_segment_is_noticed(files: Files) -> None:
    files.put(1, record(7), bytes(PAGE))
    files.put(2, record(9))
    with pytest.raises(StoreCorrupt, match="record 8 of the journal is missing"):
        files.replayed()


def test_a_segment_that_is_gone_is_noticed_by_the_next(files: Files) -> None:
    files.put(2, record(9))
    with pytest.raises(StoreCorrupt, match="record 7 of the journal is missing"):
        files.replayed()


def test_what_a_sender_wrote_cannot_pass_for_a_record(files: Files) -> None:
    """A body with the image of a record, on a page of its own, behind a commit that was cut off."""
    forged = record(99, mark=Mark(b"anything", 1, clean=False))
    files.put(1, record(7), bytes(PAGE), left_over=forged)
    assert files.replayed() == [7]


def test_a_mark_of_another_length_is_damage() -> None:
    with pytest.raises(StoreCorrupt, match="16 bytes, not 17"):
        Mark.decode(bytes(16), "s")
    found = Mark.decode(MARK.encode(), "s")
    assert (found.salt, found.following, found.clean) == (b"saltsalt", 7, False)
