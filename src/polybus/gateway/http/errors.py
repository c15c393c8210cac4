"""Refusals over HTTP: every error that leaves is an `Error` document with the right status (docs/protocol/errors.md#http).

The SDKs read three things in it: the status, the media type (one that is not XML makes the Python SDK fail), and
`SubCode=` in the text. The bulk API's clients may ask for JSON instead. A deterministic fault never gets a 5xx, for
clients would repeat it for minutes; what does is our own fault, or a store's.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import Response

from polybus.errors import ArgumentError, BusError, EntityAlreadyExists, PolybusError, ProtocolError, StoreError
from polybus.gateway.atom.documents import ERROR_TYPE, error_detail, error_document

if TYPE_CHECKING:
    from polybus.gateway.http.request import HttpCall

log = logging.getLogger(__name__)

JSON_TYPE = "application/json"
RETRY_SECONDS = 1
"""What a client is told to wait when the bus is busy; a fenced store tries to come back several times in it."""


def refusal(status: int, text: str, sub_code: int | None = None) -> BusError:
    """A refusal with a status of its own, for what only HTTP knows."""
    error = ArgumentError(text)
    error.http_status = status
    error.sub_code = status * 100 if sub_code is None else sub_code
    return error


def not_allowed(method: str) -> BusError:
    return refusal(405, f"The HTTP verb '{method[:20]}' is not valid for this resource.")


def without_sub_code(error: BusError) -> BusError:
    """The same refusal, with a text in which no sub code stands, as the cloud writes some."""
    error.sub_code = 0
    return error


def error_response(call: HttpCall, error: Exception) -> Response:
    """The answer that tells a client about an error."""
    tracking_id = f"{uuid4()}_G0"
    status, sub_code, text = _shown(error)
    is_bug = status >= 500 and not isinstance(error, BusError | StoreError)
    level = logging.ERROR if is_bug else logging.INFO
    if log.isEnabledFor(level):
        extra = {
            "connection": _connection(call),
            "entity": call.path.partition("/messages")[0][1:261],
            "tracking_id": tracking_id,
            "method": call.method[:20],
            "status": status,
        }
        if isinstance(error.__cause__, StoreError):
            extra["cause"] = str(error.__cause__)
        log.log(level, "a request was refused: %s", text, extra=extra, exc_info=error if is_bug else None)
    if status == 204:
        return Response(status_code=204)
    return error_answer(call, status, sub_code, text, tracking_id)


def _connection(call: HttpCall) -> str | None:
    """The client's end of the connection; a proxy's, where there is one."""
    client = call.scope.get("client")
    return None if client is None else f"{client[0]}:{client[1]}"


def error_answer(call: HttpCall, status: int, sub_code: int, text: str, tracking_id: str) -> Response:
    detail = error_detail(
        sub_code or None,
        text,
        tracking_id=tracking_id,
        system_tracker=f"{call.namespace.name}:{call.path[1:200]}",
        now_ms=call.gateway.bus.clock.now().wall_ms,
    )
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    if call.prefers_json and call.path.startswith("/$polybus"):
        body = {"error": {"code": status, "sub_code": sub_code or None, "detail": detail}}
        return Response(json.dumps(body), status, headers, JSON_TYPE)
    return Response(error_document(status, detail), status, headers | {"Content-Type": ERROR_TYPE})


def _shown(error: Exception) -> tuple[int, int, str]:
    """Status, sub code (0 for none) and text of an error, as a client may see it."""
    if isinstance(error, BusError):
        sub_code = error.sub_code
        # Management writes the code into the text where the cloud has one there, and leaves it out elsewhere.
        if "SubCode=" in error.description or type(error) is EntityAlreadyExists:
            sub_code = 0
        return error.http_status, sub_code, error.description or type(error).__name__
    if isinstance(error, ProtocolError):
        return 400, 40000, error.description
    if isinstance(error, StoreError):
        return 503, 50003, "A messaging store is not available. Try again."
    if isinstance(error, PolybusError):
        return 500, 50000, "The bus could not do this."
    return 500, 50000, "The bus could not process the request because of an error inside."
