"""What the handlers of the bulk API have in common: a request taken apart, its numbers and its JSON checked."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from polybus import limits
from polybus.errors import ArgumentError, EntityDeleted
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.errors import JSON_TYPE
from polybus.gateway.http.properties import parse_json
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address

_LONG = 1 << 63


class BulkCall:
    """A request about one entity, or about a part of it that has a log."""

    def __init__(self, call: HttpCall, address: Address, names: list[str]) -> None:
        self.call = call
        self.address = address
        self.names = names
        """The names inside of the entity that the path has: a cursor's, a producer's."""
        self.namespace = call.namespace
        self.bus = call.gateway.bus

    @property
    def name(self) -> str:
        name = self.names[0]
        if not 1 <= len(name) <= limits.CURSOR_NAME_CHARACTERS or not name.isascii() or not name.isprintable():
            raise ArgumentError("A name must have 1 to 128 printable ASCII characters.")
        return name

    @property
    def entity(self) -> Entity:
        """The entity; refused where the client has read another one that had the same name."""
        entity = self.namespace.addressed(self.address)
        expected = self.call.query.get("entity_id")
        if expected is not None and expected != generation(entity):
            raise EntityDeleted(f"'{entity.name}' was deleted and created again: it is not {expected[:60]}.")
        return entity

    @property
    def log_id(self) -> int:
        return self.entity.log_id(self.address)

    def authorize(self, needed: Rights, path: str | None = None) -> None:
        authorize(self.call, self.address.path if path is None else path, needed)

    # The query

    def number(self, name: str, default: int | None = None, most: int = _LONG - 1) -> int:
        text = self.call.query.get(name)
        if text is None:
            if default is None:
                raise ArgumentError(f"The parameter '{name}' is missing.")
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > most:
            raise ArgumentError(f"The parameter '{name}' must be a whole number from 0 to {most}.")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = self.call.query.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ArgumentError(f"The parameter '{name}' must be true or false.")
        return text.lower() == "true"

    # The body

    async def json(self, most: int = limits.BULK_JSON_BYTES) -> dict[str, Any]:
        """The JSON object in the body; an empty body is an empty object."""
        body = await self.call.body(most)
        value = parse_json(body, "request body") if body.strip() else {}
        if not isinstance(value, dict):
            raise ArgumentError("The request body must be a JSON object.")
        return value


def generation(entity: Entity) -> str:
    """Tells an entity from another that had its name before, also where the catalogue began anew."""
    return f"{entity.id}-{entity.description.created_at_ms}"


def answer(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, {"Cache-Control": "no-store"}, JSON_TYPE)


def text_in(body: dict[str, Any], name: str, most: int = 256) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ArgumentError(f"'{name}' must be a string of 1 to {most} characters.")
    return value


def number_in(body: dict[str, Any], name: str, default: int | None = None, most: int = _LONG - 1) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ArgumentError(f"'{name}' must be a whole number from 0 to {most}.")
    return value


def optional_number_in(body: dict[str, Any], name: str) -> int | None:
    return None if body.get(name) is None else number_in(body, name)


def positions_in(value: object) -> dict[int, int]:
    """Partitions to positions, as JSON writes them: `{"0": 41, "1": 12}`."""
    if not isinstance(value, dict):
        raise ArgumentError("Positions must be a JSON object of partitions to positions.")
    found: dict[int, int] = {}
    for index, position in value.items():
        plain = isinstance(position, int) and not isinstance(position, bool)
        if not index.isascii() or not index.isdigit() or len(index) > 5 or not plain:
            raise ArgumentError("Positions must be a JSON object of partitions to positions.")
        found[int(index)] = position
    return found
