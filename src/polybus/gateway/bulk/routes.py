"""The bulk API, under `/$polybus`: what pipelines need beyond the cloud's own protocols (docs/reference/bulk.md).

No entity's name begins with `$`, so nothing here can hide one. A route is told by the last words of its path, for an
entity's path may have any number of segments before them; a client that encodes the slashes inside is never
misunderstood. Tokens are those of the entities: Listen reads, Send writes, Manage does the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, EntityNotFound, Unauthorized
from polybus.gateway.bulk.backup import get_backup
from polybus.gateway.bulk.call import BulkCall, answer
from polybus.gateway.bulk.cursors import (
    advance_cursor,
    cursor_json,
    delete_cursor,
    get_cursor,
    get_cursors,
    lease_cursor,
    put_cursor,
    release_cursor,
)
from polybus.gateway.bulk.dry_run import post_dry_run
from polybus.gateway.bulk.jobs import (
    handle_jobs,
    post_cancel,
    post_defer,
    post_purge,
    post_redrive,
    post_reschedule,
    post_undefer,
)
from polybus.gateway.bulk.openapi import openapi
from polybus.gateway.bulk.options import get_options, put_options
from polybus.gateway.bulk.pipelines import get_pipeline, put_pipeline
from polybus.gateway.bulk.reads import get_browse, get_events, get_log, get_range
from polybus.gateway.bulk.sessions import get_session_state, get_sessions
from polybus.gateway.bulk.trace import get_trace
from polybus.gateway.bulk.writes import get_producer, post_abort, post_move, post_publish, post_stage
from polybus.gateway.http.auth import authorize, authorize_everywhere
from polybus.gateway.http.errors import not_allowed
from polybus.gateway.http.faults import FaultPanel, handle_faults
from polybus.gateway.http.partitions import get_partitions
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.entities.names import fold, parse_address

PREFIX = "$polybus"

Handler = Callable[[BulkCall], Awaitable[Response]]


async def _put_events(request: BulkCall) -> Response:
    """Starts or stops keeping events."""
    on = (await request.json()).get("enabled")
    if not isinstance(on, bool):
        raise ArgumentError("'enabled' must be true or false.")
    await run(request.bus.auditing.switch(request.entity, on))
    return answer({"enabled": on})


# From the right; None stands for any one segment.
_ROUTES: tuple[tuple[tuple[str | None, ...], dict[str, tuple[Handler, Rights]]], ...] = (
    (
        ("cursors", None, "lease"),
        {"POST": (lease_cursor, Rights.LISTEN), "DELETE": (release_cursor, Rights.LISTEN)},
    ),
    (("cursors", None, "advance"), {"POST": (advance_cursor, Rights.LISTEN)}),
    (
        ("cursors", None),
        {
            "PUT": (put_cursor, Rights.LISTEN),
            "GET": (get_cursor, Rights.LISTEN),
            "DELETE": (delete_cursor, Rights.LISTEN),
        },
    ),
    (("pipelines", None), {"PUT": (put_pipeline, Rights.LISTEN), "GET": (get_pipeline, Rights.LISTEN)}),
    (("scheduled", "cancel"), {"POST": (post_cancel, Rights.SEND)}),
    (("scheduled", "move"), {"POST": (post_reschedule, Rights.SEND)}),
    (("producers", None), {"GET": (get_producer, Rights.SEND)}),
    (("cursors",), {"GET": (get_cursors, Rights.LISTEN)}),
    (("log",), {"GET": (get_log, Rights.LISTEN)}),
    (("partitions",), {"GET": (get_partitions, Rights.MANAGE)}),
    (("range",), {"GET": (get_range, Rights.LISTEN)}),
    (("browse",), {"GET": (get_browse, Rights.LISTEN)}),
    (("events",), {"GET": (get_events, Rights.LISTEN), "PUT": (_put_events, Rights.MANAGE)}),
    (("move",), {"POST": (post_move, Rights.LISTEN)}),
    (("purge",), {"POST": (post_purge, Rights.LISTEN)}),
    (("redrive",), {"POST": (post_redrive, Rights.LISTEN)}),
    (("defer",), {"POST": (post_defer, Rights.LISTEN)}),
    (("undefer",), {"POST": (post_undefer, Rights.LISTEN)}),
    (("options",), {"GET": (get_options, Rights.LISTEN), "PUT": (put_options, Rights.MANAGE)}),
    (("sessions", None, "state"), {"GET": (get_session_state, Rights.LISTEN)}),
    (("sessions",), {"GET": (get_sessions, Rights.LISTEN)}),
    (("dry-run",), {"POST": (post_dry_run, Rights.LISTEN)}),
    (("stage",), {"POST": (post_stage, Rights.SEND)}),
    (("publish",), {"POST": (post_publish, Rights.SEND)}),
    (("abort",), {"POST": (post_abort, Rights.SEND)}),
)


def is_bulk(call: HttpCall) -> bool:
    return fold(call.path.split("/")[1]) == PREFIX


async def handle_bulk(call: HttpCall, panel: FaultPanel | None) -> Response:
    """Answers a request under `/$polybus`."""
    segments = [unquote(segment) for segment in call.raw_path.strip("/").split("/")][1:]
    if segments[:1] == ["entities"]:
        return await _of_entity(call, segments[1:])
    if segments[:1] == ["faults"] and panel is not None:
        return await handle_faults(call, panel, segments[1:])
    if segments == ["trace"] and call.method == "GET":
        return await get_trace(call)
    if segments[:1] == ["jobs"] and len(segments) <= 2:
        return handle_jobs(call, segments[1:])
    if segments == ["backup"]:
        return await get_backup(call)
    if segments not in (["openapi.json"], ["stores"], ["cursors"], ["pipelines"]):
        raise EntityNotFound(f"There is nothing at '{call.path[:200]}'.")
    if call.method != "GET":
        raise not_allowed(call.method)
    if segments == ["openapi.json"]:
        return answer(openapi())
    authorize(call, "", Rights.MANAGE)
    return answer(_OF_THE_NAMESPACE[segments[0]](call))


async def _of_entity(call: HttpCall, segments: list[str]) -> Response:
    for pattern, handlers in _ROUTES:
        tail = segments[-len(pattern) :]
        if len(segments) > len(pattern) and all(
            word is None or word == segment for word, segment in zip(pattern, tail, strict=True)
        ):
            found = handlers.get(call.method)
            if found is None:
                raise not_allowed(call.method)
            handler, needed = found
            names = [segment for word, segment in zip(pattern, tail, strict=True) if word is None]
            address = parse_address("/".join(segments[: -len(pattern)]).replace("%", "%25"))
            request = BulkCall(call, address, names)
            request.authorize(needed)
            return await handler(request)
    raise EntityNotFound(f"There is nothing at '{call.path[:200]}'.")


def _stores(call: HttpCall) -> dict[str, object]:
    """The messaging stores; all that is known of them to who manages the whole bus, to others what is their own."""
    try:
        authorize_everywhere(call)
    except Unauthorized:
        return {"stores": _own_part(call)}
    return {"stores": _whole(call)}


def _own_part(call: HttpCall) -> list[dict[str, object]]:
    """Where a namespace's partitions are, without addresses, errors and numbers that tell of other namespaces."""
    own = {entity.id for entity in call.namespace.entities.values()}
    found: list[dict[str, object]] = []
    for number, store in enumerate([*call.gateway.bus.stores, *call.gateway.bus.missing]):
        held = sum(1 for entity_id, _ in store.tenants if entity_id in own)
        if held:
            found.append(
                {
                    "store": number,
                    "id": "",
                    "url": "",
                    "state": store.state.value,
                    "last_error": None,
                    "unsafe": store.unsafe,
                    "full": store.full,
                    "free_bytes": None,
                    "partitions": held,
                    "commits": 0,
                    "committed_bytes": 0,
                    "commit_failures": 0,
                }
            )
    return found


def _whole(call: HttpCall) -> list[dict[str, object]]:
    return [
        {
            "store": number,
            "id": store.store_id.hex(),
            "url": store.url,
            "state": store.state.value,
            "last_error": store.last_error,
            "unsafe": store.unsafe,
            "full": store.full,
            "free_bytes": store.free_bytes,
            "partitions": len(store.tenants),
            "commits": store.commits,
            "committed_bytes": store.committed_bytes,
            "commit_failures": store.commit_failures,
        }
        for number, store in enumerate([*call.gateway.bus.stores, *call.gateway.bus.missing])
    ]


def _cursors(call: HttpCall) -> dict[str, object]:
    bus = call.gateway.bus
    now_ms = bus.clock.now().wall_ms
    found = [
        cursor_json(entity, cursor, now_ms)
        for entity in call.namespace.entities.values()
        for cursor in bus.cursors.of(entity)
    ]
    return {"cursors": found}


def _pipelines(call: HttpCall) -> dict[str, object]:
    return {"pipelines": [told.short() for told in call.gateway.pipelines.of(call.namespace)]}


_OF_THE_NAMESPACE: dict[str, Callable[[HttpCall], dict[str, object]]] = {
    "stores": _stores,
    "cursors": _cursors,
    "pipelines": _pipelines,
}
