"""Options of an entity that no SDK has a property for, over HTTP; they lie in its user metadata, where any SDK can
set them too (docs/how-to/retry-later.md)."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import InvalidOperation
from polybus.gateway.bulk.call import BulkCall, answer
from polybus.namespace.entities.admission import asked_form
from polybus.namespace.entities.description import QueueDescription
from polybus.namespace.entities.options import given_options, with_options


def _metadata(request: BulkCall) -> str | None:
    address, entity = request.address, request.entity
    if address.sub_queue is not None or (entity.is_topic and address.subscription is None):
        raise InvalidOperation(f"'{address.path}' has no options; queues and subscriptions do.")
    if address.subscription is not None:
        return entity.subscription(address.subscription).description.user_metadata
    return entity.description.user_metadata


async def get_options(request: BulkCall) -> Response:
    """The options as they are written."""
    return answer(given_options(_metadata(request)))


async def put_options(request: BulkCall) -> Response:
    """Sets the options that are given, takes those away that are null, and leaves the others."""
    metadata = _metadata(request)
    text = with_options(metadata, {**given_options(metadata), **await request.json()})
    management, entity = request.namespace.management, request.entity
    if request.address.subscription is not None:
        described = entity.subscription(request.address.subscription).description
        await run(management.update_subscription(replace(described, user_metadata=text)))
    else:
        queue = entity.description
        assert isinstance(queue, QueueDescription), "topics have no options"
        await run(management.update(replace(asked_form(queue, request.namespace.tier), user_metadata=text)))
    return answer(given_options(text))
