"""Requests about what only one process of the bus has: they are passed on to it, and so is its answer.

Cursors, publications, jobs, what runners tell, the fault switches and the clock are kept by the process that leads. The
others take the request as it came, with its token, and the leader checks it like any other.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope

from polybus.asyncio_bridge import from_promise, to_promise
from polybus.gateway.bulk.routes import is_bulk
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.request import HttpCall
from polybus.limits import HTTP_PASSED_BYTES

HTTP = "http"
_OF_THE_BUS = {"faults", "jobs", "backup", "cursors", "pipelines"}
_LAST = {"publish", "abort", "purge", "redrive", "undefer", "lease", "advance", "cursors", "cancel"}
_BEFORE_LAST = {"cursors", "pipelines", "producers", "scheduled"}


def belongs_elsewhere(call: HttpCall) -> bool:
    """Whether another process of the bus has to answer this."""
    if call.gateway.bus.leads or not is_bulk(call):
        return False
    words = call.raw_path.strip("/").split("/")[1:]
    if words[:1] != ["entities"]:
        return words[:1] != [] and words[0] in _OF_THE_BUS
    tail = words[-2:]
    return (
        words[-1] in _LAST
        or (len(tail) == 2 and tail[0] in _BEFORE_LAST)
        or (words[-1] == "events" and call.method == "PUT")
    )


async def pass_on(call: HttpCall) -> Response:
    """Asks the leader, and answers as it does."""
    members = call.gateway.bus.members
    assert members is not None, "there is another process that leads"
    headers = [[name, value] for name, value in call.scope["headers"]]
    body = await call.body(HTTP_PASSED_BYTES)
    asked = [call.method, call.raw_path, call.raw_query, call.scope.get("scheme", "http"), headers, body]
    status, answered, content = await from_promise(members.ask_leader(HTTP, asked))
    response = Response(content, status)
    response.raw_headers = [(name, value) for name, value in answered]
    return response


def answer_others(gateway: Gateway, app: ASGIApp) -> None:
    """Lets the other processes pass requests on to this one."""
    members = gateway.bus.members
    if members is not None:
        members.serve(HTTP, lambda asked: to_promise(_answer(app, asked)))


async def _answer(app: ASGIApp, asked: Any) -> list[Any]:
    method, path, query, scheme, headers, body = asked
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "scheme": scheme,
        "headers": [(name, value) for name, value in headers],
    }
    parts: list[bytes] = []
    start: dict[str, Any] = {}

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return [start["status"], [list(pair) for pair in start["headers"]], b"".join(parts)]
