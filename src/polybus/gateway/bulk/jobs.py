"""Bulk verbs over HTTP: purge, redrive, un-defer, scheduled messages cancelled or moved in time; and their jobs.

A verb answers at once with its job, or, with `wait_seconds`, when the job has ended. A dry run is the same job that
does nothing but count.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import from_promise, run
from polybus.errors import ArgumentError
from polybus.gateway.bulk.call import BulkCall, answer, number_in
from polybus.gateway.bulk.choices import CHOOSING, check_words, chosen, time_in
from polybus.gateway.bulk.edits import edit_of
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.errors import not_allowed
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.message.columns import moment
from polybus.message.edit import Edit
from polybus.namespace.entities.names import Address, parse_address
from polybus.namespace.jobs import verbs
from polybus.namespace.jobs.job import RUNNING, Job, Work
from polybus.namespace.jobs.verbs import Order, Redrive
from polybus.namespace.pipeline.ranges import partition_at

_COMMON = (*CHOOSING, "partition", "dry_run", "count", "limit", "rate", "wait_seconds")
SOURCE = "source"


async def post_purge(request: BulkCall) -> Response:
    """Removes messages for good: by state, by time, by a condition."""
    body = await _body(request, ())
    if not any(name in body for name in ("state", "before", "filter")) and request.address.sub_queue is None:
        raise ArgumentError("Say what is to be removed: its 'state', 'before' which time, or a 'filter'.")
    order = _order(request, body, "active", Rights.LISTEN)
    return await _started(request, body, "purge", verbs.purge(order))


async def post_redrive(request: BulkCall) -> Response:
    """Sends messages back to where they died, or elsewhere, each of them once."""
    body = await _body(request, ("to", "edit", "edits"))
    order = _order(request, body, "dead-lettered", Rights.LISTEN)
    plan = Redrive(to=await _target(request, body), edit=_edits(body), allow=lambda to: _may_send(request, to))
    return await _started(request, body, "redrive", verbs.redrive(order, plan))


async def post_defer(request: BulkCall) -> Response:
    """Defers active messages: they stay, and only who knows their numbers gets them."""
    body = await _body(request, ())
    if not any(name in body for name in ("from", "before", "filter", "partition", "limit")):
        raise ArgumentError("Say which are to be deferred: a 'filter', 'from' or 'before' a time, or a 'limit'.")
    order = _order(request, {**body, "state": "active"}, "active", Rights.LISTEN)
    return await _started(request, body, "defer", verbs.defer(order))


async def post_undefer(request: BulkCall) -> Response:
    """Makes deferred messages active again."""
    body = await _body(request, ())
    order = _order(request, {**body, "state": "deferred"}, "deferred", Rights.LISTEN)
    return await _started(request, body, "undefer", verbs.undefer(order))


async def post_cancel(request: BulkCall) -> Response:
    """Takes scheduled messages back."""
    body = await _body(request, ())
    order = _order(request, {**body, "state": "scheduled"}, "scheduled", Rights.SEND)
    return await _started(request, body, "cancel", verbs.cancel_scheduled(order))


async def post_reschedule(request: BulkCall) -> Response:
    """Gives scheduled messages another time: the same for all, or so much more or less than they have."""
    body = await _body(request, ("to", "by_seconds"))
    due_ms, by = time_in(body, "to"), body.get("by_seconds")
    if (due_ms is None) == (by is None):
        raise ArgumentError("Say either when they are due, 'to' a time, or 'by_seconds' how much later.")
    if by is not None and (isinstance(by, bool) or not isinstance(by, int | float) or not abs(by) < 1e10):
        raise ArgumentError("'by_seconds' must be a number of seconds; a negative one is earlier.")
    order = _order(request, {**body, "state": "scheduled"}, "scheduled", Rights.SEND)
    work = verbs.reschedule(order, due_ms or 0, round((by or 0) * 1000))
    return await _started(request, body, "reschedule", work)


async def _body(request: BulkCall, more: tuple[str, ...]) -> dict[str, Any]:
    body = await request.json()
    check_words(body, (*_COMMON, *more))
    return body


def _order(request: BulkCall, body: dict[str, Any], state: str, needed: Rights) -> Order:
    """What is asked for. Messages that come after the request are not meant, unless it says until when."""
    now_ms = request.bus.clock.now().wall_ms
    default = "active" if request.address.sub_queue is not None and state == "dead-lettered" else state
    address, choice = chosen(request, body, default, now_ms + 1)
    request.authorize(needed, address.path)
    entity = request.entity
    indexes = [partition_at(entity, number_in(body, "partition")).index] if "partition" in body else []
    return Order(
        namespace=request.namespace,
        entity=entity,
        log_id=entity.log_id(address),
        choice=choice,
        dry_run=_flag(body, "dry_run"),
        count=_flag(body, "count"),
        limit=None if body.get("limit") is None else number_in(body, "limit"),
        rate=_rate(body),
        indexes=indexes,
    )


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ArgumentError(f"'{name}' must be true or false.")
    return value


def _rate(body: dict[str, Any]) -> float | None:
    rate = body.get("rate")
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e9:
        raise ArgumentError("'rate' must be a number of messages in a second, greater than 0.")
    return float(rate)


# Redrive


async def _target(request: BulkCall, body: dict[str, Any]) -> Address | None:
    given = body.get("to", SOURCE)
    if not isinstance(given, str) or not given:
        raise ArgumentError("'to' must be 'source', or the path of a queue, a topic or a subscription.")
    if given == SOURCE:
        return None
    target = parse_address(given)
    if target.sub_queue is not None or target.management or target.special is not None:
        raise ArgumentError("'to' must be 'source', or the path of a queue, a topic or a subscription.")
    _may_send(request, target)
    request.namespace.addressed(target).check_sendable()
    await run(verbs.check_room(request.namespace.addressed(target)))
    return target


def _may_send(request: BulkCall, target: Address) -> None:
    request.authorize(Rights.SEND, target.path)


def _edits(body: dict[str, Any]) -> Any:
    """What is altered: `edit` of every message, `edits` of some by their numbers, which come first."""
    common, single = body.get("edit"), body.get("edits", {})
    if common is not None and not isinstance(common, dict):
        raise ArgumentError("'edit' must be a JSON object, as one of a move's 'edits'.")
    if not isinstance(single, dict) or not all(isinstance(row, dict) for row in single.values()):
        raise ArgumentError("'edits' must be a JSON object of sequence numbers to edits.")
    for number, row in single.items():
        edit_of(row, int(number) if number.isdigit() else 0, 1 << 40)
    if common is not None:
        edit_of(common, 0, 1 << 40)

    def edit(number: int, largest: int) -> Edit | None:
        row = single.get(str(number), common)
        return None if row is None else edit_of(row, number, largest)

    return edit


# Jobs


async def _started(request: BulkCall, body: dict[str, Any], kind: str, work: Work) -> Response:
    seconds = number_in(body, "wait_seconds", 0, limits.JOB_WAIT_SECONDS)
    now_ms = request.bus.clock.now().wall_ms
    job = Job(kind, request.namespace.name, request.address.path, now_ms)
    request.bus.jobs.start(job, work)
    if job.state == RUNNING and seconds:
        await asyncio.wait((from_promise(job.ended),), timeout=seconds)
    answered = answer(job_json(job), 202 if job.state == RUNNING else 200)
    answered.headers["Location"] = f"/$polybus/jobs/{job.id}"
    return answered


def job_json(job: Job) -> dict[str, object]:
    return {
        "job": job.id,
        "kind": job.kind,
        "entity": job.path,
        "state": job.state,
        "error": job.error,
        "started_at": _time(job.started_ms),
        "ended_at": None if job.ended_ms is None else _time(job.ended_ms),
        "total": job.total,
        "looked_at": job.looked,
        "chosen": job.chosen,
        "done": job.done,
        "missing": job.missing,
        "locked": job.locked,
        "unreachable": job.unreachable,
        "samples": job.samples,
    }


def _time(wall_ms: int) -> str:
    return moment(wall_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def handle_jobs(call: HttpCall, segments: list[str]) -> Response:
    """`/jobs` and `/jobs/ID`: who may work on an entity may see its jobs and stop them."""
    jobs, name = call.gateway.bus.jobs, call.namespace.name
    if not segments:
        if call.method != "GET":
            raise not_allowed(call.method)
        authorize(call, "", Rights.MANAGE)
        return answer({"jobs": [job_json(job) for job in jobs.of(name)]})
    job = jobs.find(name, segments[0])
    authorize(call, job.path, Rights.SEND if job.kind in ("cancel", "reschedule") else Rights.LISTEN)
    if call.method == "DELETE":
        job.stopping = True
    elif call.method != "GET":
        raise not_allowed(call.method)
    return answer(job_json(job))
