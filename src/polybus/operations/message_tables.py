"""Reading a log's rows: every record looked at, the settled index walked beside the active table."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from polybus.errors import PolybusError
from polybus.message.message import GROUP_ID, Message
from polybus.message.overlay import overlay_from_bytes
from polybus.operations.bodies import BodyBook
from polybus.operations.findings import Report
from polybus.partition import records
from polybus.partition.records import SettledMark, Stored
from polybus.rows import Row

BROKEN: Final = (PolybusError, struct.error, ValueError)
"""What comes of reading bytes that are not what they should be."""
PAST_ALL: Final = 1 << 64


def read_message(value: bytes) -> Stored:
    """A message's record, its checksum and version looked at. The sender's bytes were when they came in."""
    stored = Stored(value)
    if stored.overlay:
        overlay_from_bytes(stored.overlay)
    return stored


def session_of(stored: Stored, bodies: BodyBook) -> str | None:
    """The session that a message belongs to; StoreCorrupt where its body cannot be read."""
    if stored.overlay:
        fields = overlay_from_bytes(stored.overlay).fields
        if GROUP_ID in fields:
            changed = fields[GROUP_ID]
            return changed if isinstance(changed, str) else None
    message = bodies.message(stored.body) if stored.body else Message(stored.raw, True)
    return message.session_id


class SettledIndex:
    """The settled index of a log, walked beside its active table."""

    def __init__(self, rows: Iterator[Row], report: Report) -> None:
        self.broken = False
        self._rows = rows
        self._report = report
        self._next()

    def _next(self) -> None:
        self._key, self._value = next(self._rows, (b"", b""))
        self._rank = records.number_of(self._key) if self._key else PAST_ALL

    def at(self, rank: int) -> SettledMark | None:
        """The mark of this rank, if there is one; those that were passed by have no message."""
        while self._rank < rank:
            self._report(self._key, "marks a message as settled that is missing")
            self._next()
        if self._rank != rank or not self._key:
            return None
        key, value = self._key, self._value
        self._next()
        try:
            return SettledMark(value)
        except BROKEN as error:
            self._report(key, str(error))
            self.broken = True
            return None
