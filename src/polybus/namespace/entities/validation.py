"""Whether a description may exist in a namespace of a given tier.

Every rule is one small function that yields what it objects to, so that a caller can either refuse with the
cloud's own words (`validate`) or point at the very line of a file (`violations`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polybus import limits
from polybus.errors import ArgumentError, ArgumentOutOfRange
from polybus.limits import INFINITE_MS
from polybus.namespace.entities import names
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    Description,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_name,
)
from polybus.namespace.entities.options import NO_OPTIONS, options_of
from polybus.namespace.entities.tiers import STANDARD_SIZES_MB, Tier
from polybus.namespace.entities.timespan import dotnet_text, text_from_ms


@dataclass(frozen=True)
class Violation:
    """One property with a value that it may not have."""

    property: str
    text: str
    """The sentence for the client, in the cloud's style."""
    value: str = ""
    allowed: str = ""
    out_of_range: bool = False

    def error(self) -> ArgumentError:
        if not self.out_of_range:
            return ArgumentError(f"{self.text}\r\nParameter name: {self.property}")
        return ArgumentOutOfRange(f"{self.text}\r\nParameter name: {self.property}\r\nActual value was {self.value}.")


def validate(description: Description, tier: Tier, *, from_file: bool = False, existing: bool = False) -> None:
    """Raise ArgumentError for the first thing in an admitted description that the tier does not allow.

    A file may ask for a shorter window of duplicate detection than the API. What exists already keeps working
    in a namespace that has become Premium (A12), so `existing` lets its partitions be.
    """
    for violation in violations(description, tier, from_file=from_file, existing=existing):
        raise violation.error()


def violations(
    description: Description, tier: Tier, *, from_file: bool = False, existing: bool = False
) -> Iterator[Violation]:
    """What is wrong with an admitted description, in the order of its properties."""
    yield from _name_violations(description)
    yield from _tier_violations(description, tier)
    yield from _duration_violations(description, tier, from_file)
    yield from _number_violations(description)
    yield from _text_violations(description)
    if not isinstance(description, SubscriptionDescription):
        yield from _entity_violations(description, tier, existing)


def _name_violations(description: Description) -> Iterator[Violation]:
    try:
        if isinstance(description, SubscriptionDescription):
            names.check_entity_path(description.topic)
            names.check_subscription_name(description.name)
        else:
            names.check_entity_path(description.path)
    except ArgumentError as error:
        yield Violation("Name", error.description, allowed="a valid name")


def _tier_violations(description: Description, tier: Tier) -> Iterator[Violation]:
    kind = kind_name(description)
    if not tier.has_topics and not isinstance(description, QueueDescription):
        yield Violation("Tier", f"A {kind} cannot be created because the namespace is using the 'Basic' tier.")
        return
    if tier.is_basic and isinstance(description, QueueDescription):
        for name in _beyond_basic(description):
            yield Violation(
                name,
                f"The property '{name}' cannot be set when creating a {kind} because the namespace is using "
                "the 'Basic' tier. This operation is only supported in 'Standard' or 'Premium' tier.",
                allowed="the default",
            )


def _beyond_basic(queue: QueueDescription) -> Iterator[str]:
    if queue.requires_duplicate_detection:
        yield "RequiresDuplicateDetection"
    if queue.requires_session:
        yield "RequiresSession"
    if queue.auto_delete_on_idle_ms != INFINITE_MS:
        yield "AutoDeleteOnIdle"
    if queue.enable_express:
        yield "EnableExpress"
    if queue.forward_to is not None:
        yield "ForwardTo"
    if queue.forward_dead_lettered_messages_to is not None:
        yield "ForwardDeadLetteredMessagesTo"


def _duration_violations(description: Description, tier: Tier, from_file: bool) -> Iterator[Violation]:
    if not isinstance(description, TopicDescription):
        yield from _lock_violations(description.lock_duration_ms)
    yield from _span_violations(
        "DefaultMessageTimeToLive",
        description.default_message_time_to_live_ms,
        limits.TIME_TO_LIVE_MS_MIN,
        tier.time_to_live_ms_max,
    )
    if not isinstance(description, SubscriptionDescription):
        shortest = limits.DUPLICATE_WINDOW_MS_MIN_FILE if from_file else limits.DUPLICATE_WINDOW_MS_MIN
        yield from _span_violations(
            "DuplicateDetectionHistoryTimeWindow",
            description.duplicate_detection_history_time_window_ms,
            shortest,
            limits.DUPLICATE_WINDOW_MS_MAX,
        )
    yield from _span_violations(
        "AutoDeleteOnIdle", description.auto_delete_on_idle_ms, limits.IDLE_MS_MIN, INFINITE_MS
    )


def _lock_violations(lock_ms: int) -> Iterator[Violation]:
    if limits.LOCK_MS_MIN <= lock_ms <= limits.LOCK_MS_MAX:
        return
    if lock_ms > limits.LOCK_MS_MAX:
        text = f"The supplied lock time exceeds the allowed maximum of '{limits.LOCK_MS_MAX // 60_000}' minutes."
    else:
        text = f"The supplied lock time is below the allowed minimum of '{limits.LOCK_MS_MIN // 1_000}' seconds."
    yield Violation("LockDuration", text, dotnet_text(lock_ms), _range(limits.LOCK_MS_MIN, limits.LOCK_MS_MAX), True)


def _span_violations(name: str, ms: int, lowest: int, highest: int) -> Iterator[Violation]:
    if lowest <= ms <= highest:
        return
    if highest == INFINITE_MS:
        text = f"The value supplied must be greater than or equal to {dotnet_text(lowest)}."
    else:
        text = f"The value supplied must be between {dotnet_text(lowest)} and {dotnet_text(highest)}."
    yield Violation(name, text, dotnet_text(ms), _range(lowest, highest), True)


def _range(lowest: int, highest: int) -> str:
    if highest == INFINITE_MS:
        return f"{text_from_ms(lowest)} or more"
    return f"{text_from_ms(lowest)} to {text_from_ms(highest)}"


def _number_violations(description: Description) -> Iterator[Violation]:
    if isinstance(description, TopicDescription):
        return
    count = description.max_delivery_count
    if not 1 <= count <= limits.DELIVERY_COUNT_MAX:
        yield Violation(
            "MaxDeliveryCount",
            f"The value supplied must be between 1 and {limits.DELIVERY_COUNT_MAX}.",
            str(count),
            f"1 to {limits.DELIVERY_COUNT_MAX}",
            True,
        )


def _text_violations(description: Description) -> Iterator[Violation]:
    if not description.status.settable:
        yield Violation(
            "Status",
            f"The status '{description.status.value}' cannot be set.",
            allowed="Active, Disabled, SendDisabled, ReceiveDisabled",
        )
    metadata = description.user_metadata or ""
    if len(metadata) > limits.USER_METADATA_CHARACTERS:
        yield Violation(
            "UserMetadata",
            f"The user metadata cannot exceed {limits.USER_METADATA_CHARACTERS} characters.",
            f"{len(metadata)} characters",
            f"at most {limits.USER_METADATA_CHARACTERS} characters",
            True,
        )
    yield from xml_violations("UserMetadata", metadata)
    yield from _option_violations(description)
    if not isinstance(description, TopicDescription):
        yield from _forward_violations("ForwardTo", description.forward_to)
        yield from _forward_violations("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to)


def _option_violations(description: Description) -> Iterator[Violation]:
    try:
        options = options_of(description.user_metadata)
    except ArgumentError as error:
        yield Violation("UserMetadata", error.description)
        return
    sessions = not isinstance(description, TopicDescription) and description.requires_session
    if options.retry_ms and sessions:
        yield Violation(
            "UserMetadata",
            "Where there are sessions messages come in order: 'retryDelay' would let others pass. A receiver may ask for"
            " a delay itself.",
        )
    if isinstance(description, TopicDescription) and options != NO_OPTIONS:
        yield Violation("UserMetadata", "A topic has no receivers; give these options to its subscriptions.")


def _forward_violations(name: str, target: str | None) -> Iterator[Violation]:
    if target is None:
        return
    try:
        names.parse_forward_target(target)
    except ArgumentError as error:
        yield Violation(name, error.description, allowed="the path or the URL of a queue or a topic")


def xml_violations(name: str, text: str) -> Iterator[Violation]:
    """Texts come back in XML 1.0, which has no way to write most control characters and lone surrogates."""
    if not all(is_xml_character(character) for character in text):
        yield Violation(name, "The value contains a character that XML cannot carry.", allowed="XML characters")


def is_xml_character(character: str) -> bool:
    code = ord(character)
    return 0x20 <= code < 0xD800 or code in (9, 10, 13) or 0xE000 <= code < 0xFFFE or code >= 0x10000


def _entity_violations(entity: EntityDescription, tier: Tier, existing: bool) -> Iterator[Violation]:
    yield from _partition_violations(entity, tier, existing)
    yield from _size_violations(entity, tier)
    if entity.enable_express and entity.requires_duplicate_detection:
        text = "Both DelayedPersistence and RequiresDuplicateDetection property cannot be enabled together."
        yield Violation("EnableExpress", text, allowed="false with duplicate detection")
    if entity.enable_express and tier.is_premium:
        text = "Express entities are not supported in a namespace that is using the 'Premium' tier."
        yield Violation("EnableExpress", text, allowed="false")
    yield from _message_size_violations(entity, tier)
    yield from authorization_violations(entity.authorization_rules)


def _partition_violations(entity: EntityDescription, tier: Tier, existing: bool) -> Iterator[Violation]:
    if entity.enable_partitioning and not tier.may_ask_for_partitioning and not existing:
        text = (
            f"Partitioning cannot be enabled for a {kind_name(entity)} because the namespace is using the "
            "'Premium' tier."
        )
        yield Violation("EnablePartitioning", text, "true", "false")
    if not entity.enable_partitioning and entity.partition_count != 1:
        yield Violation("EnablePartitioning", "An entity without partitioning has exactly one partition.")


def _size_violations(entity: EntityDescription, tier: Tier) -> Iterator[Violation]:
    if tier.always_partitioned and entity.partition_count == tier.partition_count(partitioned=True):
        size, sizes = entity.shown_size_in_megabytes, tier.sizes_mb
    elif entity.enable_partitioning:
        size, sizes = entity.max_size_in_megabytes, STANDARD_SIZES_MB
    else:
        size, sizes = entity.max_size_in_megabytes, tier.sizes_mb
    if size not in sizes:
        listed = ";".join(map(str, sizes))
        text = (
            f"The specified value {size} is invalid. The property 'MaxSizeInMegabytes', must be one of the "
            f"following values: {listed}."
        )
        yield Violation("MaxSizeInMegabytes", text, str(size), listed, True)


def _message_size_violations(entity: EntityDescription, tier: Tier) -> Iterator[Violation]:
    size = entity.max_message_size_in_kilobytes
    name = "MaxMessageSizeInKilobytes"
    if size is None:
        return
    if not tier.is_premium:
        text = f"The property '{name}' can only be set in a namespace that is using the 'Premium' tier."
        yield Violation(name, text, str(size), "not set")
        return
    lowest, highest = limits.PREMIUM_MESSAGE_BYTES // 1024, limits.PREMIUM_MESSAGE_BYTES_MAX // 1024
    if not lowest <= size <= highest:
        text = f"The value supplied must be between {lowest} and {highest}."
        yield Violation(name, text, str(size), f"{lowest} to {highest}", True)


def authorization_violations(rules: tuple[AuthorizationRule, ...]) -> Iterator[Violation]:
    """What is wrong with the keys of an entity, or of a namespace."""
    name = "AuthorizationRules"
    if len(rules) > limits.AUTHORIZATION_RULES:
        text = f"At most {limits.AUTHORIZATION_RULES} authorization rules are allowed on an entity."
        yield Violation(name, text, f"{len(rules)} rules", f"at most {limits.AUTHORIZATION_RULES}", True)
    if len({rule.key_name for rule in rules}) != len(rules):
        yield Violation(name, "Two authorization rules have the same key name.", allowed="distinct key names")
    for rule in rules:
        for text in _authorization_rule_faults(rule):
            yield Violation(name, text, rule.key_name)


def _authorization_rule_faults(rule: AuthorizationRule) -> Iterator[str]:
    if not 1 <= len(rule.key_name) <= limits.KEY_NAME_CHARACTERS or not rule.key_name.isprintable():
        yield f"A key name must have 1 to {limits.KEY_NAME_CHARACTERS} printable characters."
    for key in (rule.primary_key, rule.secondary_key):
        if len(key) > limits.KEY_TEXT_CHARACTERS or not key.isprintable():
            yield f"A key must have 1 to {limits.KEY_TEXT_CHARACTERS} printable characters."
    if not rule.rights or len(set(rule.rights)) != len(rule.rights):
        yield "An authorization rule must have one to three distinct rights."
    if AccessRight.MANAGE in rule.rights and len(rule.rights) != len(AccessRight):
        yield "Manage permission must also include Send and Listen."
