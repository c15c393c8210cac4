"""The options follow the one table of properties, and the SDK has a word for each of them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from azure.servicebus.management import QueueProperties, SubscriptionProperties, TopicProperties

from polybus.cli.entity_options import UNKNOWN_TO_SDK, Status, given_values, option_parameters, sdk_name, settable
from polybus.namespace.entities.description import (
    Description,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.properties import PROPERTIES

MODELS: list[tuple[type[Description], Any]] = [
    (QueueDescription, QueueProperties),
    (TopicDescription, TopicProperties),
    (SubscriptionDescription, SubscriptionProperties),
]
SHOWN_ONLY = {"name", "authorization_rules", "availability_status", "size_in_bytes"}


@pytest.mark.parametrize(("kind", "model"), MODELS, ids=["queue", "topic", "subscription"])
def test_every_property_that_the_sdk_can_set_is_an_option(kind: type[Description], model: Any) -> None:
    known = set(inspect.signature(model.__init__).parameters) - {"self", "kwargs"} - SHOWN_ONLY
    assert {sdk_name(item) for item in settable(kind)} == known
    assert {each.name for each in option_parameters(kind, fixed=True)} == known
    left_out = {sdk_name(item) for item in PROPERTIES[kind]} - known
    assert left_out <= set(UNKNOWN_TO_SDK)


def test_what_is_fixed_at_creation_cannot_be_updated() -> None:
    changed = {each.name for each in option_parameters(QueueDescription, fixed=False)}
    created = {each.name for each in option_parameters(QueueDescription, fixed=True)}
    assert created - changed == {"requires_session", "requires_duplicate_detection", "enable_partitioning"}


def test_values_are_given_as_the_sdk_takes_them() -> None:
    given = {"lock_duration": "30s", "status": Status.DISABLED, "forward_to": "", "max_delivery_count": 3}
    given |= {"requires_session": False, "user_metadata": None}
    assert given_values(QueueDescription, given) == {
        "lock_duration": "PT30S",
        "status": "Disabled",
        "forward_to": None,
        "max_delivery_count": 3,
        "requires_session": False,
    }


def test_the_states_are_those_that_clients_may_set() -> None:
    assert [each.value for each in Status] == [each.value for each in EntityStatus if each.settable]
