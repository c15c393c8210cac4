"""Runners tell of their pipelines, and whoever looks at the bus is told (docs/reference/bulk.md)."""

from __future__ import annotations

from starlette.responses import Response

from polybus import limits
from polybus.errors import EntityNotFound
from polybus.gateway.bulk.call import BulkCall, answer
from polybus.gateway.pipelines import told_in


async def put_pipeline(request: BulkCall) -> Response:
    """A runner tells of a pipeline that reads or writes this entity."""
    told = told_in(request.address.path, request.name, await request.json(limits.PIPELINE_TOLD_BYTES))
    request.namespace.addressed(request.address)
    request.call.gateway.pipelines.put(request.namespace, told)
    return Response(status_code=204)


async def get_pipeline(request: BulkCall) -> Response:
    """All that is known of a pipeline, its runs and its report."""
    found = request.call.gateway.pipelines.find(request.namespace, request.address.path, request.name)
    if found is None:
        raise EntityNotFound(f"No runner has told of a pipeline '{request.name}'.")
    return answer(found.short() | {"runs": found.told.get("runs"), "report": found.told.get("report")})
