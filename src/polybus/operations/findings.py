"""What a check has found wrong, and the readable form of the keys that it speaks of."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from polybus.limits import CHECK_FINDINGS
from polybus.partition import records

PREFIX_BYTES: Final = len(records.partition_prefix(0, 0))
LOG_KINDS: Final = ("main", "dead-letter", "transfer-dead-letter", "unknown")

_TABLES: Final = {
    records.META: "counters",
    records.LOG_META: "log counters",
    records.ACTIVE: "active",
    records.DEFERRED: "deferred",
    records.NUMBERS: "numbers",
    records.SCHEDULED: "scheduled",
    records.DUE: "due",
    records.EXPIRY: "expiry",
    records.DUPLICATE_IDS: "duplicate ids",
    records.DUPLICATE_TIMES: "duplicate times",
    records.SESSION_MESSAGES: "session messages",
    records.SESSION_STATE: "session state",
    records.BODIES: "bodies",
    records.BODY_COUNTS: "body counts",
    records.SETTLED: "settled",
    records.OUTBOX: "outbox",
    records.INBOX: "inbox",
    records.STAGED: "staged",
    records.STAGES: "stages",
    records.EVENTS: "events",
    records.INTENT: "intent for the catalogue",
}
TABLES: Final = frozenset(_TABLES)
LOG_TABLES: Final = (
    records.LOG_META,
    records.ACTIVE,
    records.DEFERRED,
    records.NUMBERS,
    records.SETTLED,
    records.SESSION_MESSAGES,
    records.SESSION_STATE,
    records.EVENTS,
)
"""Those whose keys go on with the id of a log."""
_LOG_NUMBER: Final = PREFIX_BYTES + 1 + 4 + 8
KEY_BYTES: Final = {
    records.META: PREFIX_BYTES + 1,
    records.INTENT: PREFIX_BYTES + 1,
    records.LOG_META: PREFIX_BYTES + 1 + 4,
    records.ACTIVE: _LOG_NUMBER,
    records.DEFERRED: _LOG_NUMBER,
    records.NUMBERS: _LOG_NUMBER,
    records.SETTLED: _LOG_NUMBER,
    records.EVENTS: _LOG_NUMBER,
    records.SCHEDULED: PREFIX_BYTES + 1 + 8,
    records.BODIES: PREFIX_BYTES + 1 + 8,
    records.BODY_COUNTS: PREFIX_BYTES + 1 + 8,
    records.DUE: len(records.due_key(bytes(PREFIX_BYTES), 0, 0)),
    records.EXPIRY: len(records.expiry_key(bytes(PREFIX_BYTES), 0, 0, 0)),
    records.OUTBOX: len(records.outbox_key(bytes(PREFIX_BYTES), 0, 0, 0)),
    records.INBOX: len(records.inbox_key(bytes(PREFIX_BYTES), 0, 0)),
}
"""The length of the keys of those tables in which all are of one length."""


@dataclass(frozen=True)
class CheckFinding:
    """One thing that is not as it should be."""

    store: str
    entity: str
    partition: int | None
    key: str
    problem: str

    @property
    def place(self) -> str:
        return self.entity if self.partition is None else f"{self.entity} partition {self.partition}"


Report = Callable[[bytes, str], None]
"""Called as report(key, problem)."""


class Findings:
    """Keeps the first findings and counts the rest, for a store that is wholly damaged has millions."""

    def __init__(self) -> None:
        self.kept: list[CheckFinding] = []
        self.count = 0

    def add(self, finding: CheckFinding) -> None:
        self.count += 1
        if len(self.kept) < CHECK_FINDINGS:
            self.kept.append(finding)


def log_text(log_id: int) -> str:
    """A log as people call it: `main`, `dead-letter`, or the same of a subscription by its number."""
    number, kind = divmod(log_id, len(LOG_KINDS))
    return f"subscription {number} {LOG_KINDS[kind]}" if number else LOG_KINDS[kind]


def key_text(key: bytes) -> str:
    """A row's key in words; what does not fit any table in hexadecimal digits."""
    table = key[PREFIX_BYTES : PREFIX_BYTES + 1]
    rest = key[PREFIX_BYTES + 1 :]
    if not key.startswith(b"P") or table not in _TABLES:
        return f"key {key.hex()}"
    return f"{_TABLES[table]} {_details(table, key, rest)}".strip()


def _details(table: bytes, key: bytes, rest: bytes) -> str:
    try:
        if table in LOG_TABLES:
            return f"{log_text(int.from_bytes(rest[:4], 'big'))} {_in_log(table, key, rest)}".strip()
        if table == records.EXPIRY:
            expires_ms, log_id, sequence = records.expiry_of(key)
            return f"{log_text(log_id)} number {sequence} at {expires_ms}"
        if table == records.DUE:
            due_ms, sequence = records.due_of(key)
            return f"number {sequence} at {due_ms}"
        if table == records.OUTBOX:
            entity, index, number = records.outbox_of(key)
            return f"to entity {entity} partition {index} number {number}"
        if table == records.INBOX:
            entity, index = records.inbox_of(key)
            return f"from entity {entity} partition {index}"
        return _plain(table, rest)
    except (ValueError, struct.error):
        return rest.hex()


def _in_log(table: bytes, key: bytes, rest: bytes) -> str:
    if table == records.LOG_META:
        return ""
    if table in (records.SESSION_MESSAGES, records.SESSION_STATE):
        session = records.session_of(key, key[: PREFIX_BYTES + 5])
        return f"session {session!r}" + (
            f" number {records.number_of(key)}" if table == records.SESSION_MESSAGES else ""
        )
    return f"number {int.from_bytes(rest[4:], 'big')}"


def _plain(table: bytes, rest: bytes) -> str:
    if table == records.DUPLICATE_IDS:
        return repr(rest.decode())
    if table == records.DUPLICATE_TIMES:
        return f"{rest[8:].decode()!r} at {int.from_bytes(rest[:8], 'big')}"
    if table in (records.STAGED, records.STAGES):
        return f"stage {rest[:16].hex()}" + (f" number {int.from_bytes(rest[16:], 'big')}" if rest[16:] else "")
    return f"number {int.from_bytes(rest, 'big')}" if rest else ""
