"""What became of sends from other members, kept by the store that holds the messages: so the next owner can tell.

Whoever sends for clients numbers its sends to a store. The owner writes, in the very batch of the messages, which numbers
it holds, in one row for each sender and batch. When an owner dies, the one that follows reads those rows; since the old
one can write no more, its word on a number is final. Rows go when their sender has heard of all that they name.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from polybus.errors import PartitionUnavailable, PolybusError
from polybus.limits import LEDGER_LOOK_MS, LEDGER_ROW_SENDS, REROUTE_MS
from polybus.partition.output import Output
from polybus.partition.reading import scan_rows
from polybus.partition.records import sealed, unsealed
from polybus.promise import Loop, Promise, pause, spawn

if TYPE_CHECKING:
    from polybus.hosting.store_host import StoreHost

LEDGER: Final = b"L"
"""Table of the ledger in a store: the sender's id, then the first number of the row."""
_NUMBER: Final = struct.Struct(">Q")
_ENTRY: Final = struct.Struct(">QH")
SENDER_BYTES: Final = 16


class NotStored(PartitionUnavailable):
    """The owner is gone, and the one that followed says that nothing of the send is there: it may be sent again."""


class _Row:
    """A row of a sender, as long as it is needed."""

    __slots__ = ("count", "key", "last", "value")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.last = 0
        self.count = 0
        self.value = b""


class _SenderEntries:
    """What a store holds of one sender."""

    __slots__ = ("asked_below", "batch", "numbers", "pending", "rows")

    def __init__(self) -> None:
        self.numbers: dict[int, list[int]] = {}
        self.rows: deque[_Row] = deque()
        self.batch: Output | None = None
        """The output to which the last row belongs."""
        self.pending: set[int] = set()
        """Sends that have come and are not answered."""
        self.asked_below = 0
        """Numbers below were asked about: one that comes after that, over a link that is gone, is refused."""


class SendLedger:
    """The owner's side, of one store."""

    def __init__(self, store: StoreHost, loop: Loop) -> None:
        self._store = store
        self._loop = loop
        self._senders: dict[bytes, _SenderEntries] = {}
        self._loaded: Promise[None] | None = None

    def opened(self) -> None:
        """The store was opened: what others wrote is read before anything is said of it."""
        self._senders = {}
        self._loaded = spawn(self._load())

    async def _load(self) -> None:
        for key, value in reversed(await self._store.run(scan_rows(LEDGER))):
            entries = self._entries(key[len(LEDGER) : len(LEDGER) + SENDER_BYTES])
            row = _Row(key)
            row.last = max(_read(unsealed(value, "a row of the ledger"), entries.numbers), default=0)
            entries.rows.appendleft(row)  # before those that were written since

    def _entries(self, sender: bytes) -> _SenderEntries:
        found = self._senders.get(sender)
        if found is None:
            found = self._senders[sender] = _SenderEntries()
        return found

    # Sends

    def begins(self, sender: bytes, number: int, heard_below: int) -> None:
        """A send has come; its sender has heard of all those with lower numbers than `heard_below`."""
        entries = self._entries(sender)
        if number < entries.asked_below:
            raise PartitionUnavailable("It was said that this is not stored. Try again.")
        entries.pending.add(number)
        while entries.rows and entries.rows[0].last < heard_below and entries.batch is not self._store.batch:
            row = entries.rows.popleft()
            self._store.batch.delete(row.key)
        for known in [known for known in entries.numbers if known < heard_below]:
            del entries.numbers[known]

    def written(self, sender: bytes, number: int) -> None:
        """The messages of the send are in the open batch, whose last reply tells their sequence numbers: so is its
        number."""
        entries = self._entries(sender)
        batch = self._store.batch
        sequences = batch.replies[-1][2]
        assert isinstance(sequences, list), "a send replies with its numbers"
        row = entries.rows[-1] if entries.rows else None
        if row is None or entries.batch is not batch or row.count >= LEDGER_ROW_SENDS:
            row = _Row(LEDGER + sender + _NUMBER.pack(number))
            entries.rows.append(row)
            entries.batch = batch
        row.last = max(row.last, number)
        row.count += 1
        row.value += _ENTRY.pack(number, len(sequences)) + b"".join([_NUMBER.pack(one) for one in sequences])
        entries.numbers[number] = sequences
        batch.put(row.key, sealed(row.value))

    def ends(self, sender: bytes, number: int, stored: bool) -> None:
        """The send was answered."""
        entries = self._entries(sender)
        entries.pending.discard(number)
        if not stored:
            entries.numbers.pop(number, None)

    def forget(self, living: Collection[bytes]) -> None:
        """Removes what is kept for senders that are gone for good: nobody will ask."""
        if not self._store.available or self._loaded is None or not self._loaded.settled:
            return
        for sender in [sender for sender in self._senders if sender not in living]:
            for row in self._senders.pop(sender).rows:
                self._store.batch.delete(row.key)
                self._store.touch()

    # Questions

    def stored(self, sender: bytes, number: int) -> Promise[list[int] | None]:
        """The sequence numbers of a send, or None where it is not stored and never will be."""
        return spawn(self._stored(sender, number))

    async def _stored(self, sender: bytes, number: int) -> list[int] | None:
        if self._loaded is None or not self._store.available:
            raise self._store.unavailable()
        await self._loaded
        entries = self._entries(sender)
        entries.asked_below = max(entries.asked_below, number + 1)
        while number in entries.pending:
            await pause(self._loop, LEDGER_LOOK_MS)
        if not self._store.available or self._senders.get(sender) is not entries:
            raise self._store.unavailable()
        return entries.numbers.get(number)


def _read(value: bytes, numbers: dict[int, list[int]]) -> list[int]:
    """Takes a row apart; gives the numbers that it names."""
    at, found = 0, []
    while at < len(value):
        number, count = _ENTRY.unpack_from(value, at)
        at += _ENTRY.size
        numbers[number] = [_NUMBER.unpack_from(value, at + _NUMBER.size * one)[0] for one in range(count)]
        at += _NUMBER.size * count
        found.append(number)
    return found


Ask = Callable[[bytes, int], Promise[list[int] | None]]
"""Asks whoever owns the store now."""


class NumberedSends:
    """The sender's side: its sends to one store, whoever owns it."""

    def __init__(self, sender: bytes, loop: Loop, ask: Ask) -> None:
        self.sender = sender
        self._loop = loop
        self._ask = ask
        self._last = 0
        self._open: dict[int, None] = {}

    def begin(self) -> int:
        self._last += 1
        self._open[self._last] = None
        return self._last

    @property
    def heard_below(self) -> int:
        """All sends with lower numbers are over."""
        return next(iter(self._open), self._last + 1)

    def end(self, number: int) -> None:
        self._open.pop(number, None)

    def settle(self, number: int) -> Promise[list[int]]:
        """What became of a send whose owner is gone: its sequence numbers; NotStored; or whatever the last answer was,
        where nobody can tell in time."""
        return spawn(self._settle(number))

    async def _settle(self, number: int) -> list[int]:
        waited_ms = 0.0
        try:
            while True:
                try:
                    found = await self._ask(self.sender, number)
                except PolybusError:
                    if waited_ms >= REROUTE_MS:
                        raise
                    await pause(self._loop, LEDGER_LOOK_MS)
                    waited_ms += LEDGER_LOOK_MS
                    continue
                if found is None:
                    raise NotStored(
                        "The node that owned a messaging store is gone, and nothing was stored. Try again."
                    )
                return found
        finally:
            self.end(number)
