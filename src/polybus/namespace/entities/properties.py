"""Which properties a client may set on each kind of entity, by their name on the wire.

One table for everything that reads or writes descriptions by name: XML, configuration files, the catalogue. The order
is the cloud's (docs/protocol/atom.md#queues, docs/protocol/atom.md#topics). Authorization rules are listed apart, as
they are no scalar.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from polybus.namespace.entities.description import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)


class Shape(enum.Enum):
    """How a property's value is written."""

    DURATION = "duration"
    BOOLEAN = "boolean"
    INT32 = "int"
    INT64 = "long"
    TEXT = "string"
    STATUS = "status"


@dataclass(frozen=True)
class EntityProperty:
    element: str
    attribute: str
    shape: Shape
    fixed: bool = False
    """Chosen at creation and never changed afterwards (A5)."""


_LOCK = EntityProperty("LockDuration", "lock_duration_ms", Shape.DURATION)
_SIZE = EntityProperty("MaxSizeInMegabytes", "max_size_in_megabytes", Shape.INT64)
_DETECTION = EntityProperty("RequiresDuplicateDetection", "requires_duplicate_detection", Shape.BOOLEAN, fixed=True)
_SESSION = EntityProperty("RequiresSession", "requires_session", Shape.BOOLEAN, fixed=True)
_TIME_TO_LIVE = EntityProperty("DefaultMessageTimeToLive", "default_message_time_to_live_ms", Shape.DURATION)
_DEAD_LETTER_EXPIRED = EntityProperty(
    "DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", Shape.BOOLEAN
)
_DEAD_LETTER_FILTER = EntityProperty(
    "DeadLetteringOnFilterEvaluationExceptions",
    "dead_lettering_on_filter_evaluation_exceptions",
    Shape.BOOLEAN,
)
_WINDOW = EntityProperty(
    "DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window_ms", Shape.DURATION
)
_DELIVERIES = EntityProperty("MaxDeliveryCount", "max_delivery_count", Shape.INT32)
_BATCHED = EntityProperty("EnableBatchedOperations", "enable_batched_operations", Shape.BOOLEAN)
_FILTERING = EntityProperty(
    "FilteringMessagesBeforePublishing", "filtering_messages_before_publishing", Shape.BOOLEAN
)
_ANONYMOUS = EntityProperty("IsAnonymousAccessible", "is_anonymous_accessible", Shape.BOOLEAN)
_STATUS = EntityProperty("Status", "status", Shape.STATUS)
_ORDERING = EntityProperty("SupportOrdering", "support_ordering", Shape.BOOLEAN)
_IDLE = EntityProperty("AutoDeleteOnIdle", "auto_delete_on_idle_ms", Shape.DURATION)
_PARTITIONING = EntityProperty("EnablePartitioning", "enable_partitioning", Shape.BOOLEAN, fixed=True)
_SUBSCRIPTION_PARTITIONING = EntityProperty(
    "EnableSubscriptionPartitioning", "enable_subscription_partitioning", Shape.BOOLEAN
)
_EXPRESS = EntityProperty("EnableExpress", "enable_express", Shape.BOOLEAN)
_FORWARD = EntityProperty("ForwardTo", "forward_to", Shape.TEXT)
_METADATA = EntityProperty("UserMetadata", "user_metadata", Shape.TEXT)
_FORWARD_DEAD = EntityProperty("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", Shape.TEXT)
MESSAGE_SIZE = EntityProperty("MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", Shape.INT64)

QUEUE_PROPERTIES = (
    _LOCK,
    _SIZE,
    _DETECTION,
    _SESSION,
    _TIME_TO_LIVE,
    _DEAD_LETTER_EXPIRED,
    _WINDOW,
    _DELIVERIES,
    _BATCHED,
    _ANONYMOUS,
    _STATUS,
    _IDLE,
    _PARTITIONING,
    _EXPRESS,
    _FORWARD,
    _METADATA,
    _FORWARD_DEAD,
    MESSAGE_SIZE,
)
TOPIC_PROPERTIES = (
    _TIME_TO_LIVE,
    _SIZE,
    _DETECTION,
    _WINDOW,
    _BATCHED,
    _FILTERING,
    _ANONYMOUS,
    _STATUS,
    _ORDERING,
    _IDLE,
    _PARTITIONING,
    _SUBSCRIPTION_PARTITIONING,
    _EXPRESS,
    _METADATA,
    MESSAGE_SIZE,
)
SUBSCRIPTION_PROPERTIES = (
    _LOCK,
    _SESSION,
    _TIME_TO_LIVE,
    _DEAD_LETTER_EXPIRED,
    _DEAD_LETTER_FILTER,
    _DELIVERIES,
    _BATCHED,
    _STATUS,
    _FORWARD,
    _FORWARD_DEAD,
    _IDLE,
    _METADATA,
)
AUTHORIZATION_RULES = "AuthorizationRules"

PROPERTIES: dict[type[Description], tuple[EntityProperty, ...]] = {
    QueueDescription: QUEUE_PROPERTIES,
    TopicDescription: TOPIC_PROPERTIES,
    SubscriptionDescription: SUBSCRIPTION_PROPERTIES,
}


def properties_of(description: Description) -> tuple[EntityProperty, ...]:
    return PROPERTIES[type(description)]
