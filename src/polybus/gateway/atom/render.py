"""Descriptions to the XML inside of an entry's `content`, element by element as the cloud writes them.

What the SDKs stumble over decides the form (docs/protocol/atom.md#facts): no attribute on a simple element, since the
JavaScript SDK then reads an object; one `xmlns:` attribute on CountDetails and none else; types written as
`i:type="d6p1:..."` with prefixes of just that length; empty lists left out rather than written with
attributes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from polybus.gateway.atom.parse import FILTER_COUNTS_SINCE, MESSAGE_SIZE_SINCE
from polybus.gateway.atom.xml import boolean_text, described_xml, escape
from polybus.gateway.durations import NEVER_TEXT, date_time_text, duration_text
from polybus.namespace.entities.description import (
    AuthorizationRule,
    Description,
    EntityAvailability,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_name,
)
from polybus.namespace.entities.properties import MESSAGE_SIZE, Shape, properties_of
from polybus.namespace.entities.tiers import Tier

COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_LARGEST_COUNT = 2**31 - 1
"""Go reads counts as 32-bit integers."""


class Moment(enum.Enum):
    """Which request is answered; what has not happened yet is left out of the answer to a create."""

    CREATED = enum.auto()
    UPDATED = enum.auto()
    READ = enum.auto()


@dataclass(frozen=True, kw_only=True)
class AtomContext:
    """What an answer depends on besides the entity itself."""

    base_url: str
    """Scheme and authority by which the client reached us, without a slash at the end."""
    query: str = ""
    """The request's own query string, as it came."""
    namespace: str
    tier: Tier
    api_version: str = ""
    now_ms: int

    @property
    def shows_message_size(self) -> bool:
        return not self.api_version or self.api_version >= MESSAGE_SIZE_SINCE

    @property
    def shows_filter_counts(self) -> bool:
        return not self.api_version or self.api_version >= FILTER_COUNTS_SINCE

    @property
    def authority(self) -> str:
        return urlsplit(self.base_url).netloc


@dataclass(frozen=True, kw_only=True)
class RuntimeInfo:
    """What an entity holds now, counted over all of its partitions."""

    size_bytes: int = 0
    active_count: int = 0
    dead_letter_count: int = 0
    scheduled_count: int = 0
    transfer_count: int = 0
    transfer_dead_letter_count: int = 0
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0
    accessed_at_ms: int | None = None
    availability: EntityAvailability = EntityAvailability.AVAILABLE

    @property
    def message_count(self) -> int:
        """All messages in whatever state, which kombu takes for a queue's length."""
        return (
            self.active_count
            + self.dead_letter_count
            + self.scheduled_count
            + self.transfer_count
            + self.transfer_dead_letter_count
        )


_QUEUE_ORDER = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)
_TOPIC_ORDER = (
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "UserMetadata",
    "MaxMessageSizeInKilobytes",
)
_SUBSCRIPTION_ORDER = (
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
    "UserMetadata",
    "IsClientAffine",
)
_ORDERS: dict[type[Description], tuple[str, ...]] = {
    QueueDescription: _QUEUE_ORDER,
    TopicDescription: _TOPIC_ORDER,
    SubscriptionDescription: _SUBSCRIPTION_ORDER,
}


def description_xml(description: Description, info: RuntimeInfo, context: AtomContext, moment: Moment) -> str:
    """The `QueueDescription`, `TopicDescription` or `SubscriptionDescription` element."""
    values = dict(_settable(description, context))
    values |= _times(description, info, moment)
    values |= _state(description, info, context, moment)
    order = _ORDERS[type(description)]
    inside = "".join(_element(name, values[name]) for name in order if name in values)
    return described_xml(f"{kind_name(description)}Description", inside)


def _element(name: str, value: str) -> str:
    # CountDetails is the one element that must bring an attribute, so it is rendered whole.
    return value if name == "CountDetails" else f"<{name}>{value}</{name}>"


def _settable(description: Description, context: AtomContext) -> Iterator[tuple[str, str]]:
    for item in properties_of(description):
        value = getattr(description, item.attribute)
        if value is not None and item is not MESSAGE_SIZE:
            yield item.element, _scalar_text(item.shape, value)
    if isinstance(description, SubscriptionDescription):
        yield from _forwards(description, context)
        return
    yield "MaxSizeInMegabytes", str(description.shown_size_in_megabytes)
    yield "AuthorizationRules", "".join(map(_authorization_rule, description.authorization_rules))
    yield "SupportOrdering", boolean_text(description.support_ordering)
    if isinstance(description, QueueDescription):
        yield from _forwards(description, context)


def _scalar_text(shape: Shape, value: object) -> str:
    if isinstance(value, bool):
        return boolean_text(value)
    if isinstance(value, EntityStatus):
        return value.value
    if isinstance(value, int):
        return duration_text(value) if shape is Shape.DURATION else str(value)
    return escape(str(value))


def _forwards(
    description: QueueDescription | SubscriptionDescription, context: AtomContext
) -> Iterator[tuple[str, str]]:
    """Forwarding goes out as an absolute URL, which is what the SDKs compare and send back.

    docs/protocol/atom.md#forwarding.
    """
    targets = (
        ("ForwardTo", description.forward_to),
        ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
    )
    for name, target in targets:
        if target is not None:
            whole = target if "://" in target else f"sb://{context.authority}/{target.strip('/')}"
            yield name, escape(whole)


def _times(description: Description, info: RuntimeInfo, moment: Moment) -> dict[str, str]:
    times = {
        "CreatedAt": date_time_text(description.created_at_ms),
        "UpdatedAt": date_time_text(description.updated_at_ms),
    }
    if isinstance(description, SubscriptionDescription):
        times["AccessedAt"] = _subscription_access(description, info, moment)
    elif moment is Moment.READ:
        accessed = info.accessed_at_ms
        times["AccessedAt"] = f"{NEVER_TEXT}Z" if accessed is None else date_time_text(accessed)
    return times


def _subscription_access(description: SubscriptionDescription, info: RuntimeInfo, moment: Moment) -> str:
    if moment is Moment.CREATED:
        return NEVER_TEXT
    accessed = info.accessed_at_ms
    return date_time_text(description.created_at_ms if accessed is None else accessed)


def _state(description: Description, info: RuntimeInfo, context: AtomContext, moment: Moment) -> dict[str, str]:
    """What the bus knows of the entity and the client cannot set."""
    state = {
        "SizeInBytes": str(info.size_bytes),
        "MessageCount": str(min(info.message_count, _LARGEST_COUNT)),
        "EntityAvailabilityStatus": info.availability.value,
    }
    if moment is Moment.READ:
        state["CountDetails"] = _count_details(info)
        state["SubscriptionCount"] = str(info.subscription_count)
        if context.shows_filter_counts:
            state["SqlFilterCount"] = str(info.sql_filter_count)
            state["CorrelationFilterCount"] = str(info.correlation_filter_count)
    if context.shows_message_size:
        state["IsClientAffine"] = boolean_text(False)
    state |= _message_size(description, context)
    return state


def _message_size(description: Description, context: AtomContext) -> dict[str, str]:
    if isinstance(description, SubscriptionDescription):
        return {}
    size = description.max_message_size_in_kilobytes or context.tier.message_kilobytes
    return {"MaxMessageSizeInKilobytes": str(size)} if context.shows_message_size else {}


def _count_details(info: RuntimeInfo) -> str:
    counts = (
        ("ActiveMessageCount", info.active_count),
        ("DeadLetterMessageCount", info.dead_letter_count),
        ("ScheduledMessageCount", info.scheduled_count),
        ("TransferMessageCount", info.transfer_count),
        ("TransferDeadLetterMessageCount", info.transfer_dead_letter_count),
    )
    inside = "".join(f"<d2p1:{name}>{min(n, _LARGEST_COUNT)}</d2p1:{name}>" for name, n in counts)
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{inside}</CountDetails>'


def _authorization_rule(rule: AuthorizationRule) -> str:
    rights = "".join(f"<AccessRights>{right.value}</AccessRights>" for right in rule.rights)
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights>"
        f"<CreatedTime>{date_time_text(rule.created_at_ms)}</CreatedTime>"
        f"<ModifiedTime>{date_time_text(rule.modified_at_ms)}</ModifiedTime>"
        f"<KeyName>{escape(rule.key_name)}</KeyName>"
        f"<PrimaryKey>{escape(rule.primary_key)}</PrimaryKey>"
        f"<SecondaryKey>{escape(rule.secondary_key)}</SecondaryKey>"
        "</AuthorizationRule>"
    )


def namespace_xml(context: AtomContext, created_at_ms: int, modified_at_ms: int) -> str:
    """The `NamespaceInfo` element of `$namespaceinfo` (docs/protocol/atom.md#namespace-info)."""
    units = "<MessagingUnits>1</MessagingUnits>" if context.tier.is_premium else ""
    return described_xml(
        "NamespaceInfo",
        f"<CreatedTime>{date_time_text(created_at_ms)}</CreatedTime>"
        f"<MessagingSKU>{context.tier.name.value}</MessagingSKU>{units}"
        f"<ModifiedTime>{date_time_text(modified_at_ms)}</ModifiedTime>"
        f"<Name>{escape(context.namespace)}</Name><NamespaceType>Messaging</NamespaceType>",
    )
