"""Which entities keep a log of what happens to their messages, and how much of it.

Off unless somebody asks. The wish is kept in the catalogue; the events themselves lie in the partitions, written in
the batch of the change that they tell of. Old ones go when there are too many, for nobody settles an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.hosting.catalogue import Changes, decode
from polybus.namespace.entities.entity import Entity

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

AUDITED: Final = b"v/"
"""Table of the catalogue: entities that keep events."""


class Auditing:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def load(self) -> None:
        for row in await self._bus.catalogue.rows(AUDITED):
            entity = self._bus.entities.get(decode(row)["entity"])
            if entity is not None:
                entity.settings.events = True

    async def reload(self) -> None:
        """Another process has written which entities keep events."""
        kept = {decode(row)["entity"] for row in await self._bus.catalogue.rows(AUDITED)}
        for entity in self._bus.entities.values():
            entity.settings.events = entity.id in kept

    async def switch(self, entity: Entity, on: bool) -> None:
        """Starts or stops keeping events; those that were kept stay readable."""
        key = AUDITED + entity.id.to_bytes(4, "big")
        changes = Changes().put(key, {"entity": entity.id}) if on else Changes().delete(key)
        await self._bus.catalogue.write(changes)
        entity.settings.events = on

    def trim(self) -> None:
        """Removes the oldest events of logs that have too many."""
        for entity in self._bus.entities.values():
            if not entity.settings.events:
                continue
            for partition in entity.partitions:
                partition.trim_events()
