"""Where a link goes: its address looked up, its filter read, its refusal in the words that the SDKs know.

An address that cannot be one names no entity, and is refused as such. Rights are asked before names, so that nobody
learns which entities exist. docs/protocol/amqp.md#addresses, docs/protocol/amqp.md#refused-attach,
docs/protocol/amqp.md#session-filter.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.performatives import Attach
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.types import Described, Symbol, ULong
from polybus.errors import ArgumentError, ArgumentOutOfRange, EntityNotFound, InvalidOperation, NotImplementedByBus
from polybus.gateway.amqp.access import Scope
from polybus.gateway.sas import scope_of
from polybus.limits import KEY_CHARACTERS
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.names import Address, parse_address
from polybus.namespace.namespace import Namespace

SESSION_FILTER: Final = "com.microsoft:session-filter"
SESSION_FILTER_CODE: Final = 0x137000000C
SHARED_SESSION_FILTER: Final = "com.microsoft:non-exclusive-session-filter:list"


class LinkNode:
    """An entity, or a part of it, as a link is attached to it."""

    __slots__ = ("address", "entity", "namespace", "scope", "subscription")

    def __init__(self, namespace: Namespace, address: Address) -> None:
        self.namespace = namespace
        self.address = address
        self.entity: Entity = namespace.addressed(address)
        self.subscription: Subscription | None = None
        if address.subscription is not None:
            self.subscription = self.entity.subscription(address.subscription)
        self.scope: Scope = scope_of(address.path)

    @property
    def path(self) -> str:
        return self.address.path

    @property
    def uri(self) -> str:
        return uri_of(self.namespace, self.address)

    @property
    def deleted(self) -> bool:
        return self.entity.deleted or (self.subscription is not None and self.subscription.deleted)

    def log_id(self) -> int:
        return self.entity.log_id(self.address)

    def stats_path(self) -> str:
        """The canonical path under which traffic is counted: a dead-letter queue has its own."""
        subscription = self.subscription
        name = None if subscription is None else subscription.description.name
        return Address(self.entity.name, name, self.address.sub_queue).path


def uri_of(namespace: Namespace, address: Address) -> str:
    return f"sb://{namespace.name}/{address.path}"


def address_of(namespace: Namespace, attach: Attach) -> Address:
    """The node that an attach is about: where a receiver receives from, where a sender sends to."""
    end: Source | Target | Coordinator | None = attach.source if attach.role else attach.target
    text = None if end is None or isinstance(end, Coordinator) else end.address
    if text is None:
        raise InvalidOperation("The address of the link's source says where it receives from; it has none.")
    return parsed(namespace, text)


def parsed(namespace: Namespace, text: str) -> Address:
    try:
        return parse_address(text)
    except ArgumentError as error:
        raise EntityNotFound(
            f"The messaging entity 'sb://{namespace.name}/{text[:260]}' could not be found. {error.description}"
        ) from None


class SessionFilter:
    """Which session a receiver asks for; None is the next available one. Its form is kept for the echo."""

    __slots__ = ("descriptor", "session_id")

    def __init__(self, session_id: str | None, descriptor: object) -> None:
        self.session_id = session_id
        self.descriptor = descriptor

    def echo(self, source: Source, session_id: str) -> Source:
        """The source with the session that was found, in the form that the client used.

        docs/protocol/amqp.md#filter-form.
        """
        value: object = session_id
        if self.descriptor is not None:
            value = Described(self.descriptor, session_id)
        return Source(source.address, {Symbol(SESSION_FILTER): value}, source.others)


def session_filter(source: Source | None) -> SessionFilter | None:
    """The session filter of a source, if it has one."""
    filters = None if source is None else source.filter
    if not filters:
        return None
    if SHARED_SESSION_FILTER in filters:
        raise NotImplementedByBus("Sessions that several receivers hold together are not supported.")
    if SESSION_FILTER not in filters:
        return None
    value = filters[SESSION_FILTER]
    descriptor: object = None
    if isinstance(value, Described):
        if isinstance(value.descriptor, ULong) and value.descriptor != SESSION_FILTER_CODE:
            raise NotImplementedByBus("The filter's descriptor is not that of a session filter.")
        descriptor, value = value.descriptor, value.value
    if value is not None and not isinstance(value, str):
        raise ArgumentError("The session filter is neither a string nor null.")
    return SessionFilter(None if value is None else checked_session_id(value), descriptor)


def checked_session_id(session_id: str) -> str:
    """The id of a session, if one can have it: ids become part of stored keys."""
    if len(session_id) > KEY_CHARACTERS:
        raise ArgumentOutOfRange(f"The SessionId exceeds the limit of {KEY_CHARACTERS} characters.")
    return session_id
