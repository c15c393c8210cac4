"""What a configuration file declares, as data, with the defaults that the official emulator gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from polybus.namespace.entities.description import (
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import RuleDescription

EMULATOR_NAMESPACE = "sbemulatorns"
HOUR_MS = 3_600_000
EMULATOR_DEFAULTS: dict[type[Description], dict[str, Any]] = {
    QueueDescription: {
        "default_message_time_to_live_ms": HOUR_MS,
        "duplicate_detection_history_time_window_ms": 20_000,
        "max_delivery_count": 3,
    },
    TopicDescription: {
        "default_message_time_to_live_ms": HOUR_MS,
        "duplicate_detection_history_time_window_ms": 20_000,
    },
    SubscriptionDescription: {"default_message_time_to_live_ms": HOUR_MS, "max_delivery_count": 3},
}


@dataclass(frozen=True)
class SubscriptionConfig:
    """A declared subscription. Without rules it gets `$Default`, as the emulator does it."""

    description: SubscriptionDescription
    rules: tuple[RuleDescription, ...] = ()


@dataclass(frozen=True)
class TopicConfig:
    description: TopicDescription
    subscriptions: tuple[SubscriptionConfig, ...] = ()


@dataclass(frozen=True)
class NamespaceConfig:
    """A declared namespace. Descriptions are in the form in which users ask for them."""

    name: str
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    """Keys of this namespace alone; without them it has those of the bus."""


@dataclass(frozen=True)
class ConfigFile:
    namespaces: tuple[NamespaceConfig, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)
