"""What clients did and saw, as an append-only history that the verifier can judge.

Each client records an `Event` for every operation when its outcome is known (ok, failed, or unknown), and the
test harness records what it did to the bus (restart, fencing, a moved clock). A history is a list in memory
or a file of JSON lines, one for each event; clients in other processes write files of their own, which
`merge` brings into one order by time. The same events give the same bytes.

`began_ms` and `ended_ms` bracket the moment at which the bus acted, on the monotonic clock of the machine:
for a send, from the call to its answer; for a delivery, from the moment the lock began (locked-until minus
the lock's duration, where the client can tell, else the call) to the moment the client saw it. The verifier
only judges what is certain given these brackets, so a wide one hides faults but never invents any.

`outcome` is about the effect: `failed` means that nothing was done, `unknown` that nobody knows (a time-out, a
broken connection, an in-doubt commit). No checking lives here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from polybus.clock import Clock

OK: Final = "ok"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"

DEAD_LETTER_QUEUE: Final = "/$deadletterqueue"
"""The end of the entity name under which a dead-letter queue's own operations are recorded."""


class Op:
    """The operations that a history knows."""

    SEND: Final = "send"
    BATCH_SEND: Final = "batch_send"  # one event for each message; `batch` names the batch they share
    SCHEDULE: Final = "schedule"  # `number` is the one to cancel by, `due_ms` the wall time
    CANCEL: Final = "cancel"
    RESCHEDULE: Final = "reschedule"  # a scheduled message is given another `due_ms`; `digest` is of what it becomes
    MOVE: Final = "move"  # sent here by whoever took it from elsewhere by its number: never dropped as a duplicate

    RECEIVE: Final = "receive"  # under a lock
    RECEIVE_AND_DELETE: Final = "receive_and_delete"
    RECEIVE_DEFERRED: Final = "receive_deferred"  # without a token it was received and deleted
    PEEK: Final = "peek"
    PURGE: Final = "purge"  # removed for good by its number, without a lock
    UNDEFER: Final = "undefer"  # a deferred message is active again; `number` is the one it was deferred under
    EXPIRE: Final = "expire"  # somebody saw that a message is gone because its time-to-live is over

    COMPLETE: Final = "complete"
    ABANDON: Final = "abandon"
    RELEASE: Final = "release"  # unlocked without raising the delivery count
    DEFER: Final = "defer"
    DEAD_LETTER: Final = "dead_letter"
    RENEW: Final = "renew"

    SESSION_ACCEPT: Final = "session_accept"
    SESSION_RENEW: Final = "session_renew"
    SESSION_RELEASE: Final = "session_release"
    SESSION_LOST: Final = "session_lost"  # the bus took it; `began_ms` is when it was last known to be held
    LINK_CLOSED: Final = "link_closed"

    DECLARE: Final = "declare"
    COMMIT: Final = "commit"
    ROLLBACK: Final = "rollback"

    RESTART: Final = "restart"  # every lock of the bus ends between `began_ms` and `ended_ms`
    FENCED: Final = "fenced"  # the locks of `partitions` of `entity` end; without an entity, of every entity
    CLOCK_MOVED: Final = "clock_moved"  # the bus's clocks went ahead of the recorders' by moved_*_ms; also
    # recorded just before the recorders' own wall clock is set back, so that its highest reading is known


SENDS: Final = frozenset({Op.SEND, Op.BATCH_SEND, Op.SCHEDULE, Op.MOVE})
DELIVERIES: Final = frozenset({Op.RECEIVE, Op.RECEIVE_AND_DELETE, Op.RECEIVE_DEFERRED})
SETTLEMENTS: Final = frozenset({Op.COMPLETE, Op.ABANDON, Op.RELEASE, Op.DEFER, Op.DEAD_LETTER})


@dataclass(slots=True)
class Event:
    """One line of a history. What does not apply to an operation, or is not known, is None."""

    began_ms: int
    ended_ms: int
    wall_ms: int  # the recorder's wall clock at `ended_ms`
    client: str
    op: str
    entity: str = ""
    outcome: str = OK
    message_id: str | None = None
    key: str | None = None  # the partition key
    session: str | None = None
    number: int | None = None  # the sequence number
    token: str | None = None  # the lock token
    transaction: str | None = None
    batch: str | None = None
    count: int | None = None  # the delivery count, as delivered
    digest: str | None = None  # of the body
    due_ms: int | None = None  # wall time before which it must not be delivered
    ttl_ms: int | None = None
    enqueued_ms: int | None = None  # wall time at which the bus says it became active
    partition: int | None = None  # where the client knows it from something other than the number
    at_most: int | None = None  # how many messages an unknown receive-and-delete may have taken
    partitions: tuple[int, ...] | None = None
    moved_wall_ms: int | None = None
    moved_mono_ms: int | None = None
    after: int | None = None  # how many events its history held when the operation began
    detail: str | None = None


_NAMES: Final = tuple(field.name for field in fields(Event))
_decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


def digest(body: bytes) -> str:
    """A short fingerprint of a message body."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def to_line(event: Event) -> bytes:
    """The event as one JSON line: fields in their order, those without a value left out."""
    line: dict[str, Any] = {}
    for name in _NAMES:
        value = getattr(event, name)
        if value is not None:
            line[name] = value
    return _encode(line).encode("ascii") + b"\n"


def from_line(line: bytes) -> Event:
    values: dict[str, Any] = _decode(line.decode("ascii"))
    if "partitions" in values:
        values["partitions"] = tuple(values["partitions"])
    return Event(**values)


class History:
    """Events in the order in which they were recorded. With `out`, each is also written there at once."""

    def __init__(self, events: Iterable[Event] = (), out: BinaryIO | None = None) -> None:
        self.events: list[Event] = list(events)
        self._out = out

    def append(self, event: Event) -> None:
        self.events.append(event)
        if self._out is not None:
            self._out.write(to_line(event))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def to_bytes(self) -> bytes:
        return b"".join(map(to_line, self.events))

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(map(to_line, self.events))

    @classmethod
    def read(cls, path: Path) -> History:
        """Reads a history back. A last line that its writer did not live to finish is left out."""
        with path.open("rb") as file:
            return cls(from_line(line) for line in file if line.endswith(b"\n"))


def merge(histories: Sequence[Iterable[Event]]) -> list[Event]:
    """All events by the time they ended. Inside one millisecond each history keeps its own order."""
    events = [event for history in histories for event in history]
    events.sort(key=_ended)
    return events


def _ended(event: Event) -> int:
    return event.ended_ms


class Began(NamedTuple):
    """When an operation began: the time, and how much of the history was there already.

    The latter orders what happens inside one millisecond, as all of a simulation can.
    """

    ms: int
    after: int


class Recorder:
    """Stamps the events of one client and appends them to a history, which several recorders may share."""

    def __init__(self, client: str, clock: Clock, history: History) -> None:
        self.client = client
        self.history = history
        self._clock = clock

    def begin(self) -> Began:
        """To be called when an operation begins, and passed to `record` when it has ended."""
        return Began(self._clock.now().mono_ms, len(self.history))

    def record(
        self, op: str, entity: str = "", outcome: str = OK, *, began: Began | int | None = None, **values: Any
    ) -> Event:
        """Records an operation that ends now, and began then (or, without `began`, takes no time).

        `values` are further fields of Event. A number of milliseconds will do for `began` where only the
        time is known.
        """
        now = self._clock.now()
        if isinstance(began, Began):
            began_ms, values["after"] = began
        else:
            began_ms = now.mono_ms if began is None else began
            values["after"] = None if began is None else 0
        event = Event(began_ms, now.mono_ms, now.wall_ms, self.client, op, entity, outcome, **values)
        self.history.append(event)
        return event
