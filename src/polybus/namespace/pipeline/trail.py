"""The trail of one message: what happened to it in the entities that keep events, by its id or by its sender's trace."""

from __future__ import annotations

import re

from polybus.errors import PartitionUnavailable
from polybus.limits import EVENTS_PER_READ
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address
from polybus.namespace.namespace import Namespace
from polybus.namespace.pipeline.ranges import read_events
from polybus.partition.data import LogEvent
from polybus.promise import pause

_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Trail:
    """What is looked for, and what was found, the oldest event first."""

    def __init__(self, message_id: str | None, trace_id: str | None, from_ms: int) -> None:
        self._message_id = message_id
        self._trace_id = trace_id
        self._from_ms = from_ms
        self.steps: list[tuple[Address, int, LogEvent]] = []
        """Where it happened, in which partition, and what."""
        self.without_events: list[str] = []
        self.unreachable: list[str] = []

    def _takes(self, event: LogEvent) -> bool:
        if event.time_ms < self._from_ms:
            return False
        if self._message_id is not None:
            return event.message_id == self._message_id
        found = _TRACE.fullmatch(event.trace or "")
        return found is not None and found[1] == self._trace_id

    async def follow(self, namespace: Namespace) -> None:
        for entity in list(namespace.entities.values()):
            if not entity.settings.events:
                self.without_events.append(entity.name)
                continue
            for address in _addresses(entity):
                for index in range(len(entity.partitions)):
                    try:
                        await self._look(namespace, entity, address, index)
                    except PartitionUnavailable:
                        self.unreachable.append(f"{address.path} partition {index}")
        self.steps.sort(key=lambda step: step[2].time_ms)

    async def _look(self, namespace: Namespace, entity: Entity, address: Address, index: int) -> None:
        first, log_id = 1, entity.log_id(address)
        while True:
            events = await read_events(entity.partitions[index], log_id, first, EVENTS_PER_READ)
            self.steps += [(address, index, each) for each in events if self._takes(each)]
            if not events:
                return
            first = events[-1].position + 1
            await pause(namespace.bus.loop, 0)  # reads may be answered at once: others must have their turn


def _addresses(entity: Entity) -> list[Address]:
    found = [Address(entity.name)]
    if not entity.is_topic:
        found.append(Address(entity.name, None, "dead-letter"))
    for subscription in entity.subscriptions.values():
        name = subscription.description.name
        found += [Address(entity.name, name), Address(entity.name, name, "dead-letter")]
    found.append(Address(entity.name, None, "transfer-dead-letter"))
    return found
