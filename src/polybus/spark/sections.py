"""What the columns of a read need of each message, found by one walk over all of them (AMQP 1.0 §3.2)."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from polybus.spark.texts import Texts, joined
from polybus.spark.walking import BYTES, LISTS, MAPS, NULL, TEXTS, Flags, Numbers, Octets, SectionWalk, Value

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION, DATA = range(0x70, 0x76)
FIELDS: Final = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "session_id": 10,
    "reply_to_session_id": 12,
}
"""Columns that are fields of the properties section, and which."""
_LAST_FIELD: Final = 12
_PARTITION_KEY: Final = b"x-opt-partition-key"
_SCHEDULED: Final = b"x-opt-scheduled-enqueue-time"
_DEAD_LETTER: Final = (b"DeadLetterReason", b"DeadLetterErrorDescription")
_PAIRS: Final = 32
"""Pairs of a map that are walked over; each costs a step of all messages, and hardly one has more."""


_SIGNED: Final = (0x51, 0x54, 0x55, 0x61, 0x71, 0x81)
_UNSIGNED: Final = (0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x80)
_WIDEST: Final = 8
_FLOATS: Final = {0x72: struct.Struct(">f"), 0x82: struct.Struct(">d")}
_TRUTH: Final = {(0x41, b""): "true", (0x42, b""): "false", (0x56, b"\x01"): "true", (0x56, b"\x00"): "false"}


def plain_text(kind: int, raw: bytes) -> str | None:
    """A number or truth value as the text that a property has; None where it is something else."""
    if kind in _SIGNED:
        return str(int.from_bytes(raw, "big", signed=True))
    if kind in _UNSIGNED:
        return str(int.from_bytes(raw, "big"))
    if kind in _FLOATS and len(raw) == _FLOATS[kind].size:
        return str(_FLOATS[kind].unpack(raw)[0])
    return _TRUTH.get((kind, raw))


class Pairs:
    """The pairs of all maps, those of one message behind each other."""

    def __init__(self) -> None:
        self._parts: list[tuple[Numbers, Value, Value]] = []

    def add(self, rows: Numbers, key: Value, value: Value) -> None:
        self._parts.append((rows, key, value))

    def add_all(self, other: Pairs, rows: Numbers) -> None:
        """Those of messages that are these rows."""
        self._parts += [(rows[owners], key, value) for owners, key, value in other._parts]

    def add_alike(self, other: Pairs, rows: Numbers, away: Numbers) -> None:
        """Those of a single message that began at 0, for rows that have the same from these places on."""
        for _, key, value in other._parts:
            self._parts.append((rows, key.moved(away), value.moved(away)))

    def of(self, rows: Numbers | slice, total: int) -> tuple[Numbers, Texts, Texts]:
        """How many pairs each of these rows has, and their keys and values as texts."""
        among = np.zeros(total, np.bool_)
        among[rows] = True
        owners = np.concatenate([part[0] for part in self._parts]) if self._parts else np.zeros(0, np.int64)
        kept = np.nonzero(among[owners])[0]
        kept = kept[np.argsort(owners[kept], kind="stable")]
        counts = np.bincount(owners[kept], minlength=total)[rows].astype(np.int64)
        return counts, self._texts(1, kept), self._texts(2, kept)

    def _texts(self, which: int, kept: Numbers) -> Texts:
        if not self._parts:
            return Texts(kept, kept)
        values = [part[which] for part in self._parts]
        at = np.concatenate([value.at for value in values])  # type: ignore[union-attr]
        length = np.concatenate([value.length for value in values])  # type: ignore[union-attr]
        return Texts(at[kept], length[kept])


class Sections:
    """Texts, pairs and bodies of many messages; `plain` tells for which of them they are right."""

    def __init__(self, walk: SectionWalk, columns: tuple[str, ...], *, walked: bool = True) -> None:
        at = walk.at.copy()
        self._columns = columns
        self._walk = walk
        self.texts: dict[str, Texts] = {}
        """By column, for those that any of the messages has."""
        self._at = at
        self.pairs = Pairs()
        self.body = Texts.none_of(at)
        self.converted: Flags = np.zeros(len(at), np.bool_)
        """Messages for which texts were made of numbers and truth values."""
        self._more: list[Octets] = []
        self.plain: Flags = self._walked() if walked else self.converted.copy()

    @classmethod
    def empty(cls, data: Octets, at: Numbers, columns: tuple[str, ...]) -> Sections:
        """For messages that begin here, none of which has been looked at."""
        return cls(SectionWalk(data, at, at), columns, walked=False)

    def _walked(self) -> Flags:
        self._walk.skip_section(HEADER)
        self._walk.skip_section(DELIVERY_ANNOTATIONS)
        self._annotations()
        self._properties()
        self._application()
        self._data()
        return self._walk.ended() & self.body.present

    def _text(self, name: str) -> Texts:
        if name not in self.texts:
            self.texts[name] = Texts.none_of(self._at)
        return self.texts[name]

    def put_walked(self, other: Sections, rows: Numbers) -> None:
        """What a walk over these rows alone has found."""
        for name, texts in other.texts.items():
            self._text(name).put(rows, texts.at, texts.length)
        self.body.put(rows, other.body.at, other.body.length)
        self.plain[rows] = other.plain
        self.pairs.add_all(other.pairs, rows)
        self._more += other._more

    def put_alike(self, other: Sections, rows: Numbers, away: Numbers) -> None:
        """What was found in a single message that began at 0, for rows that have the same from these places on."""
        for name, texts in other.texts.items():
            self._text(name).put(rows, texts.at + away, texts.length)
        self.body.put(rows, other.body.at + away, other.body.length)
        self.plain[rows] = True
        self.pairs.add_alike(other.pairs, rows, away)

    def _annotations(self) -> None:
        wanted = "partition_key" in self._columns or "scheduled_enqueue_time" in self._columns
        if not wanted:
            self._walk.skip_section(ANNOTATIONS)
            return
        walk, rows = self._walk, self._walk.section(ANNOTATIONS)
        for some, key, value in self._map(rows):
            named = key.length == len(_PARTITION_KEY)
            if named.any() and "partition_key" in self._columns:
                named[named] = walk.equal(key.at[named], _PARTITION_KEY)
                walk.leave(some, named & ~value.is_one_of(TEXTS))
                self._text("partition_key").put(some[named], value.at[named], value.length[named])
            timed = key.length == len(_SCHEDULED)
            if timed.any() and "scheduled_enqueue_time" in self._columns:
                walk.leave(some, timed)

    def _properties(self) -> None:
        walk, rows = self._walk, self._walk.section(PROPERTIES)
        if not len(rows):
            return
        at, count, end = walk.compound(rows, LISTS)
        names = {field: name for name, field in FIELDS.items() if name in self._columns}
        for field in range(_LAST_FIELD + 1):
            here = field < count
            if not here.any():
                break
            if (walk.byte(at) == NULL).all():  # most fields, of most messages
                at = at + here
                continue
            value = walk.value(at)
            if field in names:
                self._field(names[field], rows, here, value)
            at = np.where(here, value.after, at)
        walk.leave(rows, at != end)
        walk.at[rows] = end

    def _field(self, name: str, rows: Numbers, here: Flags, value: Value) -> None:
        given = here & (value.kind != NULL)
        if not given.any():
            return
        self._walk.leave(rows, given & ~value.is_one_of(TEXTS))
        self._text(name).put(rows[given], value.at[given], value.length[given])

    def _application(self) -> None:
        walk = self._walk
        reasons = any(name.startswith("dead_letter") for name in self._columns)
        if "properties" not in self._columns and not reasons:
            walk.skip_section(APPLICATION)
            return
        for some, key, value in self._map(walk.section(APPLICATION)):
            for name in _DEAD_LETTER if reasons else ():
                long = key.length == len(name)
                if long.any():
                    long[long] = walk.equal(key.at[long], name)
                    walk.leave(some, long)
            if "properties" in self._columns:
                self.pairs.add(some, key, self._as_text(some, value))

    def _as_text(self, rows: Numbers, value: Value) -> Value:
        """Numbers and truth values become texts behind the data; messages with anything else are given up on."""
        other = np.nonzero(~value.is_one_of(TEXTS))[0]
        if not len(other):
            return value
        data, known = self._walk.data, np.ones(len(rows), np.bool_)
        texts: list[str] = []
        for place in other.tolist():
            first, size = int(value.at[place]), int(value.length[place])
            raw = data[first : first + size].tobytes() if size <= _WIDEST else b""
            text = plain_text(int(value.kind[place]), raw)
            known[place] = text is not None
            texts.append(text or "")
        self._walk.leave(rows, ~known)
        more, at, length = joined(texts)
        self.converted[rows[other]] = True
        value.at[other], value.length[other] = at + len(data) + sum(map(len, self._more)), length
        self._more.append(more)
        return value

    @property
    def data(self) -> Octets:
        """The data with the texts that were made of it: what places of pairs are in."""
        return np.concatenate((self._walk.data, *self._more)) if self._more else self._walk.data

    def _map(self, rows: Numbers) -> list[tuple[Numbers, Value, Value]]:
        """The pairs of a map in each of these messages: first ones, second ones, …, as far as they have them."""
        walk, found = self._walk, list[tuple[Numbers, Value, Value]]()
        if not len(rows):
            return found
        at, count, end = walk.compound(rows, MAPS)
        walk.leave(rows, (count > 2 * _PAIRS) | (count % 2 != 0))
        walk.at[rows] = end
        left = np.minimum(count, 2 * _PAIRS)
        while True:
            here = left > 0
            if not here.all():
                walk.leave(rows[~here], (at != end)[~here])
                rows, at, end, left = rows[here], at[here], end[here], left[here]
            if not len(rows):
                return found
            key = walk.value(at)
            walk.leave(rows, ~key.is_one_of(TEXTS))
            value = walk.value(key.after)
            found.append((rows, key, value))
            at, left = value.after, left - 2

    def _data(self) -> None:
        walk, rows = self._walk, self._walk.section(DATA)
        if not len(rows):
            return
        value = walk.value(walk.at[rows])
        walk.leave(rows, ~value.is_one_of(BYTES))
        self.body.put(rows, value.at, value.length)
        walk.at[rows] = value.after
