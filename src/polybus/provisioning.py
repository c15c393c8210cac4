"""Brings a bus in line with a file of declared entities: what is missing is created, what is there is kept (H5)."""

from __future__ import annotations

from dataclasses import replace

from polybus.gateway.config_model import ConfigFile, NamespaceConfig
from polybus.namespace.bus import Bus
from polybus.namespace.description import QueueDescription
from polybus.namespace.namespace import Namespace


async def provision(bus: Bus, config: ConfigFile) -> None:
    """Creates queues and topics, then subscriptions and rules, then forwards, so that any order in the file works."""
    for namespace in config.namespaces:
        await _provision(bus.namespace(namespace.name), namespace)


async def _provision(namespace: Namespace, config: NamespaceConfig) -> None:
    management = namespace.management
    fresh_queues = [queue for queue in config.queues if namespace.find(queue.path) is None]
    for queue in fresh_queues:
        bare = replace(queue, forward_to=None, forward_dead_lettered_messages_to=None)
        await management.create(bare, from_file=True)
    for topic in config.topics:
        if namespace.find(topic.description.path) is None:
            await management.create(topic.description, from_file=True)
    for topic in config.topics:
        entity = namespace.entity(topic.description.path)
        for subscription in topic.subscriptions:
            if subscription.description.name.lower() not in entity.subscriptions:
                rules = list(subscription.rules) or None
                await management.create_subscription(subscription.description, rules, from_file=True)
    for queue in fresh_queues:
        if _forwards(queue):
            await management.update(queue)


def _forwards(queue: QueueDescription) -> bool:
    return queue.forward_to is not None or queue.forward_dead_lettered_messages_to is not None
