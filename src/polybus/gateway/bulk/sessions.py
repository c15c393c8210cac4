"""The sessions of an entity over HTTP, with their counts and holders."""

from __future__ import annotations

import base64

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import from_promise, run
from polybus.errors import ArgumentError, InvalidOperation
from polybus.gateway.bulk.call import BulkCall, answer
from polybus.hashing import partition_for
from polybus.message.columns import moment
from polybus.namespace.delivery.session_listing import ListedSession, sessions_of


async def get_sessions(request: BulkCall) -> Response:
    """Sessions with messages, a state or a holder, partition by partition."""
    entity = request.entity
    if not entity.requires_session(request.address):
        raise InvalidOperation(f"'{request.address.path}' has no sessions.")
    limit = max(request.number("limit", 100, limits.SESSIONS_PER_PAGE), 1)
    page = await run(sessions_of(entity, request.log_id, _place(request), limit))
    return answer(
        {
            "sessions": [_session(index, listed) for index, listed in page.sessions],
            "unreachable": page.unreachable,
            "next": page.next,
        }
    )


async def get_session_state(request: BulkCall) -> Response:
    """The state that a session's receivers have left, as it is; nobody's lock is needed to look."""
    entity = request.entity
    if not entity.requires_session(request.address):
        raise InvalidOperation(f"'{request.address.path}' has no sessions.")
    partition = entity.partitions[partition_for(request.name, len(entity.partitions))]
    state = await from_promise(partition.peek_session_state(request.log_id, request.name))
    encoded = None if state is None else base64.b64encode(state).decode()
    return answer({"session_id": request.name, "state_base64": encoded})


def _place(request: BulkCall) -> tuple[int, str | None]:
    """Where the list goes on: `next` of the answer before."""
    given = request.call.query.get("after")
    if given is None:
        return 0, None
    index, colon, session_id = given.partition(":")
    if not colon or not index.isascii() or not index.isdigit() or len(index) > 5:
        raise ArgumentError("'after' must be the 'next' of an answer.")
    return int(index), session_id or None


def _session(index: int, listed: ListedSession) -> dict[str, object]:
    return {
        "session_id": listed.id,
        "partition": index,
        "messages": listed.messages,
        "locked": listed.locked,
        "holder": listed.holder,
        "locked_until": _time(listed.locked_until_ms),
        "state_bytes": listed.state_bytes,
        "state_updated_at": _time(listed.state_updated_ms),
    }


def _time(wall_ms: int) -> str | None:
    return moment(wall_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z") if wall_ms else None
