"""Which entities keep a log of what happens to their messages, and how much of it.

Off unless somebody asks. The wish is kept in the catalogue; the events themselves lie in the partitions, written in
the batch of the change that they tell of. Old ones go when there are too many, for nobody settles an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.hosting.catalogue import Changes, decode
from polybus.limits import EVENTS_KEPT, EVENTS_TRIMMED
from polybus.namespace.entities.entity import Entity
from polybus.partition.broker import Broker
from polybus.partition.log import Log
from polybus.partition.records import EVENTS, log_prefix, number_key

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

AUDITED: Final = b"v/"
"""Table of the catalogue: entities that keep events."""


class Auditing:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._trimmed: dict[tuple[int, int, int], int] = {}

    async def load(self) -> None:
        for row in await self._bus.catalogue.rows(AUDITED):
            entity = self._bus.entities.get(decode(row)["entity"])
            if entity is not None:
                entity.settings.events = True

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
                if partition.broker is not None:
                    for log in list(partition.broker.logs.values()):
                        self._trim(partition.broker, log)

    def _trim(self, broker: Broker, log: Log) -> None:
        place = (broker.entity_id, broker.index, log.id)
        last = log.stable_events - EVENTS_KEPT
        # Removing a range leaves a mark in the store that every scan passes, so it is done seldom.
        if last - self._trimmed.get(place, 0) < EVENTS_TRIMMED:
            return
        self._trimmed[place] = last
        prefix = log_prefix(broker.prefix, EVENTS, log.id)
        broker.out(log).delete_range(number_key(prefix, 0), number_key(prefix, last))
