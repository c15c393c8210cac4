from __future__ import annotations

import pytest

from polybus.errors import StoreCorrupt, StoreVersionMismatch
from polybus.store import format as store_format
from polybus.store.format import FORMAT_MAJOR, FORMAT_MINOR, StoreFormat, new_format

ID = bytes(range(16))


def test_the_record_of_version_1_stays_readable() -> None:
    record = bytes.fromhex("000102030405060708090a0b0c0d0e0f000100000000018bcfe56800")
    assert StoreFormat.decode(record, "s") == StoreFormat(ID, 1, 0, 1_700_000_000_000)
    assert StoreFormat(ID, 1, 0, 1_700_000_000_000).encode() == record


def test_a_new_store_has_an_id_of_its_own_and_this_version() -> None:
    first, second = new_format(1), new_format(1)
    assert len(first.store_id) == 16
    assert first.store_id != second.store_id
    assert (first.major, first.minor) == (FORMAT_MAJOR, FORMAT_MINOR)
    first.check("s", first.store_id)


def test_a_later_minor_version_is_told_and_refused() -> None:
    record = StoreFormat(ID, FORMAT_MAJOR, FORMAT_MINOR + 7, 5).encode() + b"a field of the future"
    found = StoreFormat.decode(record, "s")
    assert found.store_id == ID
    with pytest.raises(StoreVersionMismatch, match="start a later Polybus"):
        found.check("s")


def test_an_earlier_minor_version_is_read_and_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = StoreFormat(ID, FORMAT_MAJOR, FORMAT_MINOR, 5)
    assert not earlier.is_older
    monkeypatch.setattr(store_format, "FORMAT_MINOR", FORMAT_MINOR + 1)
    earlier.check("s")
    assert earlier.is_older
    assert earlier.raised() == StoreFormat(ID, FORMAT_MAJOR, FORMAT_MINOR + 1, 5)


@pytest.mark.parametrize("major", [0, FORMAT_MAJOR + 1])
def test_another_major_version_is_refused(major: int) -> None:
    with pytest.raises(StoreVersionMismatch, match=rf"s: written in format {major}\.0"):
        StoreFormat(ID, major, 0, 5).check("s")


def test_another_store_is_refused() -> None:
    with pytest.raises(StoreVersionMismatch, match="is store 0001"):
        StoreFormat(ID, FORMAT_MAJOR, 0, 5).check("s", bytes(16))


def test_a_short_record_is_damage() -> None:
    with pytest.raises(StoreCorrupt, match="27 bytes"):
        StoreFormat.decode(bytes(27), "s")
