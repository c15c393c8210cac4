"""Bodies that have a record of their own: large ones, and those that several copies of one message share.

The counts of copies are a row beside the body, so that settling a copy writes a few bytes. Every stored copy is
counted, whether it is live or only kept for a cursor: the last of all frees the row, the last live one frees the
space that counts against the entity's size. In memory a body is kept while an entry in memory refers to it, and
while a read might show older counts than it has.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from polybus.message.message import Message
from polybus.partition import records
from polybus.partition.entry import Entry
from polybus.partition.unsynced import Unsynced

if TYPE_CHECKING:
    from polybus.partition.output import Output

_COUNTS: Final = struct.Struct(">II")


class Body:
    __slots__ = ("copies", "live", "message", "users")

    def __init__(self, message: Message, copies: int, live: int) -> None:
        self.message = message
        self.copies = copies
        """How many stored copies refer to the body."""
        self.live = live
        """How many of them are not settled."""
        self.users = 0
        """How many entries in memory refer to it."""


class Bodies(Unsynced):
    def __init__(self, prefix: bytes) -> None:
        super().__init__()
        self._body_prefix = prefix + records.BODIES
        self._count_prefix = prefix + records.BODY_COUNTS
        self.memory: dict[int, Body] = {}
        self.counter = 0

    def add(self, batch: Output, message: Message, copies: int) -> int:
        """Stores a body for so many copies; the entries that share it are to be `attach`ed."""
        self.counter += 1
        number = self.counter
        batch.put(records.number_key(self._body_prefix, number), records.sealed(message.raw))
        self.memory[number] = Body(message, copies, copies)
        self._write_counts(batch, number)
        return number

    def attach(self, entry: Entry, number: int) -> None:
        body = self.memory[number]
        body.users += 1
        entry.body = number
        entry.message = body.message

    def detach(self, entry: Entry) -> None:
        """An entry leaves memory, its copy stays stored."""
        if entry.body:
            self.memory[entry.body].users -= 1
            self.forgotten(entry.body)

    def share(self, batch: Output, number: int) -> None:
        """One more live copy refers to a body in memory."""
        body = self.memory[number]
        body.copies += 1
        body.live += 1
        self._write_counts(batch, number)

    def settle(self, batch: Output, entry: Entry) -> int:
        """A live copy is only kept from now on; gives the bytes freed when it was the last live one."""
        body = self.memory[entry.body]
        body.live -= 1
        self._write_counts(batch, entry.body)
        self.detach(entry)
        return 0 if body.live else body.message.size

    def release(self, batch: Output, entry: Entry) -> int:
        """A live copy is removed for good; gives the bytes freed when it was the last live one."""
        body = self.memory[entry.body]
        body.live -= 1
        self.drop_copy(batch, entry.body)
        self.detach(entry)
        return 0 if body.live else body.message.size

    def drop_copy(self, batch: Output, number: int) -> None:
        """One stored copy less of a body in memory; with the last one the body goes."""
        body = self.memory[number]
        body.copies -= 1
        if body.copies:
            self._write_counts(batch, number)
        else:
            batch.delete(records.number_key(self._body_prefix, number))
            batch.delete(records.number_key(self._count_prefix, number))
            self.changed(batch, number)

    def forgotten(self, row: object) -> None:
        """The counts in the store are those in memory: without users the body need not stay."""
        assert isinstance(row, int)
        body = self.memory.get(row)
        if body is not None and body.users == 0 and row not in self:
            del self.memory[row]

    def keys(self, numbers: list[int]) -> list[bytes]:
        bodies = [records.number_key(self._body_prefix, number) for number in numbers]
        return bodies + [records.number_key(self._count_prefix, number) for number in numbers]

    def load(self, numbers: list[int], answer: list[object]) -> None:
        """Takes in what was read for `keys(numbers)`; a body that is gone was freed while it was read."""
        for place, number in enumerate(numbers):
            raw, counts = answer[place], answer[len(numbers) + place]
            if number not in self.memory and isinstance(raw, bytes) and isinstance(counts, bytes):
                message = Message(records.unsealed(raw, "a body"), True)
                copies, live = _COUNTS.unpack(records.unsealed(counts, "a body's counts"))
                self.memory[number] = Body(message, copies, live)

    def _write_counts(self, batch: Output, number: int) -> None:
        body = self.memory[number]
        key = records.number_key(self._count_prefix, number)
        batch.put(key, records.sealed(_COUNTS.pack(body.copies, body.live)))
        self.changed(batch, number)
