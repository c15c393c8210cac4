"""Follow one message over HTTP: everything that happened to it, wherever events are kept (docs/how-to/follow.md)."""

from __future__ import annotations

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError
from polybus.gateway.bulk.call import answer
from polybus.gateway.bulk.choices import time_in
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.message.columns import moment
from polybus.namespace.pipeline.trail import Trail


async def get_trace(call: HttpCall) -> Response:
    """The trail of a message that is named by its id, or by the trace that its sender began."""
    authorize(call, "", Rights.MANAGE)
    message_id, trace_id = call.query.get("message_id"), call.query.get("trace_id")
    if (message_id is None) == (trace_id is None):
        raise ArgumentError("Give a 'message_id' or a 'trace_id'.")
    trail = Trail(message_id, trace_id, time_in(call.query, "from") or 0)
    await run(trail.follow(call.namespace))
    steps = [
        {
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
        for address, index, event in trail.steps
    ]
    return answer({"trail": steps, "without_events": sorted(trail.without_events), "unreachable": trail.unreachable})
