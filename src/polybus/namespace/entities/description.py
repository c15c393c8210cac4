"""What an entity is told to be: descriptions of queues, topics and subscriptions, with the cloud's defaults.

Plain, frozen data. Durations are whole milliseconds (`INFINITE_MS` for never), times are milliseconds since
1970. A description comes in two forms that differ in one number only. As *asked for* by a client or a file,
`max_size_in_megabytes` is what the user wrote; as *admitted* (see admission.py) it is the size of one
partition, and `partition_count` says how many there are. Counts, sizes in use and times of access are not
part of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import final

from polybus.limits import INFINITE_MS
from polybus.namespace.entities.rule import RuleDescription

__all__ = [
    "INFINITE_MS",
    "AccessRight",
    "AuthorizationRule",
    "Description",
    "EntityAvailability",
    "EntityDescription",
    "EntityStatus",
    "QueueDescription",
    "RuleDescription",
    "SubscriptionDescription",
    "TopicDescription",
    "kind_name",
]


class EntityStatus(enum.Enum):
    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    CREATING = "Creating"
    DELETING = "Deleting"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    UNKNOWN = "Unknown"

    @property
    def settable(self) -> bool:
        """Whether a client may ask for it; the others are states that an entity passes through."""
        return self in _SETTABLE

    @property
    def allows_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def allows_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


_SETTABLE = (
    EntityStatus.ACTIVE,
    EntityStatus.DISABLED,
    EntityStatus.SEND_DISABLED,
    EntityStatus.RECEIVE_DISABLED,
)


class EntityAvailability(enum.Enum):
    """How much of an entity can be reached now; LIMITED when a partition's store is unhealthy (F3)."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    UNKNOWN = "Unknown"


class AccessRight(enum.Enum):
    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


@dataclass(frozen=True, kw_only=True)
class AuthorizationRule:
    """A named pair of keys and what they open. The keys never show in a log or a traceback."""

    key_name: str
    rights: tuple[AccessRight, ...]
    primary_key: str = field(default="", repr=False)
    secondary_key: str = field(default="", repr=False)
    created_at_ms: int = 0
    modified_at_ms: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class QueueDescription:
    path: str
    lock_duration_ms: int = 60_000
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live_ms: int = INFINITE_MS
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window_ms: int = 600_000
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    is_anonymous_accessible: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle_ms: int = INFINITE_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int | None = None
    """None is the tier's default, which an entity in Standard can only have."""
    partition_count: int = 1
    created_at_ms: int = 0
    updated_at_ms: int = 0

    @property
    def support_ordering(self) -> bool:
        return not self.enable_partitioning

    @property
    def shown_size_in_megabytes(self) -> int:
        """The maximum of all partitions together, as it is shown to users (A8, A9)."""
        return self.max_size_in_megabytes * self.partition_count


@final
@dataclass(frozen=True, kw_only=True)
class TopicDescription:
    path: str
    default_message_time_to_live_ms: int = INFINITE_MS
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window_ms: int = 600_000
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    is_anonymous_accessible: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle_ms: int = INFINITE_MS
    enable_partitioning: bool = False
    enable_subscription_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    partition_count: int = 1
    created_at_ms: int = 0
    updated_at_ms: int = 0

    @property
    def shown_size_in_megabytes(self) -> int:
        return self.max_size_in_megabytes * self.partition_count


@final
@dataclass(frozen=True, kw_only=True)
class SubscriptionDescription:
    """A subscription has its topic's partitions, so it says nothing about them."""

    topic: str
    name: str
    lock_duration_ms: int = 60_000
    requires_session: bool = False
    default_message_time_to_live_ms: int = INFINITE_MS
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle_ms: int = INFINITE_MS
    user_metadata: str | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0


EntityDescription = QueueDescription | TopicDescription
"""What may be partitioned and has a place of its own in the namespace."""
Description = QueueDescription | TopicDescription | SubscriptionDescription

_KIND_NAMES = {QueueDescription: "Queue", TopicDescription: "Topic", SubscriptionDescription: "Subscription"}


def kind_name(description: Description) -> str:
    """`Queue`, `Topic` or `Subscription`, as it stands in the cloud's texts."""
    return _KIND_NAMES[type(description)]
