"""What a client asks for and nobody has made: queues, topics and subscriptions on demand, and temporary nodes.

JMS expects this of a broker, and the cloud's Premium tier does it; here a bus does it that was started so. Whoever has
something made needs the right to manage it. What is made for one link goes with the link; where the bus could not
delete it then, it goes as an idle entity does. What an entity is lives elsewhere. docs/protocol/amqp.md#on-demand.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar
from uuid import uuid4

from polybus.amqp.link import Link
from polybus.amqp.terminus import Source, Target
from polybus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    NotImplementedByBus,
    PolybusError,
    SubscriptionInUse,
)
from polybus.gateway.turns import Turns
from polybus.limits import IDLE_MS_MIN, NAME_CHARACTERS
from polybus.namespace.entities.description import (
    INFINITE_MS,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.names import Address, check_subscription_name, fold
from polybus.namespace.entities.rule import DEFAULT_RULE_NAME, RuleDescription, SqlFilterDescription
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise, spawn

T = TypeVar("T")

TOPICS: Final = ("topic", "temporary-topic")
"""The capabilities by which JMS says that it means a topic."""
_VOLATILE: Final = "~volatile"


class ForLink:
    """Something that was made for a link, and what becomes of it when the link goes."""

    __slots__ = ("_kept", "_namespace", "_path", "_subscription", "_turns", "durable")

    def __init__(
        self, turns: Turns, namespace: Namespace, path: str, subscription: str | None = None, durable: bool = False
    ) -> None:
        self._turns = turns
        self._namespace = namespace
        self._path = path
        self._subscription = subscription
        self._kept: Entity | None = None
        self.durable = durable
        """A durable subscription stays until its link is closed for good: leaving is not unsubscribing."""

    def keep(self, entity: Entity) -> None:
        """As long as its link is there a temporary node is in use, though nobody receives from it."""
        entity.receivers += 1
        self._kept = entity

    def link_gone(self, link: Link) -> None:
        """Looks when the link has taken itself off the entity's receivers."""
        if self._kept is not None:
            self._kept.receivers -= 1
            self._kept = None
        if not self.durable or link.closed_by_peer:
            self._turns.leaving[self._key] = None
            self._namespace.bus.loop.call_soon(self._remove)

    @property
    def _key(self) -> tuple[str, str, str | None]:
        name = self._subscription
        return self._namespace.name, fold(self._path), None if name is None else fold(name)

    def _remove(self) -> None:
        spawn(self._turns.alone(self._namespace, self._path, self._delete())).then(self._removed)

    async def _delete(self) -> None:
        entity = self._namespace.find(self._path)
        name = self._subscription
        if entity is not None and name is None:
            await self._namespace.management.delete(self._path)
        elif entity is not None and name is not None:
            found = entity.subscriptions.get(fold(name))
            if found is not None and not found.receivers:
                await self._namespace.management.delete_subscription(self._path, name)

    def _removed(self, promise: Promise[None]) -> None:
        """Where it cannot be deleted now, it is deleted when it has been idle for long enough."""
        self._turns.leaving.pop(self._key, None)
        with contextlib.suppress(PolybusError):
            promise.result()


class Wish:
    """What one end of a link asks for."""

    __slots__ = ("capabilities", "durable", "dynamic", "selector")

    def __init__(self, end: Source | Target, selector: str | None) -> None:
        self.capabilities = end.capabilities
        self.dynamic = end.dynamic and end.address is None
        self.durable = isinstance(end, Source) and end.durable
        self.selector = selector

    @property
    def topic(self) -> bool:
        return any(name in self.capabilities for name in TOPICS)

    @property
    def temporary(self) -> bool:
        """Whether it names a node that somebody had made for itself: where it is gone, it stays so."""
        return any(name.startswith("temporary-") for name in self.capabilities)

    @property
    def shared(self) -> bool:
        return "shared" in self.capabilities

    @property
    def everybodys(self) -> bool:
        """Shared by clients of every name, and not only of one."""
        return "global" in self.capabilities


class Maker:
    """Makes what links ask for in one namespace."""

    __slots__ = ("_namespace", "_turns")

    def __init__(self, turns: Turns, namespace: Namespace) -> None:
        self._turns = turns
        self._namespace = namespace

    async def entity(self, path: str, topic: bool) -> Entity:
        """The queue or topic of that name, made where there is none."""
        if self._namespace.find(path) is None:
            with contextlib.suppress(EntityAlreadyExists):  # somebody else may be faster
                await self._alone(path, self._create(path, topic, INFINITE_MS))
        return self._namespace.entity(path)

    async def temporary(self, topic: bool) -> tuple[Address, ForLink]:
        """A new queue or topic that lives as long as the link that asks for it."""
        path = f"temporary-{'topic' if topic else 'queue'}-{uuid4().hex}"
        await self._alone(path, self._create(path, topic, IDLE_MS_MIN))
        return Address(path), ForLink(self._turns, self._namespace, path)

    async def _create(self, path: str, topic: bool, idle_ms: int) -> None:
        described: EntityDescription = QueueDescription(path=path, auto_delete_on_idle_ms=idle_ms)
        if topic:
            described = TopicDescription(path=path, auto_delete_on_idle_ms=idle_ms)
        await self._namespace.management.create(described)

    async def subscription(self, topic: Entity, wish: Wish, client: str, link: str) -> tuple[Address, ForLink]:
        """The subscription over which a link receives from a topic; made where there is none."""
        name = subscription_name(wish, client, link)
        await self._alone(topic.name, self._subscribe(topic, name, wish))
        address = Address(topic.name, name)
        return address, ForLink(self._turns, self._namespace, topic.name, name, wish.durable)

    async def _subscribe(self, topic: Entity, name: str, wish: Wish) -> None:
        rules = _rules(wish.selector)
        found = topic.subscriptions.get(fold(name))
        if found is not None and not _has_filter(found, rules[0]):
            # JMS: another selector makes another subscription of the same name.
            self._check_unused(found)
            await self._namespace.management.delete_subscription(topic.name, name)
            found = None
        if found is not None:
            if not wish.shared:
                self._check_unused(found)
            return
        idle_ms = INFINITE_MS if wish.durable else IDLE_MS_MIN
        described = SubscriptionDescription(topic=topic.name, name=name, auto_delete_on_idle_ms=idle_ms)
        await self._namespace.management.create_subscription(described, rules)

    def _check_unused(self, subscription: Subscription) -> None:
        if subscription.receivers:
            name = subscription.description.name
            raise SubscriptionInUse(f"The subscription '{name}' has a receiver already, and is not shared.")

    def _alone(self, path: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return self._turns.alone(self._namespace, path, work)

    def is_leaving(self, path: str, subscription: str | None = None) -> bool:
        name = None if subscription is None else fold(subscription)
        return (self._namespace.name, fold(path), name) in self._turns.leaving

    def durable(self, client: str, link: str) -> tuple[Entity, str, ForLink]:
        """The durable subscription that was once made over a link of that name, wherever its topic is."""
        names = [fold(subscription_name(_Durable(shared), client, link)) for shared in (False, True)]
        for entity in self._namespace.entities.values():
            for name in names:
                if name in entity.subscriptions and not self.is_leaving(entity.name, name):
                    owned = ForLink(self._turns, self._namespace, entity.name, name, True)
                    return entity, name, owned
        raise EntityNotFound(f"There is no durable subscription '{link[:100]}' of the client '{client[:100]}'.")


class _Durable(Wish):
    """A durable subscription as it is looked for: of one client, or of every client."""

    __slots__ = ()

    def __init__(self, everybodys: bool) -> None:
        super().__init__(Source(), None)
        self.durable = True
        if everybodys:
            self.capabilities = ["shared", "global"]


def subscription_name(wish: Wish, client: str, link: str) -> str:
    """JMS names a subscription by its link, with further links of a shared one told apart behind a bar."""
    if not wish.durable and not wish.shared:
        return f"link-{uuid4().hex}"
    name = link.partition("|")[0]
    if not wish.everybodys:
        name = f"{client}.{name}"
    return _allowed(name + ("" if wish.durable else _VOLATILE))


def _allowed(name: str) -> str:
    """The name itself where a subscription may have it; else its beginning and a hash that tells it from others."""
    try:
        return check_subscription_name(name)
    except PolybusError:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        kept = "".join(one if one.isascii() and one.isalnum() else "-" for one in name)
        return f"{kept[: NAME_CHARACTERS - 17]}-{digest}"


def _rules(selector: str | None) -> list[RuleDescription]:
    if selector is None:
        return [RuleDescription(name=DEFAULT_RULE_NAME)]
    return [RuleDescription(name=DEFAULT_RULE_NAME, filter=SqlFilterDescription(expression=selector))]


def _has_filter(subscription: Subscription, rule: RuleDescription) -> bool:
    """Whether the subscription lets through what the rule does; one with rules of its own is left as it is."""
    own = [found for _, found in subscription.rules.values()]
    if len(own) != 1 or fold(own[0].name) != fold(DEFAULT_RULE_NAME):
        return True
    return own[0].filter == rule.filter


def refuse_temporary() -> NotImplementedByBus:
    return NotImplementedByBus(
        "Temporary nodes are made by a bus that was started with --on-demand-entities; this one was not."
    )
