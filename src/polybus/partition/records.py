"""The stored form of everything a broker keeps: keys and values, their version and their checksums.

A key begins with the entity's id (never given twice, so an entity created again never sees old rows) and the
partition's index, then a table's letter. Numbers are big-endian, so byte order is number order. A value begins
with a CRC-32 of the rest and the version of its form; one that does not fit is `StoreCorrupt`, never misread.
"""

from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be

from polybus.errors import StoreCorrupt, StoreVersionMismatch

try:
    from isal.isal_zlib import crc32  # the same sums by the processor's own instructions
except ImportError:  # there is no wheel of it for this platform
    from zlib import crc32

VERSION: Final = 1
"""Of the records of messages."""
COUNTERS_VERSION: Final = 2
_VERSION_AND_ZERO: Final = bytes((VERSION, 0))
_COUNTERS_VERSION: Final = bytes((COUNTERS_VERSION,))

# Tables of one partition.
META: Final = b"!"  # the counters of the broker and of its main log
LOG_META: Final = b"L"  # log -> its counters, of every other log
ACTIVE: Final = b"M"  # log, rank -> message
DEFERRED: Final = b"D"  # log, sequence -> message
NUMBERS: Final = b"X"  # log, sequence -> rank, where the rank is not the sequence
SCHEDULED: Final = b"S"  # sequence -> message
DUE: Final = b"T"  # due time, sequence
EXPIRY: Final = b"E"  # expiry time, log, sequence
DUPLICATE_IDS: Final = b"U"  # message id -> time
DUPLICATE_TIMES: Final = b"V"  # time, message id
SESSION_MESSAGES: Final = b"Q"  # log, session, sequence
SESSION_STATE: Final = b"N"  # log, session -> state
BODIES: Final = b"B"  # body -> bytes
BODY_COUNTS: Final = b"C"  # body -> how many copies refer to it
SETTLED: Final = b"Z"  # log, rank: settled, but kept for a cursor
OUTBOX: Final = b"F"  # destination, number -> message on its way there
INBOX: Final = b"R"  # source -> the last number taken over from it
STAGED: Final = b"G"  # stage, number -> messages not yet published, from this number on
STAGES: Final = b"H"  # stage -> what is known of it
EVENTS: Final = b"A"  # log, position -> event
INTENT: Final = b"O"  # one row: what a transaction still has to do in the catalogue

_PREFIX: Final = struct.Struct(">cIH")
_LOG: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_LOG_NUMBER: Final = struct.Struct(">IQ")
_TIME_NUMBER: Final = struct.Struct(">QQ")
_TIME_LOG_NUMBER: Final = struct.Struct(">QIQ")
_LENGTH: Final = struct.Struct(">H")
_DESTINATION: Final = struct.Struct(">IHQ")
_SOURCE: Final = struct.Struct(">IH")
_SETTLED: Final = struct.Struct(">QQIQ")
_CRC: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">BBQQqqIQQQI")
_SEALED_HEAD: Final = struct.Struct(_CRC.format + _HEAD.format[1:])
_POSITION_BODY: Final = struct.Struct(">Q28xQ")
"""The position in a message's record, and further on the number of its body."""
_POSITION_AT: Final = 14
_BROKER: Final = struct.Struct(">BQQQQQQQQQQQQQQQQQQQ")
BROKER_NUMBERS: Final = 9
"""The first numbers of a broker's record are its own; those of its main log follow."""
_LOG_STATE: Final = struct.Struct(">BQQQQQQQQQQ")

HEAD_BYTES: Final = _SEALED_HEAD.size


def partitions_prefix() -> bytes:
    """What every key of every partition begins with."""
    return b"P"


def entity_prefix(entity_id: int) -> bytes:
    """What the keys of all its partitions begin with."""
    return partition_prefix(entity_id, 0)[:-2]


def partition_prefix(entity_id: int, index: int) -> bytes:
    return _PREFIX.pack(b"P", entity_id, index)


def after(prefix: bytes) -> bytes:
    """The smallest key that is greater than every key with this prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")


def number_key(prefix: bytes, number: int) -> bytes:
    return prefix + number.to_bytes(8, "big")


def number_of(key: bytes) -> int:
    """The number in the last eight bytes of a key."""
    return int(_NUMBER.unpack_from(key, len(key) - 8)[0])


def log_prefix(prefix: bytes, table: bytes, log: int) -> bytes:
    return prefix + table + _LOG.pack(log)


def due_key(prefix: bytes, due_ms: int, sequence: int) -> bytes:
    return prefix + DUE + _TIME_NUMBER.pack(due_ms, sequence)


def due_of(key: bytes) -> tuple[int, int]:
    due_ms, sequence = _TIME_NUMBER.unpack_from(key, len(key) - 16)
    return due_ms, sequence


def expiry_key(prefix: bytes, expires_ms: int, log: int, sequence: int) -> bytes:
    return prefix + EXPIRY + _TIME_LOG_NUMBER.pack(expires_ms, log, sequence)


def expiry_of(key: bytes) -> tuple[int, int, int]:
    expires_ms, log, sequence = _TIME_LOG_NUMBER.unpack_from(key, len(key) - 20)
    return expires_ms, log, sequence


def session_prefix(log_part: bytes, session: str) -> bytes:
    """The length comes first, so that no session's rows lie among another's."""
    text = session.encode()
    return log_part + _LENGTH.pack(len(text)) + text


def session_of(key: bytes, log_part: bytes) -> str:
    at = len(log_part)
    length = _LENGTH.unpack_from(key, at)[0]
    return key[at + 2 : at + 2 + length].decode()


def outbox_key(prefix: bytes, entity: int, index: int, number: int) -> bytes:
    return prefix + OUTBOX + _DESTINATION.pack(entity, index, number)


def outbox_of(key: bytes) -> tuple[int, int, int]:
    entity, index, number = _DESTINATION.unpack_from(key, len(key) - _DESTINATION.size)
    return entity, index, number


def inbox_key(prefix: bytes, entity: int, index: int) -> bytes:
    return prefix + INBOX + _SOURCE.pack(entity, index)


def inbox_of(key: bytes) -> tuple[int, int]:
    entity, index = _SOURCE.unpack_from(key, len(key) - _SOURCE.size)
    return entity, index


def sealed_number(number: int) -> bytes:
    return sealed(_NUMBER.pack(number))


def unsealed_number(value: bytes, what: str) -> int:
    return int(_NUMBER.unpack(unsealed(value, what))[0])


def sealed(payload: bytes) -> bytes:
    """A value with its checksum in front."""
    return crc32(payload).to_bytes(4, "big") + payload


def unsealed(value: bytes, what: str) -> bytes:
    if len(value) < 4 or _CRC.unpack_from(value)[0] != crc32(value[4:]):
        raise StoreCorrupt(f"the checksum of {what} is wrong")
    return value[4:]


_BLOCK: Final = struct.Struct(">BBI")
_BLOCK_FORM: Final = 1
"""What a block begins with. A message that stands alone, as older versions wrote it, begins with 0 or is empty."""


def staged_block(raws: list[bytes], plain: bool) -> bytes:
    """Several staged messages as one value; `plain` says that none of them has times of its own."""
    head = _BLOCK.pack(_BLOCK_FORM, plain, len(raws))
    lengths = struct.pack(f">{len(raws)}I", *[len(raw) for raw in raws])
    return sealed(b"".join((head, lengths, *raws)))


def staged_messages(value: bytes) -> tuple[list[bytes], bool]:
    """The messages of a staged block, and whether none of them has times of its own."""
    payload = unsealed(value, "a staged message")
    if payload[:1] != b"\x01":
        return [payload], False
    _, plain, count = _BLOCK.unpack_from(payload)
    at = _BLOCK.size + 4 * count
    raws: list[bytes] = []
    for length in struct.unpack_from(f">{count}I", payload, _BLOCK.size):
        raws.append(payload[at : at + length])
        at += length
    return raws, bool(plain)


class Stored:
    """A message's record, taken apart."""

    __slots__ = (
        "body",
        "delivery_count",
        "enqueued_ms",
        "expires_ms",
        "original",
        "overlay",
        "position",
        "raw",
        "sequence",
        "size",
    )

    sequence: int
    position: int
    enqueued_ms: int
    expires_ms: int
    delivery_count: int
    original: int
    body: int
    size: int

    def __init__(self, value: bytes) -> None:
        if len(value) < HEAD_BYTES:
            raise StoreCorrupt("a message record is too short")
        checksum: int
        version: int
        overlay: int
        (
            checksum,
            version,
            _,
            self.sequence,
            self.position,
            self.enqueued_ms,
            self.expires_ms,
            self.delivery_count,
            self.original,
            self.body,
            self.size,
            overlay,
        ) = _SEALED_HEAD.unpack_from(value)
        if checksum != crc32(value[4:]):  # a memoryview would cost more than the copy
            raise StoreCorrupt("the checksum of a message record is wrong")
        check_version(version)
        self.overlay = value[HEAD_BYTES : HEAD_BYTES + overlay] if overlay else b""
        self.raw = value[HEAD_BYTES + overlay :]


def message_record(
    sequence: int,
    position: int,
    enqueued_ms: int,
    expires_ms: int,
    delivery_count: int,
    original: int,
    body: int,
    size: int,
    overlay: bytes,
    raw: bytes,
) -> bytes:
    """A message's value; `raw` is empty where `body` names a body record."""
    out = BytesWriter()
    out.write(_VERSION_AND_ZERO)
    write_i64_be(out, sequence)
    write_i64_be(out, position)
    write_i64_be(out, enqueued_ms)
    write_i64_be(out, expires_ms)
    write_i32_be(out, delivery_count)
    write_i64_be(out, original)
    write_i64_be(out, body)
    write_i64_be(out, size)
    write_i32_be(out, len(overlay))
    out.write(overlay)
    head = out.getvalue()
    return b"".join((crc32(raw, crc32(head)).to_bytes(4, "big"), head, raw))


def position_and_body(value: bytes) -> tuple[int, int]:
    """Of a message's record only its position and the number of its body, 0 where that is inside. The checksum is
    left to whoever takes the record apart."""
    if len(value) < HEAD_BYTES:
        raise StoreCorrupt("a message record is too short")
    check_version(value[_CRC.size])
    position, body = _POSITION_BODY.unpack_from(value, _POSITION_AT)
    return int(position), int(body)


def are_whole(values: list[bytes]) -> bool:
    """Whether all these records have their bodies inside: most have, and a look at single bytes costs next to
    nothing in the compiled build, where bulk reads look at every record."""
    for value in values:
        if len(value) < HEAD_BYTES or value[4] != VERSION:
            return False
        if value[57] or value[56] or value[55] or value[54] or value[53] or value[52] or value[51] or value[50]:
            return False
    return True


def with_body(value: bytes, raw: bytes) -> bytes:
    """The record of a message whose body lay elsewhere, now inside."""
    stored = Stored(value)
    return message_record(
        stored.sequence,
        stored.position,
        stored.enqueued_ms,
        stored.expires_ms,
        stored.delivery_count,
        stored.original,
        0,
        stored.size,
        stored.overlay,
        raw,
    )


def check_version(version: int, expected: int = VERSION) -> None:
    if version != expected:
        raise StoreVersionMismatch(f"a record has form {version}; this version of Polybus reads form {expected}")


class SettledMark:
    """What the settled index says of a message that is kept for a cursor."""

    __slots__ = ("body", "position", "settled_ms", "size")

    def __init__(self, value: bytes) -> None:
        self.position, self.settled_ms, self.size, self.body = _SETTLED.unpack(
            unsealed(value, "a mark in the settled index")
        )


def settled_mark(position: int, settled_ms: int, size: int, body: int) -> bytes:
    return sealed(_SETTLED.pack(position, settled_ms, size, body))


def broker_record(numbers: list[int], main: list[int]) -> bytes:
    """The counters of a broker with those of its main log: nearly every batch changes both."""
    return _sealed_counters(numbers, main)


def broker_numbers(value: bytes) -> tuple[list[int], list[int]]:
    payload = unsealed(value, "a partition's counters")
    check_version(payload[0], COUNTERS_VERSION)
    _, *numbers = _BROKER.unpack(payload)
    return numbers[:BROKER_NUMBERS], numbers[BROKER_NUMBERS:]


def log_record(numbers: list[int]) -> bytes:
    return _sealed_counters(numbers, [])


def _sealed_counters(numbers: list[int], others: list[int]) -> bytes:
    out = BytesWriter()
    out.write(_COUNTERS_VERSION)
    for number in numbers:
        write_i64_be(out, number)
    for number in others:
        write_i64_be(out, number)
    return sealed(out.getvalue())


def log_numbers(value: bytes) -> list[int]:
    payload = unsealed(value, "a log's counters")
    check_version(payload[0], COUNTERS_VERSION)
    _, *numbers = _LOG_STATE.unpack(payload)
    return numbers
