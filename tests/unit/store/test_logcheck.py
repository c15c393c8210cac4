"""The walk over RocksDB's logs, on logs made here: every cut passes, every lie about a length is found."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from polybus.errors import StoreCorrupt
from polybus.store import logcheck
from polybus.store.logcheck import check_log, check_logs

FULL = 1


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(payload: bytes, kind: int = FULL) -> bytes:
    crc = crc32c(bytes([kind]) + payload)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "000004.log"


RECORDS = [record(bytes([number]) * (20 + number)) for number in range(8)]
WHOLE = b"".join(RECORDS)
STARTS = [sum(len(each) for each in RECORDS[:number]) for number in range(len(RECORDS))]


def test_every_cut_is_a_torn_tail_and_passes(log: Path) -> None:
    for cut in range(len(WHOLE) + 1):
        log.write_bytes(WHOLE[:cut])
        check_log(log)


def test_zeros_at_the_end_pass(log: Path) -> None:
    for zeros in (1, 7, 100, 40_000):
        log.write_bytes(WHOLE + bytes(zeros))
        check_log(log)


@pytest.mark.parametrize("start", STARTS)
def test_a_length_that_reaches_past_the_end_is_damage(log: Path, start: int) -> None:
    found = 0
    for bit in range(16):
        damaged = bytearray(WHOLE)
        damaged[start + 4 + bit // 8] ^= 1 << (bit % 8)
        if start + 7 + struct.unpack_from("<H", damaged, start + 4)[0] > len(WHOLE):
            found += 1
            log.write_bytes(damaged)
            with pytest.raises(StoreCorrupt, match=rf"impossible length \d+ at byte {start}"):
                check_log(log)
    assert found >= 7


@pytest.mark.parametrize("kind", [5, 6, 7, 8])
def test_a_type_of_recycled_logs_is_damage(log: Path, kind: int) -> None:
    log.write_bytes(WHOLE + record(b"x", kind))
    with pytest.raises(StoreCorrupt, match=f"impossible type {kind}"):
        check_log(log)


def test_an_empty_header_in_the_middle_is_damage(log: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[STARTS[3] : STARTS[4]] = bytes(STARTS[4] - STARTS[3])
    log.write_bytes(damaged)
    with pytest.raises(StoreCorrupt, match="after an empty one"):
        check_log(log)


def test_records_of_several_blocks(log: Path) -> None:
    block = record(bytes(32_768 - 7 - 3)) + bytes(3)
    assert len(block) == 32_768
    log.write_bytes(block + block + WHOLE[:50])
    check_log(log)
    damaged = bytearray(block + block + WHOLE)
    struct.pack_into("<H", damaged, 32_768 + 4, 40_000)
    log.write_bytes(damaged)
    with pytest.raises(StoreCorrupt, match="impossible length 40000 at byte 32768"):
        check_log(log)


def test_a_zeroed_block_before_a_good_one_is_damage(log: Path) -> None:
    log.write_bytes(WHOLE + bytes(32_768 - len(WHOLE)) + WHOLE)
    with pytest.raises(StoreCorrupt, match="after an empty one"):
        check_log(log)


def test_a_folder_is_checked_for_both_kinds_of_logs(tmp_path: Path) -> None:
    (tmp_path / "LOG").write_bytes(record(b"x", 5))
    check_logs(tmp_path)
    (tmp_path / "MANIFEST-000005").write_bytes(record(b"x", 5))
    with pytest.raises(StoreCorrupt, match="MANIFEST-000005"):
        check_logs(tmp_path)


def test_the_table_is_the_polynomial_of_crc32c() -> None:
    assert logcheck._TABLE[:3] == [0, 0xF26B8303, 0xE13B70F7]
