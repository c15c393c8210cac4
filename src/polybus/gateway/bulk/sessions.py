"""The sessions of an entity over HTTP, with their counts and holders."""

from __future__ import annotations

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, InvalidOperation
from polybus.gateway.bulk.call import BulkCall, answer
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
