"""Everything that the bus answers over HTTP, as one ASGI application.

The path decides who answers: health and metrics, the bulk API under `/$polybus`, the console, a WebSocket that
carries AMQP, and for the rest the management API and the messages of entities. Whatever goes wrong becomes an
`Error` document here and nowhere else.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from polybus.gateway.gateway import Gateway
from polybus.gateway.http_atom import manage
from polybus.gateway.http_errors import error_response
from polybus.gateway.http_messages import handle_messages
from polybus.gateway.http_request import Call, Disconnected
from polybus.namespace.names import TargetKind, parse_http_path

_MESSAGE_TARGETS = (TargetKind.MESSAGES, TargetKind.HEAD, TargetKind.MESSAGE)


def make_app(gateway: Gateway) -> ASGIApp:
    """The application."""
    return HttpApp(gateway)


class HttpApp:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive, self._gateway)
        try:
            response = await self._answer(call)
        except Disconnected:
            return
        except Exception as error:
            response = error_response(call, error)
        if not await call.drain():
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def _answer(self, call: Call) -> Response:
        call.check()
        target = parse_http_path(call.raw_path)
        if target.kind in _MESSAGE_TARGETS:
            return await handle_messages(call, target)
        return await manage(call, target)


async def _live(receive: Receive, send: Send) -> None:
    """Servers announce start and stop; the bus is started and stopped by its node."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
