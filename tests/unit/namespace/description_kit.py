"""Descriptions at random, for round trips through every form that they are kept or sent in."""

from __future__ import annotations

import string
from decimal import Decimal

from hypothesis import strategies as st

from polybus.namespace.entities.description import (
    INFINITE_MS,
    AccessRight,
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import TargetKind, parse_http_path
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.tiers import STANDARD_SIZES_MB
from polybus.namespace.entities.typed_value import TypedValue

NAME_LETTERS = string.ascii_letters + string.digits + "._~-"

segments = st.text(NAME_LETTERS, min_size=1, max_size=20).filter(lambda text: text.strip("."))
paths = (
    st.lists(segments, min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda path: parse_http_path(path).kind is TargetKind.ENTITY)
)
rule_names = segments | st.just("$Default")

# What XML 1.0 can carry: no control characters but three, no surrogates, no non-characters.
xml_text = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]) | st.sampled_from("\t\n\r"), max_size=30
)
filled_text = xml_text.filter(bool)
key_text = st.text(string.ascii_letters + string.digits + "+/= <>&\"'", min_size=1, max_size=44)


def spans(lowest: int, highest: int) -> st.SearchStrategy[int]:
    return st.integers(lowest, highest)


times_to_live = spans(1_000, 10_000_000_000) | st.just(INFINITE_MS)
idle_times = spans(300_000, 10_000_000_000) | st.just(INFINITE_MS)
locks = spans(5_000, 300_000)
windows = spans(20_000, 7 * 86_400_000)
statuses = st.sampled_from([status for status in EntityStatus if status.settable])
metadata = st.none() | filled_text
targets = st.none() | paths | paths.map("sb://localhost:5300/{}".format)
wall_ms = st.integers(0, 4_102_444_800_000)

some_rights = st.sampled_from(
    [(AccessRight.SEND,), (AccessRight.LISTEN,), (AccessRight.SEND, AccessRight.LISTEN), tuple(AccessRight)]
)
authorization_rules = st.lists(
    st.builds(
        AuthorizationRule,
        key_name=st.text(string.ascii_letters + " é&<", min_size=1, max_size=20),
        rights=some_rights,
        primary_key=key_text,
        secondary_key=key_text,
    ),
    max_size=3,
    unique_by=lambda rule: rule.key_name,
).map(tuple)

_shared = {
    "default_message_time_to_live_ms": times_to_live,
    "enable_batched_operations": st.booleans(),
    "status": statuses,
    "auto_delete_on_idle_ms": idle_times,
    "user_metadata": metadata,
}
_entity = {
    **_shared,
    "path": paths,
    "max_size_in_megabytes": st.sampled_from(STANDARD_SIZES_MB),
    "requires_duplicate_detection": st.just(False),
    "duplicate_detection_history_time_window_ms": windows,
    "is_anonymous_accessible": st.booleans(),
    "authorization_rules": authorization_rules,
    "enable_partitioning": st.booleans(),
    "enable_express": st.booleans(),
}
_received = {
    "lock_duration_ms": locks,
    "requires_session": st.booleans(),
    "dead_lettering_on_message_expiration": st.booleans(),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "forward_to": targets,
    "forward_dead_lettered_messages_to": targets,
}

queues = st.builds(QueueDescription, **_entity, **_received)
topics = st.builds(
    TopicDescription,
    **_entity,
    filtering_messages_before_publishing=st.booleans(),
    support_ordering=st.booleans(),
    enable_subscription_partitioning=st.booleans(),
)
subscriptions = st.builds(
    SubscriptionDescription,
    **_shared,
    **_received,
    topic=paths,
    name=segments,
    dead_lettering_on_filter_evaluation_exceptions=st.booleans(),
)

typed_values = st.one_of(
    st.builds(TypedValue.of, xml_text),
    st.builds(TypedValue.of, st.integers(-(2**63), 2**63 - 1)),
    st.builds(TypedValue.of, st.booleans()),
    st.builds(TypedValue.of, st.floats()),
    st.builds(TypedValue.of, st.datetimes()),
    st.builds(TypedValue.of, st.timedeltas()),
    st.builds(TypedValue.of, st.uuids()),
    st.builds(TypedValue.of, st.binary(max_size=20)),
    st.builds(TypedValue.of, st.decimals(allow_nan=False, allow_infinity=False, places=3).map(Decimal)),
    st.builds(TypedValue, st.sampled_from(["short", "byte", "long", "unsignedInt"]), st.just("7")),
)
values_by_name = st.lists(st.tuples(filled_text, typed_values), max_size=4, unique_by=lambda pair: pair[0]).map(tuple)
_sql = {
    "expression": filled_text,
    "parameters": values_by_name,
    "requires_preprocessing": st.none() | st.booleans(),
}
_correlation_fields = {
    name: st.none() | filled_text
    for name in (
        [
            "correlation_id",
            "message_id",
            "to",
            "reply_to",
            "label",
            "session_id",
            "reply_to_session_id",
            "content_type",
        ]
    )
}
sql_filters = st.builds(
    SqlFilterDescription,
    kind=st.sampled_from([FilterKind.SQL, FilterKind.TRUE, FilterKind.FALSE]),
    compatibility_level=st.just(20),
    **_sql,
)
correlation_filters = st.builds(
    CorrelationFilterDescription, **_correlation_fields, properties=values_by_name
).filter(lambda one: one.fields or one.properties)
actions = st.none() | st.builds(SqlActionDescription, compatibility_level=st.just(20), **_sql)
rules = st.builds(
    RuleDescription,
    name=rule_names,
    filter=sql_filters | correlation_filters,
    action=actions,
    created_at_ms=st.just(0),
)
