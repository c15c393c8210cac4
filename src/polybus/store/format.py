"""The record that every durable store carries inside: who it is and which format its data has.

The catalogue records placement by the store's id, so the id must live in the store itself: a disk that is
mounted elsewhere keeps it, and a disk that was swapped is noticed. The major number changes when older code
would misread the data; the minor one when it would only miss something.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from polybus.errors import StoreCorrupt, StoreVersionMismatch

FORMAT_MAJOR = 1
FORMAT_MINOR = 0
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

    def check(self, where: str, store_id: bytes | None = None) -> None:
        """Refuses another major version and, where an id is expected, another store."""
        if self.major != FORMAT_MAJOR:
            raise StoreVersionMismatch(
                f"{where}: written in format {self.major}.{self.minor}; this version reads {FORMAT_MAJOR}.x"
            )
        if store_id is not None and store_id != self.store_id:
            raise StoreVersionMismatch(f"{where}: is store {self.store_id.hex()}, not {store_id.hex()}")


def new_format(created_ms: int, store_id: bytes | None = None) -> StoreFormat:
    """The record of a store that is made now; copies of a store keep its id."""
    return StoreFormat(store_id or uuid.uuid4().bytes, FORMAT_MAJOR, FORMAT_MINOR, created_ms)
