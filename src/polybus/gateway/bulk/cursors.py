"""Cursors over HTTP: made, read, moved on, leased and deleted (docs/reference/bulk.md).

Who may listen to a log may have a cursor on it. Taking one from a holder who is alive needs Manage.
"""

from __future__ import annotations

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, CursorLeased
from polybus.gateway.bulk.call import (
    BulkCall,
    answer,
    generation,
    number_in,
    optional_number_in,
    positions_in,
    text_in,
)
from polybus.gateway.bulk.reads import cursor_lag
from polybus.gateway.durations import ms_from_date_time
from polybus.gateway.sas import Rights
from polybus.message.columns import moment
from polybus.namespace.entities.entity import Entity
from polybus.namespace.pipeline.cursor import Cursor
from polybus.namespace.pipeline.cursors import Start
from polybus.namespace.pipeline.ranges import PartitionLog, log_ends, log_path


async def get_cursors(request: BulkCall) -> Response:
    entity = request.entity
    cursors = request.bus.cursors.of(entity, request.log_id)
    return answer({"cursors": [await _shown(request, entity, cursor) for cursor in cursors]})


async def put_cursor(request: BulkCall) -> Response:
    """A new cursor, or the one of that name that there is."""
    entity, log_id, name = request.entity, request.log_id, request.name
    body = await request.json()
    lag_s = number_in(body, "max_lag_seconds", limits.CURSOR_LAG_MS // 1000, limits.CURSOR_LAG_MS_MAX // 1000)
    lag_bytes = optional_number_in(body, "max_lag_bytes")
    work = request.bus.cursors.create(
        entity, log_id, name, request.namespace.name, _start(body), lag_s * 1000, lag_bytes
    )
    cursor, made = await run(work)
    return answer(await _shown(request, entity, cursor), 201 if made else 200)


def _start(body: dict[str, object]) -> Start:
    start = body.get("start", "earliest")
    if body.get("time") is not None:
        return Start(time_ms=ms_from_date_time(text_in(body, "time")))
    if start in ("earliest", "latest"):
        return Start(latest=start == "latest")
    if isinstance(start, dict):
        return Start(positions=positions_in(start))
    raise ArgumentError("'start' must be earliest, latest, or the positions that count as read.")


async def get_cursor(request: BulkCall) -> Response:
    entity, cursor = _found(request)
    return answer(await _shown(request, entity, cursor))


def _found(request: BulkCall) -> tuple[Entity, Cursor]:
    entity = request.entity
    return entity, request.bus.cursors.find(entity, request.log_id, request.name)


async def advance_cursor(request: BulkCall) -> Response:
    """Everything up to these positions has been read; positions never go back. Tells how far the log goes now."""
    entity, cursor = _found(request)
    body = await request.json()
    positions = positions_in(body.get("positions"))
    fencing = optional_number_in(body, "fencing")
    moved = await run(request.bus.cursors.advance(entity, cursor, positions, fencing))
    logs = await run(log_ends(entity, moved.log_id))
    return answer((await _shown(request, entity, moved, logs)) | {"log": list(map(_end, logs))})


async def lease_cursor(request: BulkCall) -> Response:
    """Takes the cursor for a while, or renews that; the number in the answer goes with every advance."""
    entity, cursor = _found(request)
    body = await request.json()
    holder = text_in(body, "holder")
    ttl_s = number_in(body, "ttl_seconds", 60, limits.CURSOR_LEASE_SECONDS_MAX)
    force = body.get("force") is True
    if force:
        request.authorize(Rights.MANAGE)
    fencing = optional_number_in(body, "fencing")
    leased = await run(request.bus.cursors.lease(entity, cursor, holder, ttl_s * 1000, fencing, force))
    return answer(await _shown(request, entity, leased))


async def release_cursor(request: BulkCall) -> Response:
    entity, cursor = _found(request)
    fencing = request.number("fencing") if "fencing" in request.call.query else None
    released = await run(request.bus.cursors.release(entity, cursor, fencing))
    return answer(await _shown(request, entity, released))


async def delete_cursor(request: BulkCall) -> Response:
    """Gives everything free that was kept for the cursor; a live holder must agree, or a manager."""
    entity, cursor = _found(request)
    now_ms = request.bus.clock.now().wall_ms
    fencing = request.number("fencing") if "fencing" in request.call.query else None
    if cursor.is_held(now_ms) and fencing != cursor.fencing:
        if not request.flag("force", False):
            raise CursorLeased(f"The cursor '{cursor.name}' is held by '{cursor.holder}'.")
        request.authorize(Rights.MANAGE)
    await run(request.bus.cursors.delete(entity, cursor))
    return Response(status_code=204)


async def _shown(
    request: BulkCall, entity: Entity, cursor: Cursor, logs: list[PartitionLog] | None = None
) -> dict[str, object]:
    if logs is None:
        logs = await run(log_ends(entity, cursor.log_id))
    lag = cursor_lag(cursor, logs)
    return cursor_json(entity, cursor, request.bus.clock.now().wall_ms) | {"lag_messages": lag}


def _end(log: PartitionLog) -> dict[str, object]:
    if log.problem is not None:
        return {"partition": log.index, "available": False}
    return {
        "partition": log.index,
        "available": True,
        "stable_end": log.stable_end,
        "messages": log.messages,
        "bytes": log.bytes,
    }


def cursor_json(entity: Entity, cursor: Cursor, now_ms: int) -> dict[str, object]:
    lease = None
    if cursor.is_held(now_ms):
        lease = {"holder": cursor.holder, "expires_at": moment(cursor.leased_until_ms).isoformat()}
    return {
        "name": cursor.name,
        "entity": log_path(entity, cursor.log_id),
        "entity_id": generation(entity),
        "positions": {str(index): position for index, position in sorted(cursor.positions.items())},
        "truncated": {str(index): position for index, position in sorted(cursor.truncated.items())},
        "fencing": cursor.fencing,
        "lease": lease,
        "max_lag_seconds": cursor.max_lag_ms // 1000,
        "max_lag_bytes": cursor.max_lag_bytes,
        "created_at": moment(cursor.created_ms).isoformat(),
    }
