"""A request of the resource manager's API, taken apart, and the forms of its answers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from polybus import limits
from polybus.errors import ArgumentError, BusError, EntityNotFound, PolybusError
from polybus.gateway.arm.resources import PROVIDER, Json
from polybus.gateway.durations import date_time_text
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.errors import JSON_TYPE, error_response
from polybus.gateway.http.properties import parse_json
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.management.changes import Management
from polybus.namespace.namespace import Namespace

_CODES = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "ResourceNotFound", 409: "Conflict"}


def is_arm(call: HttpCall) -> bool:
    """No entity's path has the provider's name behind one of these words."""
    words = call.path.lower().split("/")
    return words[1] in ("subscriptions", "providers") and PROVIDER.lower() in words


class ArmCall:
    """`names` are the segments behind the provider: `namespaces`, NAME, `queues`, NAME and so on."""

    def __init__(self, call: HttpCall) -> None:
        self.call = call
        segments = [unquote(segment) for segment in call.raw_path.strip("/").split("/")]
        at = [segment.lower() for segment in segments].index(PROVIDER.lower())
        self.scope = "/" + "/".join(segments[: at + 1])
        """The path up to the provider, as the client wrote it."""
        self.names = segments[at + 1 :]

    @property
    def namespace(self) -> Namespace:
        return self.call.namespace

    @property
    def management(self) -> Management:
        return self.namespace.management

    def enter(self, name: str) -> None:
        """The namespace that the path names; whoever may not manage it hears nothing of it."""
        found = self.call.gateway.bus.namespaces.get(name.lower())
        if found is not None:
            self.call.namespace = found
        authorize(self.call, "", Rights.MANAGE)
        if found is None:
            raise EntityNotFound(f"There is no namespace '{name[:60]}' on this bus.")

    async def properties(self) -> Json:
        """What is in the body under `properties`."""
        return section(await self.json(), "properties")

    async def json(self) -> Json:
        body = await self.call.body(limits.XML_BODY_BYTES)
        value = parse_json(body, "request body") if body.strip() else {}
        if not isinstance(value, dict):
            raise ArgumentError("The request body must be a JSON object.")
        return value

    # Answers

    def resource(self, names: list[str], properties: Json, **more: Any) -> Json:
        """A resource with its id: `names` are the types and names in turn."""
        return {
            "id": f"{self.scope}/{'/'.join(names)}",
            "name": names[-1],
            "type": "/".join([PROVIDER, *names[::2]]),
            "location": "local",
            **more,
            "properties": properties,
        }

    def page(self, rows: list[Json]) -> Json:
        """A part of a list, where the client asks for one."""
        skip, top = self._number("$skip", 0), self._number("$top", limits.ARM_PAGE)
        shown: Json = {"value": rows[skip : skip + top]}
        if top and skip + top < len(rows):
            version = self.call.query.get("api-version", "")
            query = f"api-version={version}&$skip={skip + top}&$top={top}"
            shown["nextLink"] = f"{self.call.base_url}{self.call.raw_path}?{query}"
        return shown

    def _number(self, name: str, default: int) -> int:
        text = self.call.query.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise ArgumentError(f"'{name}' must be a whole number.")
        return int(text)


def section(body: Json, name: str) -> Json:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise ArgumentError(f"'{name}' must be a JSON object.")
    return value


def answer(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, {"Cache-Control": "no-store"}, JSON_TYPE)


def refused(call: HttpCall, error: PolybusError) -> Response:
    """The error in the resource manager's form; what only the bus's log should know stays there."""
    response = error_response(call, error)
    text = error.description if isinstance(error, BusError) else "The bus could not do this."
    code = _CODES.get(response.status_code, "ServiceUnavailable" if response.status_code == 503 else "Failed")
    shown = answer({"error": {"code": code, "message": text}}, response.status_code)
    for name in ("retry-after", "www-authenticate"):
        if name in response.headers:
            shown.headers[name] = response.headers[name]
    return shown


def time_text(wall_ms: int) -> str:
    return date_time_text(wall_ms)
