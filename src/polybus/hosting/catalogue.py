"""The catalogue: what exists, where it lies, and the single commit point of management.

A small store of its own. Every change of entities, rules, cursors or producers is one batch here; what has to be
done elsewhere because of it (removing a deleted entity's rows, publishing what was staged) is written down in the
same batch and done afterwards, as often as it takes. Memory and catalogue never part: a commit that failed may have
been written all the same, so the catalogue is opened again and asked before its caller hears anything.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final

from polybus.errors import PolybusError, ServerBusy, StoreError, StoreVersionMismatch
from polybus.hashing import HASH_VERSION
from polybus.hosting.store_host import InDoubt
from polybus.limits import REOPEN_MS
from polybus.partition.records import after, sealed, unsealed
from polybus.promise import Loop, Promise, pause
from polybus.rows import Batch, Row, Scan
from polybus.store.base import Store
from polybus.store.driver import StoreDriver

FORMAT: Final = 1

META: Final = b"c/meta"
ENTITY: Final = b"e/"
SUBSCRIPTION: Final = b"s/"
RULE: Final = b"r/"
TOMBSTONE: Final = b"d/"
"""What was deleted and is not yet removed from the stores."""
DOUBT: Final = b"x/"
CURSOR: Final = b"u/"
PRODUCER: Final = b"p/"
PUBLISHED: Final = b"t/"
ACCESS: Final = b"a/"

Record = dict[str, Any]
_ENTITY: Final = struct.Struct(">I")
_SUBSCRIPTION: Final = struct.Struct(">II")
_RULE: Final = struct.Struct(">IIQ")


def entity_key(entity_id: int) -> bytes:
    return ENTITY + _ENTITY.pack(entity_id)


def subscription_key(entity_id: int, number: int) -> bytes:
    return SUBSCRIPTION + _SUBSCRIPTION.pack(entity_id, number)


def rule_key(entity_id: int, number: int, order: int) -> bytes:
    return RULE + _RULE.pack(entity_id, number, order)


def rules_prefix(entity_id: int, number: int) -> bytes:
    return RULE + _SUBSCRIPTION.pack(entity_id, number)


class Changes:
    """Changes of the catalogue that belong together."""

    def __init__(self) -> None:
        self.batch = Batch()

    def put(self, key: bytes, record: Record) -> Changes:
        self.batch.put(key, sealed(json.dumps(record, sort_keys=True).encode()))
        return self

    def delete(self, key: bytes) -> Changes:
        self.batch.delete(key)
        return self

    def delete_prefix(self, prefix: bytes) -> Changes:
        self.batch.delete_range(prefix, after(prefix))
        return self


Opener = Callable[[], Promise[StoreDriver]]


class Catalogue:
    """Reads everything once; then writes, one batch after the other."""

    def __init__(self, opener: Opener) -> None:
        self.loop: Loop | None = None
        """Whose time passes between two tries to open the catalogue again."""
        self.on_opened: Callable[[], None] | None = None
        """Called when it can be read."""
        self.on_written: Callable[[int, Batch], Promise[None]] | None = None
        """Called with the number and the batch of each commit, in their order; whoever has written waits for it."""
        self._opener = opener
        self._driver: StoreDriver | None = None
        self._busy: Promise[None] | None = None
        self._asking = False
        self._closed = False
        self._writes = 0
        """The number of the last commit, by which the catalogue tells whether it has it."""
        self.next_entity = 1
        self.incarnation = 0
        self.stores: list[str] = []
        """Ids of the messaging stores, in the order in which they were first seen."""
        self.places: dict[str, str] = {}
        """Where each of them was seen last, by its id."""

    async def open(self) -> None:
        """Opens the store and checks that this version can read what it holds."""
        self._driver = await self._opener()
        rows = await self.rows(META)
        if rows:
            meta = decode(rows[0])
            if meta["format"] != FORMAT or meta["hash"] != HASH_VERSION:
                raise StoreVersionMismatch(
                    f"the catalogue has format {meta['format']} and hash {meta['hash']}; this version of Polybus"
                    f" reads format {FORMAT} and hash {HASH_VERSION}"
                )
            self.next_entity = meta["next_entity"]
            self.incarnation = meta["incarnation"]
            self.stores = meta["stores"]
            self.places = meta.get("places", {})
            self._writes = meta["writes"]
        if self.on_opened is not None:
            self.on_opened()

    async def rows(self, prefix: bytes) -> list[Row]:
        """Every row whose key begins with the prefix."""
        found: list[Row] = []
        start = prefix
        while True:
            page = await self._read(Scan(start, after(prefix), 1000))
            found += page
            if len(page) < 1000:
                return found
            start = page[-1][0] + b"\x00"

    async def all_rows(self) -> list[Row]:
        """Everything that the catalogue holds."""
        return [row for first in range(0xFF) for row in await self.rows(bytes([first]))]

    @property
    def revision(self) -> int:
        """The number of the last commit."""
        return self._writes

    def _read(self, scan: Scan) -> Promise[list[Row]]:
        promise: Promise[list[Row]] = Promise()

        def done(rows: list[Any], error: StoreError | None) -> None:
            if error is None:
                promise.resolve(rows)
            else:
                failure = ServerBusy("The catalogue could not be read.")
                failure.__cause__ = error
                promise.reject(failure)

        self._require().read(scan, done)
        return promise

    def _require(self) -> StoreDriver:
        if self._driver is None:
            raise ServerBusy("The catalogue is not available.")
        return self._driver

    async def write(self, changes: Changes) -> None:
        """Commits the changes; ServerBusy where they are not there. While nobody knows, the caller waits.

        InDoubt where the bus stops meanwhile: the next process will know.
        """
        if self._asking:
            raise ServerBusy("The catalogue is not available.")
        while self._busy is not None:
            await self._busy
        self._busy = Promise()
        told: Promise[None] | None = None
        try:
            await self._write(changes)
            if self.on_written is not None:
                told = self.on_written(self._writes, changes.batch)
        except PolybusError:
            self._next()
            raise
        self._next()
        if told is not None:
            await told

    @property
    def store(self) -> Store:
        """What it is kept in; ServerBusy where that is away."""
        return self._require().store

    async def hold(self) -> None:
        """Writes nothing until `let_go`; whoever writes meanwhile waits."""
        while self._busy is not None:
            await self._busy
        self._busy = Promise()

    def let_go(self) -> None:
        self._next()

    def _next(self) -> None:
        """The one who waits longest may write."""
        busy, self._busy = self._busy, None
        assert busy is not None, "somebody has written"
        busy.resolve(None)

    async def _write(self, changes: Changes) -> None:
        if self._driver is None:
            await self._reopen()
        self._writes += 1
        self._add_meta(changes)
        error = await self._commit(changes)
        if error is None:
            return
        await self._drop()
        there = await self._is_there()
        if there is None:
            raise InDoubt("The bus is stopping, and the catalogue failed during a commit.") from error
        if not there:
            raise ServerBusy("The catalogue could not be written.") from error

    async def _reopen(self) -> None:
        try:
            self._driver = await self._opener()
        except StoreError as error:
            raise ServerBusy("The catalogue is not available.") from error

    async def _is_there(self) -> bool | None:
        """Whether the catalogue holds the last commit after all; asked as often as it takes, or until it is closed."""
        assert self.loop is not None, "a catalogue that is written to has a loop"
        self._asking = True
        try:
            while not self._closed:
                await pause(self.loop, REOPEN_MS)
                there = await self._look()
                if there is not None:
                    return there
            return None
        finally:
            self._asking = False

    async def _look(self) -> bool | None:
        """Whether it holds the last commit; None where it cannot be asked now."""
        try:
            await self._reopen()
            rows = await self.rows(META)
        except ServerBusy:
            await self._drop()
            return None
        return bool(rows) and bool(decode(rows[0])["writes"] == self._writes)

    def _add_meta(self, changes: Changes) -> None:
        meta: Record = {
            "format": FORMAT,
            "hash": HASH_VERSION,
            "next_entity": self.next_entity,
            "incarnation": self.incarnation,
            "stores": self.stores,
            "places": self.places,
            "writes": self._writes,
        }
        changes.put(META, meta)

    def _commit(self, changes: Changes) -> Promise[StoreError | None]:
        promise: Promise[StoreError | None] = Promise()
        self._require().commit(changes.batch, promise.resolve)
        return promise

    def _drop(self) -> Promise[None]:
        promise: Promise[None] = Promise()
        driver, self._driver = self._driver, None
        if driver is None:
            promise.resolve(None)
        else:
            driver.close(lambda _: promise.resolve(None))
        return promise

    async def next_incarnation(self) -> int:
        """A number that no broker has had: lock tokens of earlier ones are told by it."""
        self.incarnation += 1
        given = self.incarnation
        await self.write(Changes())
        return given

    def close(self) -> Promise[None]:
        self._closed = True
        return self._drop()


def decode(row: Row) -> Record:
    record = json.loads(unsealed(row[1], "a record of the catalogue"))
    assert isinstance(record, dict), "every record of the catalogue is an object"
    return record
