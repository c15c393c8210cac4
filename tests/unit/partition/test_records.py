from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import StoreCorrupt, StoreVersionMismatch
from polybus.partition import records
from polybus.partition.records import Stored
from tests.unit.partition.kit import body_of, queue
from tests.unit.partition.solo import Solo

RECORD = records.message_record(1, 2, 3, 4, 5, 6, 7, 8, b"overlay", b"raw")


def test_a_message_record_is_read_as_it_was_written() -> None:
    stored = Stored(RECORD)
    fields = (stored.sequence, stored.position, stored.enqueued_ms, stored.expires_ms, stored.delivery_count)
    assert fields == (1, 2, 3, 4, 5)
    assert (stored.original, stored.body, stored.size, stored.overlay, stored.raw) == (6, 7, 8, b"overlay", b"raw")


def test_every_flipped_bit_is_noticed() -> None:
    for place in range(len(RECORD)):
        for bit in range(8):
            damaged = bytearray(RECORD)
            damaged[place] ^= 1 << bit
            with pytest.raises(StoreCorrupt):
                Stored(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    for length in range(len(RECORD)):
        with pytest.raises(StoreCorrupt):
            Stored(RECORD[:length])


def test_another_version_is_refused() -> None:
    payload = bytearray(RECORD[4:])
    payload[0] = records.VERSION + 1
    with pytest.raises(StoreVersionMismatch):
        Stored(records.sealed(bytes(payload)))
    for written, read in (
        (records.broker_record([0] * 9, [0] * 10), records.broker_numbers),
        (records.log_record([0] * 10), records.log_numbers),
    ):
        changed = bytearray(written[4:])
        changed[0] = 99
        with pytest.raises(StoreVersionMismatch):
            read(records.sealed(bytes(changed)))


def read_everything(solo: Solo) -> None:
    solo.crash()
    solo.take_all()
    solo.peek(log_id=1)
    solo.take_all(1)


def test_flipped_bits_in_any_row_are_noticed_when_it_is_read() -> None:
    solo = queue()
    solo.send(b"x" * 40_000)
    solo.send(b"2")
    solo.dead_letter(solo.get())
    for key in list(solo.rows):
        if not solo.rows[key]:
            continue
        original = solo.rows[key]
        solo.rows[key] = original[:-1] + bytes([original[-1] ^ 1])
        with pytest.raises(StoreCorrupt):
            read_everything(solo)
        solo.rows[key] = original
    solo.crash()
    assert [body_of(entry) for entry in solo.take_all()] == [b"2"]


def test_the_keys_of_a_session_do_not_lie_among_those_of_another() -> None:
    names = ["", "a", "aa", "b", "ab", "a\x00", "ä", "\U0001f600" * 128]
    prefixes = sorted(records.session_prefix(b"log", name) for name in names)
    for one, other in pairwise(prefixes):
        assert records.after(one) <= other
    for name in names:
        key = records.number_key(records.session_prefix(b"log", name), 5)
        assert (records.session_of(key, b"log"), records.number_of(key)) == (name, 5)


def test_after_is_the_end_of_a_prefix() -> None:
    assert records.after(b"ab") == b"ac"
    assert records.after(b"a\xff\xff") == b"b\x00\x00"


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.booleans())
def test_staged_messages_come_out_of_their_block_as_they_went_in(raws: list[bytes], plain: bool) -> None:
    block = records.staged_block(raws, plain)
    assert records.staged_messages(block) == (raws, plain)
    damaged = bytes((*block[:-1], block[-1] ^ 1))
    with pytest.raises(StoreCorrupt):
        records.staged_messages(damaged)
