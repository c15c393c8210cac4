"""Bodies that have a record of their own: large ones, and those that several copies of one message share.

The count of copies is a row beside the body, so that settling a copy writes a few bytes. In memory a body is
kept while an entry in memory refers to it.
"""

from __future__ import annotations

import struct
from typing import Final

from polybus.errors import StoreCorrupt
from polybus.message.message import Message
from polybus.partition import records
from polybus.partition.entry import Entry
from polybus.rows import Batch

_COUNT: Final = struct.Struct(">I")


class Body:
    __slots__ = ("copies", "message", "users")

    def __init__(self, message: Message, copies: int) -> None:
        self.message = message
        self.copies = copies
        """How many stored copies refer to the body."""
        self.users = 0
        """How many entries in memory do."""


class Bodies:
    def __init__(self, prefix: bytes) -> None:
        self._body_prefix = prefix + records.BODIES
        self._count_prefix = prefix + records.BODY_COUNTS
        self._memory: dict[int, Body] = {}
        self.counter = 0

    def add(self, batch: Batch, message: Message, copies: int) -> int:
        """Stores a body for so many copies; the entries that share it are to be `attach`ed."""
        self.counter += 1
        number = self.counter
        batch.put(records.number_key(self._body_prefix, number), records.sealed(message.raw))
        self._write_count(batch, number, copies)
        self._memory[number] = Body(message, copies)
        return number

    def attach(self, entry: Entry, number: int) -> None:
        body = self._memory[number]
        body.users += 1
        entry.body = number
        entry.message = body.message

    def detach(self, entry: Entry) -> None:
        """An entry leaves memory, its copy stays stored."""
        body = self._memory.get(entry.body)
        if body is not None:
            body.users -= 1
            if body.users <= 0:
                del self._memory[entry.body]

    def release(self, batch: Batch, entry: Entry) -> int:
        """An entry's stored copy is removed for good; gives the bytes freed when it was the last."""
        freed = self.release_copy(batch, entry.body)
        self.detach(entry)
        return freed

    def release_copy(self, batch: Batch, number: int) -> int:
        """One stored copy less of a body that is in memory; gives the bytes freed when it was the last."""
        body = self._memory[number]
        body.copies -= 1
        if body.copies > 0:
            self._write_count(batch, number, body.copies)
            if body.users == 0:
                del self._memory[number]
            return 0
        batch.delete(records.number_key(self._body_prefix, number))
        batch.delete(records.number_key(self._count_prefix, number))
        if body.users == 0:
            del self._memory[number]
        return body.message.size

    def missing(self, entries: list[Entry]) -> list[int]:
        """The bodies that must be read before these entries can be used."""
        found: dict[int, None] = {}
        for entry in entries:
            if entry.body and entry.body not in self._memory:
                found[entry.body] = None
        return list(found)

    def keys(self, numbers: list[int]) -> list[bytes]:
        bodies = [records.number_key(self._body_prefix, number) for number in numbers]
        return bodies + [records.number_key(self._count_prefix, number) for number in numbers]

    def load(self, numbers: list[int], answer: list[object]) -> None:
        """Takes in what was read for `keys(numbers)`."""
        for place, number in enumerate(numbers):
            raw, count = answer[place], answer[len(numbers) + place]
            if not isinstance(raw, bytes) or not isinstance(count, bytes):
                raise StoreCorrupt(f"body {number} is missing though a message refers to it")
            copies = int(_COUNT.unpack(records.unsealed(count, "a body's count"))[0])
            if number not in self._memory:
                message = Message(records.unsealed(raw, "a body"))
                self._memory[number] = Body(message, copies)

    def _write_count(self, batch: Batch, number: int, copies: int) -> None:
        batch.put(records.number_key(self._count_prefix, number), records.sealed(_COUNT.pack(copies)))
