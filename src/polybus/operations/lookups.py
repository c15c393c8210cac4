"""Index rows that must be there because a message is: looked up in pages, counted, and none left over.

Every message names the index rows it needs. When all of them are found and an index holds no more rows than were
found, message and index agree; only where it holds more is it walked row by row to name the stray ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from polybus.limits import CHECK_PAGE
from polybus.operations.findings import Report, key_text
from polybus.operations.store_reader import StoreReader
from polybus.partition.records import after
from polybus.rows import Row


class Lookups:
    def __init__(self, reader: StoreReader, table: Callable[[bytes], Iterator[Row]], report: Report) -> None:
        self._reader = reader
        self._table = table
        self._report = report
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._owners: list[bytes] = []
        self._found: dict[bytes, int] = {}
        self._prefixes: list[bytes] = []

    def expect(self, prefix: bytes, key: bytes, value: bytes, owner: bytes) -> None:
        """The index `prefix` must hold this row, for the sake of the row `owner`."""
        self._prefixes.append(prefix)
        self._keys.append(key)
        self._values.append(value)
        self._owners.append(owner)
        if len(self._keys) >= CHECK_PAGE:
            self.flush()

    def flush(self) -> None:
        if not self._keys:
            return
        found = self._found
        for at, value in enumerate(self._reader.get(self._keys)):
            if value is None:
                self._report(self._owners[at], f"its index row is missing: {key_text(self._keys[at])}")
            else:
                found[self._prefixes[at]] = found.get(self._prefixes[at], 0) + 1
                if value != self._values[at]:
                    self._report(self._keys[at], "the index row holds something else than its message says")
        for column in (self._keys, self._values, self._owners, self._prefixes):
            column.clear()

    def look_for_strays(self, prefix: bytes, belongs: Callable[[bytes], bool]) -> None:
        """Reports rows of an index that no message asked for; `belongs` decides about one row."""
        self.flush()
        there = sum(1 for _ in self._table(prefix))
        if there == self._found.get(prefix, 0):
            return
        for key, _ in self._reader.rows(prefix, after(prefix)):
            try:
                stray = not belongs(key)
            except struct.error:
                continue  # a key of the wrong length, which is reported already
            if stray:
                self._report(key, "an index row without its message")
