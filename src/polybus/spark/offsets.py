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

    def record(self) -> dict[str, Any]:
        """The form that Spark journals."""
        width = max((len(str(index)) for index in self.positions), default=1)
        width = max(width, 2)
        positions = {f"{index:0{width}}": self.positions[index] for index in sorted(self.positions)}
        return {"e": self.entity_id, "h": self.holder, "p": positions, "v": VERSION}

    def at(self, positions: dict[int, int]) -> Offset:
        return replace(self, positions=positions)

    def held_by(self, holder: str) -> Offset:
        return replace(self, holder=holder)

    def position(self, index: int) -> int:
        return self.positions.get(index, 0)


def offset_from(record: dict[str, Any]) -> Offset:
    """Reads an offset back; ConfigError where the checkpoint was written by something else."""
    try:
        if record["v"] != VERSION:
            raise ConfigError(f"the checkpoint has offsets of version {record['v']!r}; this is version {VERSION}")
        positions = {int(index): int(position) for index, position in record["p"].items()}
        return Offset(str(record["e"]), positions, str(record["h"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(f"the checkpoint holds an offset that is not ours: {str(record)[:200]}") from None
