"""The record that every durable store carries inside: who it is and which format its data has.

The catalogue records placement by the store's id, so the id must live in the store itself: a disk that is
mounted elsewhere keeps it, and a disk that was swapped is noticed. The major number changes when newer code can no
longer read what older code wrote; the minor one when older code must not write to what newer code has opened, for it
would misread or drop what it does not know. So an older minor version is opened and raised, a newer one refused
(docs/how-to/upgrade.md).
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, replace

from polybus.errors import StoreCorrupt, StoreVersionMismatch

FORMAT_MAJOR = 1
FORMAT_MINOR = 1
FORMAT_NAME = "polybus.store"

_RECORD = struct.Struct(">16sHHQ")


@dataclass(frozen=True)
class StoreFormat:
    """Identity and format of one store, as written when it was made."""

    store_id: bytes
    major: int
    minor: int
    created_ms: int

    def encode(self) -> bytes:
        return _RECORD.pack(self.store_id, self.major, self.minor, self.created_ms)

    @staticmethod
    def decode(record: bytes, where: str) -> StoreFormat:
        if len(record) < _RECORD.size:
            raise StoreCorrupt(f"{where}: its format record has {len(record)} bytes, not {_RECORD.size}")
        # Later minor versions may append fields; what is known comes first.
        return StoreFormat(*_RECORD.unpack_from(record))

    @property
    def is_older(self) -> bool:
        """Whether an earlier version wrote it: its record must be raised before anything else is written."""
        return self.minor < FORMAT_MINOR

    def raised(self) -> StoreFormat:
        return replace(self, minor=FORMAT_MINOR)

    def check(self, where: str, store_id: bytes | None = None) -> None:
        """Refuses another major version, a later minor one and, where an id is expected, another store."""
        if self.major != FORMAT_MAJOR or self.minor > FORMAT_MINOR:
            later = (self.major, self.minor) > (FORMAT_MAJOR, FORMAT_MINOR)
            advice = "start a later Polybus" if later else "start the Polybus that wrote it"
            raise StoreVersionMismatch(
                f"{where}: written in format {self.major}.{self.minor}; this version reads {FORMAT_MAJOR}.0 to"
                f" {FORMAT_MAJOR}.{FORMAT_MINOR}: {advice}, or restore a backup of before"
            )
        if store_id is not None and store_id != self.store_id:
            raise StoreVersionMismatch(f"{where}: is store {self.store_id.hex()}, not {store_id.hex()}")


def new_format(created_ms: int, store_id: bytes | None = None) -> StoreFormat:
    """The record of a store that is made now; copies of a store keep its id."""
    return StoreFormat(store_id or uuid.uuid4().bytes, FORMAT_MAJOR, FORMAT_MINOR, created_ms)
