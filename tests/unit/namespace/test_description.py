"""Descriptions: the cloud's defaults, what a tier refuses, what can never change, sizes over partitions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from polybus.errors import ArgumentError, ArgumentOutOfRange
from polybus.namespace.entities.admission import admit_create, admit_update, asked_form, check_update
from polybus.namespace.entities.description import (
    INFINITE_MS,
    AccessRight,
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.rule_validation import validate_rule
from polybus.namespace.entities.tiers import BASIC, PREMIUM, STANDARD, Tier, TierName, tier_named
from polybus.namespace.entities.typed_value import TypedValue
from polybus.namespace.entities.validation import validate
from tests.unit.namespace import description_kit as kit

TWO_PARTITIONS = Tier(TierName.PREMIUM, premium_partitions=2)
DAY_MS = 86_400_000


def queue(**values: Any) -> QueueDescription:
    return QueueDescription(**{"path": "q", **values})


def topic(**values: Any) -> TopicDescription:
    return TopicDescription(**{"path": "t", **values})


def subscription(**values: Any) -> SubscriptionDescription:
    return SubscriptionDescription(**{"topic": "t", "name": "s", **values})


def new_keys():
    return map("key{}".format, itertools.count(1)).__next__


def created(asked, tier=STANDARD, now_ms=1_000):
    return admit_create(asked, tier, now_ms, new_keys())


def updated(old, asked, tier=STANDARD, given=None, now_ms=2_000):
    return admit_update(old, asked, tier, now_ms, new_keys(), given)


def key_rule(name: str = "k", rights: tuple[AccessRight, ...] = (AccessRight.SEND,), **values) -> AuthorizationRule:
    return AuthorizationRule(
        **{"key_name": name, "rights": rights, "primary_key": "a", "secondary_key": "b", **values}
    )


def test_defaults_are_the_clouds() -> None:
    one = queue()
    assert (one.lock_duration_ms, one.max_size_in_megabytes, one.max_delivery_count) == (60_000, 1024, 10)
    assert one.default_message_time_to_live_ms == one.auto_delete_on_idle_ms == INFINITE_MS
    assert one.duplicate_detection_history_time_window_ms == 600_000
    assert one.enable_batched_operations
    assert one.support_ordering
    off = [one.requires_session, one.requires_duplicate_detection, one.enable_partitioning, one.enable_express]
    assert [*off, one.dead_lettering_on_message_expiration] == [False] * 5
    assert one.status is EntityStatus.ACTIVE
    assert subscription().dead_lettering_on_filter_evaluation_exceptions


REFUSED_IN_STANDARD = [
    (queue(lock_duration_ms=4_999), "LockDuration"),
    (queue(lock_duration_ms=300_001), "maximum of '5' minutes"),
    (queue(lock_duration_ms=0), "minimum of '5' seconds"),
    (queue(lock_duration_ms=25 * DAY_MS), "Actual value was 25.00:00:00."),
    (queue(lock_duration_ms=INFINITE_MS), "LockDuration"),
    (subscription(lock_duration_ms=301_000), "LockDuration"),
    (queue(default_message_time_to_live_ms=999), "greater than or equal to 00:00:01"),
    (queue(default_message_time_to_live_ms=0), "DefaultMessageTimeToLive"),
    (topic(default_message_time_to_live_ms=999), "DefaultMessageTimeToLive"),
    (subscription(default_message_time_to_live_ms=500), "DefaultMessageTimeToLive"),
    (queue(duplicate_detection_history_time_window_ms=19_999), "between 00:00:20 and 7.00:00:00"),
    (queue(duplicate_detection_history_time_window_ms=7 * DAY_MS + 1), "DuplicateDetectionHistoryTimeWindow"),
    (topic(duplicate_detection_history_time_window_ms=5_000), "DuplicateDetectionHistoryTimeWindow"),
    (topic(duplicate_detection_history_time_window_ms=INFINITE_MS), "DuplicateDetectionHistoryTimeWindow"),
    (queue(auto_delete_on_idle_ms=299_999), "greater than or equal to 00:05:00"),
    (topic(auto_delete_on_idle_ms=1), "AutoDeleteOnIdle"),
    (subscription(auto_delete_on_idle_ms=0), "AutoDeleteOnIdle"),
    (queue(max_delivery_count=0), "MaxDeliveryCount"),
    (queue(max_delivery_count=-1), "between 1 and 2147483647"),
    (queue(max_delivery_count=2**31), "MaxDeliveryCount"),
    (subscription(max_delivery_count=0), "MaxDeliveryCount"),
    (queue(max_size_in_megabytes=1023), "must be one of the following values: 1024;2048;3072;4096;5120"),
    (queue(max_size_in_megabytes=10240), "The specified value 10240 is invalid"),
    (queue(max_size_in_megabytes=0), "MaxSizeInMegabytes"),
    (queue(max_size_in_megabytes=-1024), "MaxSizeInMegabytes"),
    (topic(max_size_in_megabytes=81920), "MaxSizeInMegabytes"),
    (queue(enable_partitioning=True, max_size_in_megabytes=16384), "MaxSizeInMegabytes"),
    (queue(max_message_size_in_kilobytes=256), "MaxMessageSizeInKilobytes"),
    (queue(max_message_size_in_kilobytes=1024), "'Premium' tier"),
    (topic(max_message_size_in_kilobytes=1024), "MaxMessageSizeInKilobytes"),
    (queue(enable_express=True, requires_duplicate_detection=True), "cannot be enabled together"),
    (topic(enable_express=True, requires_duplicate_detection=True), "cannot be enabled together"),
    (queue(user_metadata="x" * 1025), "1024 characters"),
    (queue(user_metadata="a\x00b"), "XML cannot carry"),
    (subscription(user_metadata="\ud800"), "XML cannot carry"),
    (queue(status=EntityStatus.DELETING), "'Deleting' cannot be set"),
    (topic(status=EntityStatus.UNKNOWN), "Status"),
    (queue(forward_to="a/$DeadLetterQueue"), "ForwardTo"),
    (queue(forward_to="sb://host/t/Subscriptions/s"), "ForwardTo"),
    (queue(forward_to="sb://host/"), "ForwardTo"),
    (queue(forward_to="$cbs"), "ForwardTo"),
    (queue(forward_to="a b"), "ForwardTo"),
    (subscription(forward_dead_lettered_messages_to="q/$management"), "ForwardDeadLetteredMessagesTo"),
    (queue(path=""), "1 to 260 characters"),
    (queue(path="x" * 261), "it has 261"),
    (topic(path="a/messages"), "reserved"),
    (subscription(name="x" * 51), "1 to 50 characters"),
    (subscription(name="a/b"), "not allowed"),
    (subscription(topic="a?b"), "not allowed"),
    (queue(authorization_rules=tuple(key_rule(f"k{n}") for n in range(13))), "At most 12"),
    (queue(authorization_rules=(key_rule(), key_rule())), "same key name"),
    (queue(authorization_rules=(key_rule(""),)), "key name"),
    (queue(authorization_rules=(key_rule("k" * 257),)), "key name"),
    (queue(authorization_rules=(key_rule("a\nb"),)), "key name"),
    (topic(authorization_rules=(key_rule(rights=()),)), "one to three distinct rights"),
    (topic(authorization_rules=(key_rule(rights=(AccessRight.SEND,) * 2),)), "distinct rights"),
    (topic(authorization_rules=(key_rule(rights=(AccessRight.MANAGE,)),)), "must also include Send and Listen"),
    (topic(authorization_rules=(key_rule(primary_key="x" * 257),)), "A key must have"),
]


@pytest.mark.parametrize(("asked", "words"), REFUSED_IN_STANDARD)
def test_standard_refuses(asked, words: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        created(asked)
    assert words in refusal.value.description
    assert refusal.value.http_status == 400
    assert refusal.value.sub_code == 40000


def test_out_of_range_has_its_own_condition_and_says_the_value() -> None:
    with pytest.raises(ArgumentOutOfRange) as refusal:
        validate(queue(lock_duration_ms=301_000), STANDARD)
    assert refusal.value.condition == "com.microsoft:argument-out-of-range"
    assert refusal.value.description.endswith("\r\nParameter name: LockDuration\r\nActual value was 00:05:01.")


@pytest.mark.parametrize(
    "asked",
    [
        queue(lock_duration_ms=5_000),
        queue(lock_duration_ms=300_000),
        queue(default_message_time_to_live_ms=1_000),
        queue(duplicate_detection_history_time_window_ms=20_000),
        queue(duplicate_detection_history_time_window_ms=7 * DAY_MS),
        queue(auto_delete_on_idle_ms=300_000),
        queue(max_delivery_count=2**31 - 1),
        queue(max_size_in_megabytes=5120),
        queue(requires_session=True, requires_duplicate_detection=True),
        queue(forward_to="q"),
        queue(requires_session=True, forward_to="sb://elsewhere:1/other"),
        queue(user_metadata="x" * 1024),
        queue(path="x" * 260),
        queue(status=EntityStatus.SEND_DISABLED),
        queue(authorization_rules=tuple(key_rule(f"k{n}") for n in range(12))),
        topic(authorization_rules=(key_rule(rights=tuple(AccessRight)),)),
        subscription(name="x" * 50),
    ],
)
def test_standard_takes_the_ends_of_each_range(asked) -> None:
    one = created(asked)
    assert one == replace(
        asked,
        created_at_ms=1_000,
        updated_at_ms=1_000,
        **(
            {
                "authorization_rules": tuple(
                    replace(r, created_at_ms=1_000, modified_at_ms=1_000) for r in asked.authorization_rules
                )
            }
            if not isinstance(asked, SubscriptionDescription)
            else {}
        ),
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (topic(), "A Topic cannot"),
        (subscription(), "A Subscription cannot"),
        (queue(requires_session=True), "'RequiresSession' cannot be set when creating a Queue"),
        (queue(requires_duplicate_detection=True), "RequiresDuplicateDetection"),
        (queue(auto_delete_on_idle_ms=600_000), "AutoDeleteOnIdle"),
        (queue(enable_express=True), "EnableExpress"),
        (queue(forward_to="r"), "ForwardTo"),
        (queue(forward_dead_lettered_messages_to="r"), "ForwardDeadLetteredMessagesTo"),
        (queue(default_message_time_to_live_ms=14 * DAY_MS + 1), "14.00:00:00"),
    ],
)
def test_basic_refuses(asked, words: str) -> None:
    with pytest.raises(ArgumentError, match=r"Basic|14\.00:00:00") as refusal:
        created(asked, BASIC)
    assert words in refusal.value.description


def test_basic_bounds_an_infinite_time_to_live_and_may_be_partitioned() -> None:
    one = created(queue(enable_partitioning=True), BASIC)
    assert one.default_message_time_to_live_ms == 14 * DAY_MS
    assert one.partition_count == 16


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (queue(enable_partitioning=True), "Partitioning cannot be enabled for a Queue"),
        (topic(enable_partitioning=True), "'Premium' tier"),
        (queue(enable_express=True), "Express entities are not supported"),
        (queue(max_message_size_in_kilobytes=1023), "between 1024 and 102400"),
        (queue(max_message_size_in_kilobytes=102401), "between 1024 and 102400"),
        (queue(max_size_in_megabytes=6144), "1024;2048;3072;4096;5120;10240;20480;40960;81920"),
    ],
)
def test_premium_refuses(asked, words: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        created(asked, PREMIUM)
    assert words in refusal.value.description


@pytest.mark.parametrize("size", [1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920])
def test_premium_sizes_are_shown_as_chosen(size: int) -> None:
    for tier, partitions in ((PREMIUM, 1), (TWO_PARTITIONS, 2)):
        one = created(queue(max_size_in_megabytes=size), tier)
        assert one.partition_count == partitions
        assert one.enable_partitioning is (partitions > 1)
        assert one.shown_size_in_megabytes == size
        assert one.max_size_in_megabytes == size // partitions
        assert asked_form(one, tier).max_size_in_megabytes == size


@pytest.mark.parametrize("count", [0, 3, 6, 2048])
def test_premium_partitions_that_cannot_share_every_size_are_refused(count: int) -> None:
    with pytest.raises(ArgumentError, match=f"not {count}"):
        Tier(TierName.PREMIUM, premium_partitions=count)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_every_size_can_be_shared_over_premium_partitions(count: int) -> None:
    tier = Tier(TierName.PREMIUM, premium_partitions=count)
    for size in tier.sizes_mb:
        assert created(queue(max_size_in_megabytes=size), tier).shown_size_in_megabytes == size


@pytest.mark.parametrize("size", [1024, 2048, 3072, 4096, 5120])
def test_each_partition_has_the_size_that_was_chosen_in_standard(size: int) -> None:
    one = created(queue(enable_partitioning=True, max_size_in_megabytes=size))
    assert one.partition_count == 16
    assert one.max_size_in_megabytes == size
    assert one.shown_size_in_megabytes == 16 * size
    assert asked_form(one, STANDARD) == queue(enable_partitioning=True, max_size_in_megabytes=size)


def test_partitioning_is_off_unless_it_is_asked_for() -> None:
    assert created(queue()).partition_count == 1
    assert created(queue(enable_partitioning=True), Tier(partitions=4)).partition_count == 4


def test_a_partitioned_entity_does_not_support_ordering() -> None:
    assert not created(queue(enable_partitioning=True)).support_ordering
    assert not created(topic(enable_partitioning=True, support_ordering=True)).support_ordering
    assert created(topic()).support_ordering
    assert not created(topic(support_ordering=False)).support_ordering


@pytest.mark.parametrize(
    ("sent", "stored"),
    [(49152, 3072), (3072, 3072), (16384, 1024), (1024, 1024), (5120, 5120), (81920, 5120), (2048, 2048)],
)
def test_an_update_takes_the_size_of_a_partition_or_of_the_whole(sent: int, stored: int) -> None:
    old = created(queue(enable_partitioning=True, max_size_in_megabytes=3072))
    new = updated(old, queue(enable_partitioning=True, max_size_in_megabytes=sent))
    assert new.max_size_in_megabytes == stored
    assert new.shown_size_in_megabytes == 16 * stored


@pytest.mark.parametrize("sent", [6144, 16384 + 1, 98304, 8 * 1024])
def test_an_update_refuses_other_sizes(sent: int) -> None:
    old = created(queue(enable_partitioning=True))
    with pytest.raises(ArgumentError, match="MaxSizeInMegabytes"):
        updated(old, queue(enable_partitioning=True, max_size_in_megabytes=sent))


def test_what_was_shown_is_taken_back_unchanged_even_where_it_could_mean_two_sizes() -> None:
    tier = Tier(partitions=2)
    old = created(queue(enable_partitioning=True, max_size_in_megabytes=1024), tier)
    assert old.shown_size_in_megabytes == 2048
    same = updated(old, queue(enable_partitioning=True, max_size_in_megabytes=2048), tier)
    assert same.max_size_in_megabytes == 1024


def test_an_update_of_a_premium_partitioned_entity_is_about_the_whole() -> None:
    old = created(queue(max_size_in_megabytes=2048), TWO_PARTITIONS)
    new = updated(old, replace(old, max_size_in_megabytes=4096, partition_count=1), TWO_PARTITIONS)
    assert new.shown_size_in_megabytes == 4096


FIXED = [
    (queue(requires_session=True), queue(), "RequiresSession property of an existing Queue cannot be changed"),
    (queue(), queue(requires_session=True), "RequiresSession property of an existing Queue cannot be changed"),
    (queue(), queue(requires_duplicate_detection=True), "RequiresDuplicateDetection property of an existing Queue"),
    (queue(), queue(enable_partitioning=True), "Partitioning cannot be changed for Queue"),
    (topic(), topic(enable_partitioning=True), "Partitioning cannot be changed for Topic"),
    (topic(), topic(requires_duplicate_detection=True), "existing Topic"),
    (subscription(), subscription(requires_session=True), "existing Subscription"),
    (queue(), queue(path="other"), "another entity"),
    (queue(), topic(path="q"), "another entity"),
    (subscription(), subscription(name="other"), "another entity"),
]


@pytest.mark.parametrize(("old", "new", "words"), FIXED)
def test_what_is_fixed_cannot_be_updated(old, new, words: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        check_update(old, new)
    assert words in refusal.value.description
    with pytest.raises(ArgumentError):
        updated(created(old), new)


def test_the_number_of_partitions_cannot_change() -> None:
    old = queue(enable_partitioning=True, partition_count=16)
    with pytest.raises(ArgumentError, match="number of partitions"):
        check_update(old, replace(old, partition_count=8))


def test_an_update_replaces_everything_else() -> None:
    old = created(
        queue(path="Queue", forward_to="x", user_metadata="m", max_delivery_count=3, lock_duration_ms=5_000)
    )
    new = updated(old, queue(path="qUEUE"))
    assert new == replace(queue(path="Queue"), created_at_ms=1_000, updated_at_ms=2_000)


def test_an_update_that_leaves_out_what_is_fixed_keeps_it() -> None:
    old = created(queue(requires_session=True, enable_partitioning=True, authorization_rules=(key_rule(),)))
    new = updated(old, queue(max_delivery_count=7), given=frozenset({"MaxDeliveryCount"}))
    assert new.requires_session
    assert new.enable_partitioning
    assert new.partition_count == 16
    assert new.authorization_rules == old.authorization_rules
    assert new.max_delivery_count == 7


def test_an_update_with_authorization_rules_replaces_them() -> None:
    old = created(queue(authorization_rules=(key_rule("a"), key_rule("b"))))
    new = updated(old, queue(authorization_rules=(key_rule("b"),)), given={"AuthorizationRules"})
    assert [rule.key_name for rule in new.authorization_rules] == ["b"]
    assert updated(old, queue(), given={"AuthorizationRules"}).authorization_rules == ()


def test_missing_keys_are_made_and_unchanged_rules_keep_their_times() -> None:
    old = created(queue(authorization_rules=(key_rule(primary_key="", secondary_key=""), key_rule("z"))))
    made = old.authorization_rules[0]
    assert (made.primary_key, made.secondary_key) == ("key1", "key2")
    changed = replace(old.authorization_rules[1], primary_key="other")
    new = updated(old, queue(authorization_rules=(key_rule(primary_key="", secondary_key=""), changed)))
    assert new.authorization_rules[0] == made
    assert new.authorization_rules[1].created_at_ms == 1_000
    assert new.authorization_rules[1].modified_at_ms == 2_000


def test_an_update_that_sends_the_shown_message_size_back_passes() -> None:
    old = created(queue())
    assert updated(old, queue(max_message_size_in_kilobytes=256)).max_message_size_in_kilobytes is None
    with pytest.raises(ArgumentError, match="MaxMessageSizeInKilobytes"):
        updated(old, queue(max_message_size_in_kilobytes=1024))
    big = created(queue(), PREMIUM)
    assert updated(big, queue(max_message_size_in_kilobytes=2048), PREMIUM).max_message_size_in_kilobytes == 2048


def test_a_partitioned_entity_keeps_working_when_the_namespace_becomes_premium() -> None:
    old = created(queue(enable_partitioning=True, max_size_in_megabytes=2048))
    for tier in (PREMIUM, TWO_PARTITIONS):
        new = updated(old, queue(enable_partitioning=True, max_size_in_megabytes=32768, max_delivery_count=5), tier)
        assert (new.partition_count, new.max_size_in_megabytes, new.max_delivery_count) == (16, 2048, 5)


def test_a_short_window_from_a_file_survives_an_update() -> None:
    asked = queue(duplicate_detection_history_time_window_ms=5_000)
    old = admit_create(asked, STANDARD, 1, new_keys(), from_file=True)
    assert updated(old, asked).duplicate_detection_history_time_window_ms == 5_000
    with pytest.raises(ArgumentError):
        updated(old, queue(duplicate_detection_history_time_window_ms=4_999))
    with pytest.raises(ArgumentError):
        updated(created(queue()), asked)


def test_a_plain_entity_has_one_partition() -> None:
    with pytest.raises(ArgumentError, match="exactly one partition"):
        validate(queue(partition_count=2), STANDARD)


def test_keys_do_not_show() -> None:
    assert "secret" not in repr(queue(authorization_rules=(key_rule(primary_key="secret", secondary_key="secret"),)))


@pytest.mark.parametrize(
    ("status", "send", "receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
        (EntityStatus.DELETING, False, False),
    ],
)
def test_what_a_status_allows(status: EntityStatus, send: bool, receive: bool) -> None:
    assert (status.allows_send, status.allows_receive) == (send, receive)


@pytest.mark.parametrize(
    ("text", "name"),
    [("basic", TierName.BASIC), ("Standard", TierName.STANDARD), ("PREMIUM", TierName.PREMIUM)],
)
def test_tiers_by_name(text: str, name: TierName) -> None:
    assert tier_named(text).name is name


@pytest.mark.parametrize(
    "make", [lambda: tier_named("gold"), lambda: Tier(partitions=0), lambda: Tier(partitions=40_000)]
)
def test_tiers_that_are_none(make) -> None:
    with pytest.raises(ArgumentError):
        make()


def test_what_a_tier_holds() -> None:
    assert (STANDARD.message_bytes(queue()), PREMIUM.message_bytes(queue())) == (262_144, 1_048_576)
    assert PREMIUM.message_bytes(queue(max_message_size_in_kilobytes=2048)) == 2_097_152
    assert (STANDARD.entities_max, PREMIUM.entities_max, BASIC.partitioned_entities_max) == (10_000, None, 100)
    assert not BASIC.has_topics


def sql(text: str = "1=1", **values) -> SqlFilterDescription:
    return SqlFilterDescription(expression=text, **values)


TYPED = TypedValue("int", "1")
BAD_RULES = [
    RuleDescription(name=""),
    RuleDescription(name="x" * 51),
    RuleDescription(name="a b"),
    RuleDescription(name="$Other"),
    RuleDescription(name="r", filter=sql("")),
    RuleDescription(name="r", filter=sql("x" * 1025)),
    RuleDescription(name="r", filter=sql("a = '\x07'")),
    RuleDescription(name="r", filter=sql(parameters=(("@a", TYPED), ("@a", TYPED)))),
    RuleDescription(name="r", filter=sql(parameters=(("", TYPED),))),
    RuleDescription(name="r", filter=sql(parameters=(("\x00", TYPED),))),
    RuleDescription(name="r", filter=sql(parameters=tuple((f"@{n}", TYPED) for n in range(513)))),
    RuleDescription(name="r", filter=CorrelationFilterDescription()),
    RuleDescription(name="r", filter=CorrelationFilterDescription(label="\x00")),
    RuleDescription(name="r", action=SqlActionDescription(expression="")),
    RuleDescription(name="r", action=SqlActionDescription(expression="y" * 1025)),
]


@pytest.mark.parametrize("rule", BAD_RULES)
def test_rules_that_cannot_be(rule: RuleDescription) -> None:
    with pytest.raises(ArgumentError):
        validate_rule(rule)


@given(kit.rules)
def test_rules_that_can_be(rule: RuleDescription) -> None:
    validate_rule(rule)


@given(kit.queues | kit.topics | kit.subscriptions)
def test_what_is_admitted_is_valid_and_sending_it_back_changes_nothing(asked) -> None:
    one = created(asked)
    validate(one, STANDARD)
    sent_back = one
    if not isinstance(one, SubscriptionDescription):
        sent_back = replace(one, max_size_in_megabytes=one.shown_size_in_megabytes, partition_count=1)
    assert updated(one, sent_back, now_ms=1_000) == one
