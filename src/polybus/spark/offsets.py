"""How far a query has read: the last position of each partition, as Spark keeps it in its checkpoint.

Spark compares offsets as text, so the same offset must always be the same text: partitions in order, with leading
zeros. An offset also says which entity it belongs to, for one that was created again under the same name has other
messages at the same positions; and which query it belongs to, so that a driver that starts again from its checkpoint
gets its own cursor back at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from polybus.errors import ConfigError

VERSION: Final = 1


@dataclass(frozen=True)
class Offset:
    entity_id: str
    positions: dict[int, int]
    """Partition to the last position that is included."""
    holder: str = ""
    """Who holds the cursor: the query that began with this checkpoint."""
    first: bool = False
    """Whether this is where the query began: Spark does not journal that, and asks again."""
    began: dict[int, int] | None = None
    """Where the first batch began, at that batch's end: so its journal says all that repeating it takes."""

    def record(self) -> dict[str, Any]:
        """The form that Spark journals."""
        record: dict[str, Any] = {"e": self.entity_id, "h": self.holder, "p": _texts(self.positions), "v": VERSION}
        if self.first:
            record["f"] = True
        if self.began is not None:
            record["s"] = _texts(self.began)
        return record

    def at(self, positions: dict[int, int]) -> Offset:
        """Further on; the same offset where nothing is new, for another text would be another batch."""
        if positions == self.positions:
            return self
        return Offset(self.entity_id, positions, self.holder, began=self.positions if self.first else None)

    def held_by(self, holder: str) -> Offset:
        return replace(self, holder=holder)

    def position(self, index: int) -> int:
        return self.positions.get(index, 0)


def offset_from(record: dict[str, Any]) -> Offset:
    """Reads an offset back; ConfigError where the checkpoint was written by something else."""
    try:
        if record["v"] != VERSION:
            raise ConfigError(f"the checkpoint has offsets of version {record['v']!r}; this is version {VERSION}")
        began = record.get("s")
        return Offset(
            str(record["e"]),
            _positions(record["p"]),
            str(record["h"]),
            record.get("f") is True,
            None if began is None else _positions(began),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(f"the checkpoint holds an offset that is not ours: {str(record)[:200]}") from None


def _texts(positions: dict[int, int]) -> dict[str, int]:
    width = max((len(str(index)) for index in positions), default=1)
    return {f"{index:0{max(width, 2)}}": positions[index] for index in sorted(positions)}


def _positions(record: dict[str, Any]) -> dict[int, int]:
    return {int(index): int(position) for index, position in record.items()}
