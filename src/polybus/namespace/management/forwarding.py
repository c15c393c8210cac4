"""Management where a bus has several members: the one that leads does it, the others ask it.

A question is the verb's name with its arguments as the catalogue would write them down. It is answered when every member
has applied the change, so what it gives is found in this process's own memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from polybus.errors import ArgumentError, PolybusError
from polybus.limits import TRANSACTION_MS
from polybus.namespace.entities.codec import from_dict, to_dict
from polybus.namespace.entities.description import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.rule import RuleDescription
from polybus.namespace.management.changes import Management

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

MANAGE = "management"
HOLD = "management.hold"
LET_GO = "management.let_go"
_T = TypeVar("_T")


class ForwardingManagement(Management):
    """Does what it is asked where this process leads, and asks the leader where it does not."""

    async def create(
        self, asked: EntityDescription, *, from_file: bool = False, declared: Collection[str] = ()
    ) -> Entity:
        if self._leads:
            return await super().create(asked, from_file=from_file, declared=declared)
        await self._ask("create", to_dict(asked), from_file, list(declared))
        return self._namespace.entity(asked.path)

    async def update(self, asked: EntityDescription, given: Collection[str] | None = None) -> Entity:
        if self._leads:
            return await super().update(asked, given)
        await self._ask("update", to_dict(asked), None if given is None else list(given))
        return self._namespace.entity(asked.path)

    async def delete(self, path: str) -> None:
        if self._leads:
            await super().delete(path)
        else:
            await self._ask("delete", path)

    async def create_subscription(
        self, asked: SubscriptionDescription, rules: list[RuleDescription] | None = None, *, from_file: bool = False
    ) -> Subscription:
        if self._leads:
            return await super().create_subscription(asked, rules, from_file=from_file)
        described = None if rules is None else [to_dict(rule) for rule in rules]
        await self._ask("create_subscription", to_dict(asked), described, from_file)
        return self.topic(asked.topic).subscription(asked.name)

    async def update_subscription(
        self, asked: SubscriptionDescription, given: Collection[str] | None = None
    ) -> Subscription:
        if self._leads:
            return await super().update_subscription(asked, given)
        await self._ask("update_subscription", to_dict(asked), None if given is None else list(given))
        return self.topic(asked.topic).subscription(asked.name)

    async def delete_subscription(self, topic: str, name: str) -> None:
        if self._leads:
            await super().delete_subscription(topic, name)
        else:
            await self._ask("delete_subscription", topic, name)

    async def create_rule(self, topic: str, name: str, rule: RuleDescription) -> RuleDescription:
        if self._leads:
            return await super().create_rule(topic, name, rule)
        await self._ask("create_rule", topic, name, to_dict(rule))
        return self.rule(self.topic(topic).subscription(name), rule.name)[1]

    async def update_rule(self, topic: str, name: str, rule: RuleDescription) -> RuleDescription:
        if self._leads:
            return await super().update_rule(topic, name, rule)
        await self._ask("update_rule", topic, name, to_dict(rule))
        return self.rule(self.topic(topic).subscription(name), rule.name)[1]

    async def delete_rule(self, topic: str, name: str, rule: str) -> None:
        if self._leads:
            await super().delete_rule(topic, name, rule)
        else:
            await self._ask("delete_rule", topic, name, rule)

    async def alone(self, path: str, work: Coroutine[Any, Any, _T]) -> _T:
        """For the whole bus, and not for this process alone: the leader, where everything else is changed, holds the
        entity for it. One who never lets go is forgotten after a while."""
        members = self._bus.members
        if members is None or members.leads:
            return await super().alone(path, work)
        try:
            await members.ask_leader(HOLD, [self._namespace.name, path])
        except PolybusError:
            work.close()
            raise
        try:
            return await super().alone(path, work)
        finally:
            members.ask_leader(LET_GO, [self._namespace.name, path])

    @property
    def _leads(self) -> bool:
        members = self._bus.members
        return members is None or members.leads

    async def _ask(self, verb: str, *values: Any) -> None:
        members = self._bus.members
        assert members is not None, "who is alone leads"
        await members.ask_leader(MANAGE, json.dumps([self._namespace.name, verb, *values]))


async def manage_for_another(bus: Bus, question: Any) -> None:
    """Does at the leader what another member was asked."""
    name, verb, *values = json.loads(question)
    management = bus.namespace(name).management
    if verb in ("create", "update"):
        asked = from_dict(values[0])
        assert isinstance(asked, QueueDescription | TopicDescription), "queues and topics are created and changed"
        if verb == "create":
            await management.create(asked, from_file=values[1], declared=values[2])
        else:
            await management.update(asked, values[1])
    elif verb in ("create_subscription", "update_subscription"):
        described = from_dict(values[0])
        assert isinstance(described, SubscriptionDescription), "subscriptions are created and changed"
        if verb == "create_subscription":
            rules = None if values[1] is None else [_rule(each) for each in values[1]]
            await management.create_subscription(described, rules, from_file=values[2])
        else:
            await management.update_subscription(described, values[1])
    elif verb == "delete":
        await management.delete(values[0])
    elif verb == "delete_subscription":
        await management.delete_subscription(values[0], values[1])
    elif verb == "create_rule":
        await management.create_rule(values[0], values[1], _rule(values[2]))
    elif verb == "update_rule":
        await management.update_rule(values[0], values[1], _rule(values[2]))
    elif verb == "delete_rule":
        await management.delete_rule(values[0], values[1], values[2])
    else:
        raise ArgumentError(f"There is no verb '{verb}' of management.")


async def hold_for_another(bus: Bus, asked: Any) -> None:
    """Nobody changes the entity until another member lets go of it; OperationConflict where somebody does."""
    name, path = asked
    management = bus.namespace(name).management
    management.hold(path)
    bus.loop.call_later(TRANSACTION_MS / 1000, management.let_go, path)


async def let_go_for_another(bus: Bus, asked: Any) -> None:
    name, path = asked
    bus.namespace(name).management.let_go(path)


def _rule(described: Any) -> RuleDescription:
    rule = from_dict(described)
    assert isinstance(rule, RuleDescription), "rules are created and changed"
    return rule
