"""The management API's documents, in both directions: the door to the files that read and write them."""

from __future__ import annotations

from polybus.gateway.atom.feed import (
    ENTRY_TYPE,
    ERROR_TYPE,
    FEED_TYPE,
    FeedPage,
    entity_entry,
    entity_feed,
    error_detail,
    error_document,
    namespace_entry,
    not_found_feed,
    parse_page,
    rule_entry,
    rule_feed,
    subscription_entry,
    subscription_feed,
)
from polybus.gateway.atom.parse import Sent, parse_entity, parse_rule, parse_subscription
from polybus.gateway.atom.render import AtomContext, Moment, RuntimeInfo

__all__ = [
    "ENTRY_TYPE",
    "ERROR_TYPE",
    "FEED_TYPE",
    "AtomContext",
    "FeedPage",
    "Moment",
    "RuntimeInfo",
    "Sent",
    "entity_entry",
    "entity_feed",
    "error_detail",
    "error_document",
    "namespace_entry",
    "not_found_feed",
    "parse_entity",
    "parse_page",
    "parse_rule",
    "parse_subscription",
    "rule_entry",
    "rule_feed",
    "subscription_entry",
    "subscription_feed",
]
