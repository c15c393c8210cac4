"""Brings a bus in line with a file of declared entities: what is missing is created, what is there is kept (H5).

What is there and can never become what the file says, plain where it declares partitions, ends the start: the bus would
be another one than its file describes, and nobody would know.
"""

from __future__ import annotations

from polybus.gateway.config.model import ConfigFile, NamespaceConfig
from polybus.namespace.bus import Bus
from polybus.namespace.entities.admission import check_declared
from polybus.namespace.entities.description import EntityDescription
from polybus.namespace.entities.names import fold
from polybus.namespace.namespace import Namespace


async def provision(bus: Bus, config: ConfigFile) -> None:
    """Creates queues and topics, then subscriptions with their rules; each at once as it is to be.

    So any order in the file works, and what a crash has interrupted the next start completes.
    """
    for namespace in config.namespaces:
        await _provision(bus.namespace(namespace.name), namespace)


async def _provision(namespace: Namespace, config: NamespaceConfig) -> None:
    management = namespace.management
    entities: list[EntityDescription] = [*config.queues, *(topic.description for topic in config.topics)]
    declared = [fold(entity.path) for entity in entities]
    for entity in entities:
        known = namespace.find(entity.path)
        if known is None:
            await management.create(entity, from_file=True, declared=declared)
        else:
            check_declared(known.description, entity, namespace.tier)
    for topic in config.topics:
        there = namespace.entity(topic.description.path).subscriptions
        for subscription in topic.subscriptions:
            before = there.get(fold(subscription.description.name))
            if before is not None:
                check_declared(before.description, subscription.description, namespace.tier)
            else:
                rules = list(subscription.rules) or None
                await management.create_subscription(subscription.description, rules, from_file=True)
