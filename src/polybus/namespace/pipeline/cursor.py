"""A cursor: how far a pipeline has read a log, durably, and who may move it.

Plain state and the rules about it; `cursors` keeps them and makes the logs hold what they need. A position is the
last one that was read, by partition. A lease has a number that only grows: whoever had an older one is fenced off.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polybus.errors import ArgumentOutOfRange, CursorLeased
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Record
from polybus.limits import CURSOR_LAG_MS
from polybus.partition.kinds import NO_FLOOR


@dataclass(frozen=True, kw_only=True)
class Cursor:
    namespace: str
    entity_id: int
    log_id: int
    name: str
    positions: dict[int, int]
    truncated: dict[int, int] = field(default_factory=dict)
    """Partition to the position up to which kept messages were dropped because the cursor lagged over its limit."""
    holder: str | None = None
    fencing: int = 0
    leased_until_ms: int = 0
    max_lag_ms: int = CURSOR_LAG_MS
    max_lag_bytes: int | None = None
    """Settled bytes that one partition keeps for it; None is the partition's own maximum size."""
    created_ms: int = 0

    @property
    def key(self) -> bytes:
        return cursor_key(self.entity_id, self.log_id, self.name)

    def floor(self, index: int) -> int:
        """What is settled above this position must be kept for the cursor."""
        return max(self.positions.get(index, 0), self.truncated.get(index, 0))

    # Changes, each a new cursor

    def advanced(self, positions: dict[int, int]) -> Cursor:
        """Further on; a position that is behind is no error, so that telling twice is harmless."""
        moved = {index: max(self.positions.get(index, 0), position) for index, position in positions.items()}
        after = {**self.positions, **moved}
        truncated = {index: at for index, at in self.truncated.items() if at > after.get(index, 0)}
        return replace(self, positions=after, truncated=truncated)

    def cut(self, index: int, position: int) -> Cursor:
        """It lagged too far: nothing up to this position is kept for it any longer."""
        return replace(self, truncated={**self.truncated, index: position})

    def leased(self, holder: str, now_ms: int, ttl_ms: int, fencing: int | None, force: bool) -> Cursor:
        """Held by `holder` from now on; CursorLeased where somebody else holds it."""
        renewing = fencing is not None and fencing == self.fencing and holder == self.holder
        if fencing is not None and not renewing:
            raise CursorLeased(f"The lease {fencing} of the cursor '{self.name}' has been taken over.")
        if not renewing and not force and self.is_held(now_ms) and holder != self.holder:
            raise CursorLeased(f"The cursor '{self.name}' is held by '{self.holder}'.")
        number = self.fencing if renewing else self.fencing + 1
        return replace(self, holder=holder, fencing=number, leased_until_ms=now_ms + ttl_ms)

    def released(self) -> Cursor:
        return replace(self, holder=None, leased_until_ms=0)

    # Questions

    def is_held(self, now_ms: int) -> bool:
        return self.holder is not None and self.leased_until_ms > now_ms

    def check_lease(self, fencing: int | None, now_ms: int) -> None:
        """Lets the newest holder through, also late while nobody has taken over; anybody where none holds it."""
        if fencing is None and not self.is_held(now_ms):
            return
        if fencing != self.fencing:
            raise CursorLeased(f"The cursor '{self.name}' is held by another, or the lease has been taken over.")

    # The catalogue's form

    def record(self) -> Record:
        return {
            "namespace": self.namespace,
            "entity": self.entity_id,
            "log": self.log_id,
            "name": self.name,
            "positions": {str(index): position for index, position in self.positions.items()},
            "truncated": {str(index): position for index, position in self.truncated.items()},
            "holder": self.holder,
            "fencing": self.fencing,
            "until": self.leased_until_ms,
            "lag_ms": self.max_lag_ms,
            "lag_bytes": self.max_lag_bytes,
            "created": self.created_ms,
        }


def cursor_from(record: Record) -> Cursor:
    return Cursor(
        namespace=record["namespace"],
        entity_id=record["entity"],
        log_id=record["log"],
        name=record["name"],
        positions={int(index): position for index, position in record["positions"].items()},
        truncated={int(index): position for index, position in record["truncated"].items()},
        holder=record["holder"],
        fencing=record["fencing"],
        leased_until_ms=record["until"],
        max_lag_ms=record["lag_ms"],
        max_lag_bytes=record["lag_bytes"],
        created_ms=record["created"],
    )


def cursor_key(entity_id: int, log_id: int, name: str) -> bytes:
    return records.CURSOR + entity_id.to_bytes(4, "big") + log_id.to_bytes(4, "big") + name.encode()


def check_positions(positions: dict[int, int], ends: dict[int, int | None]) -> None:
    """Refuses partitions that are not there, and positions that no message has had."""
    for index, position in positions.items():
        if index not in ends:
            raise ArgumentOutOfRange(f"There is no partition {index}.")
        end = ends[index]
        if position < 0 or position >= NO_FLOOR or (end is not None and position > end):
            raise ArgumentOutOfRange(f"Position {position} of partition {index} is beyond its end, {end}.")
