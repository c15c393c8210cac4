"""Everything that the bus answers over HTTP, as one ASGI application.

The path decides who answers: health and metrics, the bulk API under `/$polybus`, the console, a WebSocket that
carries AMQP, and for the rest the management API and the messages of entities. Whatever goes wrong becomes an
`Error` document here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from polybus.gateway.arm.call import is_arm
from polybus.gateway.arm.routes import handle_arm
from polybus.gateway.atom.entities import manage
from polybus.gateway.bulk.routes import handle_bulk, is_bulk
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.auth import authorize_any
from polybus.gateway.http.console import Console, is_console
from polybus.gateway.http.errors import error_response, not_allowed, refusal
from polybus.gateway.http.faults import FaultPanel
from polybus.gateway.http.health import Health
from polybus.gateway.http.live import Live
from polybus.gateway.http.messages import handle_messages
from polybus.gateway.http.metrics import metrics
from polybus.gateway.http.passing import answer_others, belongs_elsewhere, pass_on
from polybus.gateway.http.request import Disconnected, HttpCall
from polybus.gateway.http.websocket import handle_websocket
from polybus.namespace.entities.names import TargetKind, parse_http_path

_MESSAGE_TARGETS = (TargetKind.MESSAGES, TargetKind.HEAD, TargetKind.MESSAGE)


def make_app(
    gateway: Gateway,
    *,
    faults: FaultPanel | None = None,
    is_ready: Callable[[], bool] = lambda: True,
    open_metrics: bool = True,
    entity_metrics: bool = True,
    strict_properties: bool = False,
    origins: Collection[str] = (),
) -> ASGIApp:
    """The application. It must run on the bus's own loop.

    `faults` opens the fault switches. `is_ready` says whether what was declared exists; until then health is 503.
    Metrics need a token unless `open_metrics`. `strict_properties` refuses custom properties that are neither quoted
    nor numbers. `origins` are those of web pages that may open a WebSocket, besides the bus's own.
    """
    return HttpApp(gateway, faults, is_ready, open_metrics, entity_metrics, strict_properties, origins)


class HttpApp:
    def __init__(
        self,
        gateway: Gateway,
        faults: FaultPanel | None,
        is_ready: Callable[[], bool],
        open_metrics: bool,
        entity_metrics: bool,
        strict_properties: bool,
        origins: Collection[str],
    ) -> None:
        self._gateway = gateway
        self._panel = faults
        self._health = Health(gateway, is_ready)
        self._console = Console(Live(gateway), faults)
        self._open_metrics = open_metrics
        self._entity_metrics = entity_metrics
        self._strict = strict_properties
        self._origins = frozenset(origins)
        answer_others(gateway, self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await handle_websocket(self._gateway, self._origins, scope, receive, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = HttpCall(scope, receive, self._gateway)
        try:
            response = await self._answer(call)
        except Disconnected:
            return
        except Exception as error:
            response = error_response(call, error)
        if not await call.drain():
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def _answer(self, call: HttpCall) -> Response:
        call.check()
        if self._gateway.own_names.refuses(call.headers.get("origin"), call.host):
            raise refusal(403, "The page that asks does not belong to this bus, and reaches it by a foreign name.")
        if _is_about_the_bus(call):
            return await self._about_the_bus(call)
        if is_console(call):
            return await self._console.handle(call)
        if belongs_elsewhere(call):
            return await pass_on(call)
        if is_bulk(call):
            return await handle_bulk(call, self._panel)
        if is_arm(call):
            return await handle_arm(call)
        target = parse_http_path(call.raw_path)
        if target.kind in _MESSAGE_TARGETS:
            return await handle_messages(call, target, strict=self._strict)
        return await manage(call, target)

    async def _about_the_bus(self, call: HttpCall) -> Response:
        if call.method not in ("GET", "HEAD"):
            raise not_allowed(call.method)
        path = call.path.lower()
        if path == "/health/live":
            return self._health.live()
        if path != "/metrics":
            return await self._health.ready()
        if not self._open_metrics:
            authorize_any(call, "")
        return await metrics(self._gateway, per_entity=self._entity_metrics)


_ABOUT = ("/health", "/health/live", "/health/ready", "/metrics")


def _is_about_the_bus(call: HttpCall) -> bool:
    """A queue may be called `health`: whoever means that says an api-version or shows a token.

    docs/protocol/atom.md#health-or-queue.
    """
    path = call.path.lower()
    if path not in _ABOUT or "api-version" in call.query:
        return False
    return path == "/metrics" or "authorization" not in call.headers


async def _live(receive: Receive, send: Send) -> None:
    """Servers announce start and stop; the bus is started and stopped by its node."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
