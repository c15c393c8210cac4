"""A management request as its operation sees it: where, for whom, and its fields, read liberally.

Integers may come in any width and arrays as lists (docs/protocol/amqp.md#integers); a field that is missing or of a
wrong kind is the client's error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from polybus.amqp.types import AmqpArray
from polybus.errors import ArgumentError, ArgumentOutOfRange, SessionLockLost
from polybus.gateway.amqp.addresses import LinkNode, checked_session_id
from polybus.gateway.amqp.link_end import LinkEnd, SessionLinks
from polybus.gateway.amqp.requests import Request
from polybus.gateway.amqp.session_receive import SessionReceiveLink
from polybus.gateway.stats import EntityStats
from polybus.limits import AMQP_LOCKS_PER_REQUEST
from polybus.namespace.delivery.session_source import HeldSession
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint


class ManagementReply:
    """What goes back: 200 with a body, or 204 where there is nothing."""

    __slots__ = ("body", "status")

    def __init__(self, body: dict[str, object] | None = None, status: int = 200) -> None:
        self.body: dict[str, object] = {} if body is None else body
        self.status = status


def nothing() -> ManagementReply:
    return ManagementReply(status=204)


class ManagementCall:
    """One management request."""

    __slots__ = ("_body", "endpoint", "place", "request", "shared")

    def __init__(self, endpoint: AmqpEndpoint, shared: SessionLinks, place: LinkNode, request: Request) -> None:
        self.endpoint = endpoint
        self.shared = shared
        self.place = place
        self.request = request
        body = request.body
        if body is not None and not isinstance(body, dict):
            raise ArgumentError("The body of a management request is a map.")
        self._body: dict[object, object] = body or {}

    @property
    def namespace(self) -> Namespace:
        return self.place.namespace

    @property
    def entity(self) -> Entity:
        return self.place.entity

    @property
    def txn_id(self) -> bytes | None:
        state = self.request.state
        return None if state is None else state.txn_id

    def stats(self) -> EntityStats:
        return self.endpoint.gateway.stats.entity(self.namespace.name, self.place.stats_path())

    def get(self, name: str) -> object:
        return self._body.get(name)

    def number(self, name: str, default: int | None = None) -> int:
        value = self._body.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(f"The field '{name}' is not a number.")
        return int(value)

    def text(self, name: str) -> str:
        value = self._body.get(name)
        if not isinstance(value, str):
            raise ArgumentError(f"The field '{name}' is not a string.")
        return str(value)

    def text_or_none(self, name: str) -> str | None:
        return None if self._body.get(name) is None else self.text(name)

    def session_id(self) -> str | None:
        """The session that the request is about, if it is about one."""
        given = self.text_or_none("session-id")
        return None if given is None else checked_session_id(given)

    def items(self, name: str) -> list[object]:
        value = self._body.get(name)
        items = value.items if isinstance(value, AmqpArray) else value
        if not isinstance(items, list):
            raise ArgumentError(f"The field '{name}' is not an array.")
        if not 1 <= len(items) <= AMQP_LOCKS_PER_REQUEST:
            raise ArgumentOutOfRange(f"The field '{name}' must have 1 to {AMQP_LOCKS_PER_REQUEST} items.")
        return items

    def numbers(self, name: str) -> list[int]:
        found: list[int] = []
        for item in self.items(name):
            if isinstance(item, bool) or not isinstance(item, int):
                raise ArgumentError(f"The field '{name}' holds something that is not a number.")
            found.append(int(item))
        return found

    async def deliveries(self) -> list[Delivery]:
        """The deliveries that the request's lock tokens name; lock-lost where one of them is not held."""
        log_id = self.place.log_id()
        found: list[Delivery] = []
        for item in self.items("lock-tokens"):
            if not isinstance(item, UUID):
                raise ArgumentError("A lock token is not a uuid.")
            found.append(await self.namespace.delivery_of(self.entity, log_id, item.bytes))
        return found

    def held_session(self) -> HeldSession:
        """The session of the request, which this client must hold."""
        session_id = self._session_id()
        held = None
        if self.entity.requires_session(self.place.address):
            held = self.entity.session_source(self.place.address).find(session_id)
        receiver = None if held is None else held.receiver
        if held is None or not isinstance(receiver, LinkEnd) or receiver.endpoint is not self.endpoint:
            raise SessionLockLost(f"The session lock on '{session_id}' is not held by this client.")
        return held

    @property
    def names_session(self) -> bool:
        """Whether the request is about one session, by its name or by its receiver's link."""
        return self._body.get("session-id") is not None or self._linked_session() is not None

    def _session_id(self) -> str:
        """The session that the request names, or that of its receiver's link: the Go SDK names only that.

        docs/protocol/management.md#associated-link.
        """
        linked = self._linked_session() if self._body.get("session-id") is None else None
        return checked_session_id(self.text("session-id")) if linked is None else linked

    def _linked_session(self) -> str | None:
        receiver = self.endpoint.receiver_named(self.request.application.get("associated-link-name"))
        return receiver.session_id if isinstance(receiver, SessionReceiveLink) else None
