"""Descriptions as the catalogue keeps them: equal after a round trip, tolerant of newer minors, else strict."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from polybus.errors import StoreCorrupt, StoreVersionMismatch
from polybus.namespace.entities.codec import (
    authorization_rule_from_dict,
    authorization_rule_to_dict,
    from_dict,
    to_dict,
)
from polybus.namespace.entities.description import AccessRight, AuthorizationRule, QueueDescription, TopicDescription
from polybus.namespace.entities.rule import DEFAULT_RULE
from tests.unit.namespace import description_kit as kit


@given(kit.queues | kit.topics | kit.subscriptions | kit.rules)
def test_round_trip_through_json(described) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(described)))) == described


def test_the_stored_form_is_this_one() -> None:
    """Old data must stay readable, so the form may only grow."""
    assert to_dict(DEFAULT_RULE) == {
        "version": "1.0",
        "kind": "rule",
        "name": "$Default",
        "filter": {
            "kind": "TrueFilter",
            "expression": "1=1",
            "parameters": [],
            "compatibility_level": 20,
            "requires_preprocessing": None,
        },
        "action": None,
        "created_at_ms": 0,
    }


def test_a_newer_minor_with_more_keys_is_read() -> None:
    data = {**to_dict(QueueDescription(path="q")), "version": "1.7", "colour": "green"}
    assert from_dict(data) == QueueDescription(path="q")


def test_missing_keys_get_their_defaults() -> None:
    assert from_dict({"version": "1.0", "kind": "topic", "path": "t"}) == TopicDescription(path="t")


@pytest.mark.parametrize("version", ["2.0", "0.9", "", None, 1, "one"])
def test_another_major_is_refused(version: object) -> None:
    with pytest.raises(StoreVersionMismatch):
        from_dict({**to_dict(QueueDescription(path="q")), "version": version})


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "stream"},
        {"kind": None},
        {"kind": ["queue"]},
        {"path": None},
        {"path": 3},
        {"lock_duration_ms": "60000"},
        {"lock_duration_ms": 1.5},
        {"lock_duration_ms": True},
        {"requires_session": 1},
        {"status": "Sleeping"},
        {"status": None},
        {"authorization_rules": {}},
        {"authorization_rules": [3]},
        {"authorization_rules": [{"key_name": "k", "rights": ["Own"]}]},
        {"authorization_rules": [{"rights": ["Send"]}]},
        {"forward_to": 3},
    ],
)
def test_what_does_not_fit_is_corrupt(change: dict[str, object]) -> None:
    with pytest.raises(StoreCorrupt):
        from_dict({**to_dict(QueueDescription(path="q")), **change})


@pytest.mark.parametrize(
    "filter_",
    [
        3,
        {"kind": "MagicFilter"},
        {"kind": "SqlFilter"},
        {"kind": "SqlFilter", "expression": "a", "parameters": [["k", ["int", "x"]]]},
        {"kind": "SqlFilter", "expression": "a", "parameters": [["k"]]},
        {"kind": "SqlFilter", "expression": "a", "parameters": [[1, ["int", "1"]]]},
        {"kind": "CorrelationFilter", "label": 3},
    ],
)
def test_filters_that_do_not_fit_are_corrupt(filter_: object) -> None:
    with pytest.raises(StoreCorrupt):
        from_dict({**to_dict(DEFAULT_RULE), "filter": filter_})


def test_a_path_is_needed() -> None:
    with pytest.raises(StoreCorrupt):
        from_dict({"version": "1.0", "kind": "queue"})


def test_rules_of_the_namespace_are_kept_alone() -> None:
    rule = AuthorizationRule(key_name="k", rights=(AccessRight.LISTEN,), primary_key="p", secondary_key="s")
    assert authorization_rule_from_dict(json.loads(json.dumps(authorization_rule_to_dict(rule)))) == rule
