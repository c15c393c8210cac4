"""From what was asked for to what will be: creating and updating an entity's description.

The one place that turns a size into the size of a partition and back, that knows what can never change
(A5), and that fills in what only the bus can know: times, keys that were not given, the number of
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TypeVar

from polybus import limits
from polybus.errors import ArgumentError
from polybus.limits import INFINITE_MS
from polybus.namespace.entities.description import (
    AuthorizationRule,
    Description,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_name,
)
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.properties import AUTHORIZATION_RULES, properties_of
from polybus.namespace.entities.tiers import STANDARD_SIZES_MB, Tier
from polybus.namespace.entities.validation import validate

AnyDescription = TypeVar("AnyDescription", QueueDescription, TopicDescription, SubscriptionDescription)
AnyEntity = TypeVar("AnyEntity", QueueDescription, TopicDescription)


def admit_create(
    asked: AnyDescription, tier: Tier, now_ms: int, new_key: Callable[[], str], *, from_file: bool = False
) -> AnyDescription:
    """The description that a new entity gets; ArgumentError if it may not exist."""
    described = prepared(asked, tier)
    if not isinstance(described, SubscriptionDescription):
        rules = _with_keys(described.authorization_rules, now_ms, new_key)
        described = replace(described, authorization_rules=rules)
    validate(described, tier, from_file=from_file)
    return replace(described, created_at_ms=now_ms, updated_at_ms=now_ms)


def prepared(asked: AnyDescription, tier: Tier) -> AnyDescription:
    """What was asked for, in the form in which it is judged: with its partitions and the tier's bounds."""
    if not isinstance(asked, SubscriptionDescription):
        asked = _partitioned(asked, tier)
    return _bounded_time_to_live(asked, tier)


def admit_update(
    old: AnyDescription,
    asked: AnyDescription,
    tier: Tier,
    now_ms: int,
    new_key: Callable[[], str],
    given: Collection[str] | None = None,
) -> AnyDescription:
    """The description that replaces `old`; ArgumentError if it changes what is fixed, or may not exist.

    `given` holds the names of the elements that the client sent, if that is known. What was left out gets
    its default (docs/protocol/atom.md#updates), except for what cannot change anyway and for the authorization rules.
    """
    _check_same_entity(old, asked)
    described = _with_what_stays(old, asked, given)
    if isinstance(old, SubscriptionDescription):
        described = replace(described, topic=old.topic, name=old.name)
    else:
        described = _entity_update(old, described, tier, now_ms, new_key)
    described = replace(_bounded_time_to_live(described, tier), created_at_ms=old.created_at_ms, updated_at_ms=now_ms)
    check_update(old, described)
    validate(described, tier, from_file=_has_short_window(old), existing=True)
    return described


def check_update(old: Description, new: Description) -> None:
    """Raise ArgumentError if `new` changes what was fixed when the entity was created."""
    _check_same_entity(old, new)
    kind = kind_name(old)
    for element in _contradictions(old, new):
        if element == "EnablePartitioning":
            raise ArgumentError(f"Partitioning cannot be changed for {kind}.")
        raise ArgumentError(f"The value for the {element} property of an existing {kind} cannot be changed.")
    if getattr(old, "partition_count", 1) != getattr(new, "partition_count", 1):
        raise ArgumentError(f"The number of partitions cannot be changed for {kind}.")


def check_declared(old: Description, declared: Description, tier: Tier) -> None:
    """Raise ArgumentError if a file declares what exists as something that it can never become (A5, H5)."""
    _check_same_entity(old, declared)
    for element in _contradictions(old, declared):
        if element == "EnablePartitioning" and tier.always_partitioned:
            continue  # there the file has no say
        raise ArgumentError(
            f"The {kind_name(old)} '{'/'.join(_identity(old))}' exists with another {element} than the file declares,"
            " and that cannot be changed: change the file, or delete the entity."
        )


def _contradictions(old: Description, new: Description) -> Iterator[str]:
    """The elements of what was fixed at creation in which the two differ."""
    for item in properties_of(old):
        if item.fixed and getattr(old, item.attribute) != getattr(new, item.attribute):
            yield item.element


def _check_same_entity(old: Description, new: Description) -> None:
    if type(old) is not type(new) or _identity(old) != _identity(new):
        raise ArgumentError(f"The {kind_name(old)} cannot be turned into another entity.")


def asked_form(description: AnyEntity, tier: Tier) -> AnyEntity:
    """The description as a user would ask for it, which a file or another namespace can be given."""
    if tier.always_partitioned:
        size = description.shown_size_in_megabytes
    else:
        size = description.max_size_in_megabytes
    rules = description.authorization_rules
    return replace(
        description,
        max_size_in_megabytes=size,
        partition_count=1,
        authorization_rules=tuple(replace(rule, created_at_ms=0, modified_at_ms=0) for rule in rules),
        created_at_ms=0,
        updated_at_ms=0,
    )


def _identity(description: Description) -> tuple[str, ...]:
    if isinstance(description, SubscriptionDescription):
        return fold(description.topic), fold(description.name)
    return (fold(description.path),)


def _has_short_window(description: Description) -> bool:
    """Whether it came from a file with a window that the API would refuse; sending it back must not fail."""
    if isinstance(description, SubscriptionDescription):
        return False
    return description.duplicate_detection_history_time_window_ms < limits.DUPLICATE_WINDOW_MS_MIN


def _bounded_time_to_live(description: AnyDescription, tier: Tier) -> AnyDescription:
    """Clients leave an infinite time-to-live out or write it: both mean "as long as the tier allows"."""
    if description.default_message_time_to_live_ms != INFINITE_MS:
        return description
    return replace(description, default_message_time_to_live_ms=tier.time_to_live_ms_max)


def _partitioned(asked: AnyEntity, tier: Tier) -> AnyEntity:
    """The entity with its partitions and the size of each."""
    partitioned = asked.enable_partitioning or tier.always_partitioned
    count = tier.partition_count(partitioned=partitioned)
    described = replace(asked, enable_partitioning=partitioned, partition_count=count)
    if tier.always_partitioned:
        described = replace(described, max_size_in_megabytes=_share(asked.max_size_in_megabytes, count))
    return _ordered(described)


def _share(size_mb: int, count: int) -> int:
    return size_mb // count if size_mb % count == 0 else size_mb // count + 1


def _ordered(entity: AnyEntity) -> AnyEntity:
    """Partitions keep no order among themselves, so a partitioned topic cannot promise one."""
    if isinstance(entity, TopicDescription) and entity.enable_partitioning:
        return replace(entity, support_ordering=False)
    return entity


def _with_what_stays(old: AnyDescription, asked: AnyDescription, given: Collection[str] | None) -> AnyDescription:
    if given is None:
        return asked
    kept = {
        item.attribute: getattr(old, item.attribute)
        for item in properties_of(old)
        if item.fixed and item.element not in given
    }
    if AUTHORIZATION_RULES not in given and not isinstance(old, SubscriptionDescription):
        kept["authorization_rules"] = old.authorization_rules
    return replace(asked, **kept)


def _entity_update(
    old: AnyEntity, asked: AnyEntity, tier: Tier, now_ms: int, new_key: Callable[[], str]
) -> AnyEntity:
    size_kb = asked.max_message_size_in_kilobytes
    rules_before = {rule.key_name: rule for rule in old.authorization_rules}
    described = replace(
        asked,
        path=old.path,
        partition_count=old.partition_count,
        max_size_in_megabytes=_updated_size(old, asked.max_size_in_megabytes, tier),
        # Every client sends back what it was shown, which outside of Premium is not its choice.
        max_message_size_in_kilobytes=None if size_kb == tier.message_kilobytes else size_kb,
        authorization_rules=_with_keys(asked.authorization_rules, now_ms, new_key, rules_before),
    )
    return _ordered(described)


def _updated_size(old: EntityDescription, asked_mb: int, tier: Tier) -> int:
    """The size of a partition, from either the size that a client chose or the one that it was shown."""
    count = old.partition_count
    if asked_mb == old.shown_size_in_megabytes:
        return old.max_size_in_megabytes
    if tier.always_partitioned and count == tier.partition_count(partitioned=True):
        return _share(asked_mb, count)
    if count > 1 and asked_mb not in STANDARD_SIZES_MB and asked_mb % count == 0:
        return asked_mb // count
    return asked_mb


def _with_keys(
    rules: tuple[AuthorizationRule, ...],
    now_ms: int,
    new_key: Callable[[], str],
    before: dict[str, AuthorizationRule] | None = None,
) -> tuple[AuthorizationRule, ...]:
    """The rules with keys where none were given, and with their times: an unchanged rule keeps its own."""
    return tuple(_with_key(rule, now_ms, new_key, (before or {}).get(rule.key_name)) for rule in rules)


def _with_key(
    rule: AuthorizationRule, now_ms: int, new_key: Callable[[], str], before: AuthorizationRule | None
) -> AuthorizationRule:
    filled = replace(
        rule,
        primary_key=rule.primary_key or (before.primary_key if before else "") or new_key(),
        secondary_key=rule.secondary_key or (before.secondary_key if before else "") or new_key(),
        created_at_ms=before.created_at_ms if before else now_ms,
        modified_at_ms=before.modified_at_ms if before else now_ms,
    )
    return filled if before is None or filled == before else replace(filled, modified_at_ms=now_ms)
