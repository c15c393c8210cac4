"""Follow one message: everything that happened to it, in every entity of the namespace that keeps events.

A message is named by its id, or by the trace that its sender began; both stay with it when it is forwarded,
dead-lettered and sent back.
"""

from __future__ import annotations

import asyncio
import re

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, PartitionUnavailable
from polybus.gateway.bulk.call import answer
from polybus.gateway.bulk.choices import time_in
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.message.columns import moment
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address
from polybus.namespace.pipeline.ranges import read_events
from polybus.partition.data import LogEvent

_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class _Wanted:
    """What is looked for."""

    def __init__(self, call: HttpCall) -> None:
        self.message_id = call.query.get("message_id")
        self.trace_id = call.query.get("trace_id")
        self.from_ms = time_in(call.query, "from") or 0
        if (self.message_id is None) == (self.trace_id is None):
            raise ArgumentError("Give a 'message_id' or a 'trace_id'.")

    def takes(self, event: LogEvent) -> bool:
        if event.time_ms < self.from_ms:
            return False
        if self.message_id is not None:
            return event.message_id == self.message_id
        found = _TRACE.fullmatch(event.trace or "")
        return found is not None and found[1] == self.trace_id


async def get_trace(call: HttpCall) -> Response:
    """The trail of a message, the oldest event first."""
    authorize(call, "", Rights.MANAGE)
    wanted = _Wanted(call)
    trail: list[tuple[int, dict[str, object]]] = []
    silent: list[str] = []
    unreachable: list[str] = []
    for entity in list(call.namespace.entities.values()):
        if not entity.settings.events:
            silent.append(entity.name)
            continue
        for address in _addresses(entity):
            for index in range(len(entity.partitions)):
                try:
                    trail += await _in_log(entity, address, index, wanted)
                except PartitionUnavailable:
                    unreachable.append(f"{address.path} partition {index}")
    trail.sort(key=lambda each: each[0])
    return answer(
        {"trail": [shown for _, shown in trail], "without_events": sorted(silent), "unreachable": unreachable}
    )


def _addresses(entity: Entity) -> list[Address]:
    found = [Address(entity.name)]
    if not entity.is_topic:
        found.append(Address(entity.name, None, "dead-letter"))
    for subscription in entity.subscriptions.values():
        name = subscription.description.name
        found += [Address(entity.name, name), Address(entity.name, name, "dead-letter")]
    found.append(Address(entity.name, None, "transfer-dead-letter"))
    return found


async def _in_log(
    entity: Entity, address: Address, index: int, wanted: _Wanted
) -> list[tuple[int, dict[str, object]]]:
    found: list[tuple[int, dict[str, object]]] = []
    first, log_id = 1, entity.log_id(address)
    while True:
        events = await run(read_events(entity.partitions[index], log_id, first, limits.EVENTS_PER_READ))
        found += [(each.time_ms, _shown(address, index, each)) for each in events if wanted.takes(each)]
        if not events:
            return found
        first = events[-1].position + 1
        await asyncio.sleep(0)


def _shown(address: Address, index: int, event: LogEvent) -> dict[str, object]:
    return {
        "time": moment(event.time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "entity": address.path,
        "partition": index,
        "change": event.change,
        "reason": event.reason,
        "sequence_number": event.sequence,
        "delivery_count": event.delivery_count,
        "message_id": event.message_id,
        "trace": event.trace,
    }
