"""F2: a topic that is full of rules refuses more before anything is written, and starts again as it was."""

from __future__ import annotations

import pytest

from polybus.errors import EntityAlreadyExists, QuotaExceeded
from polybus.namespace.delivery.transaction_rules import RuleChange
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    RuleDescription,
    SqlFilterDescription,
)
from polybus.rules import ruleset
from tests.requirements.core.core_bus import CoreBus


def sql(name: str) -> RuleDescription:
    return RuleDescription(name=name, filter=SqlFilterDescription(expression="colour = 'blue'"))


def rules_of(core: CoreBus) -> dict[str, list[str]]:
    subscriptions = core.namespace.entity("t").subscriptions
    return {name: [rule.name for _, rule in one.rules.values()] for name, one in subscriptions.items()}


@pytest.fixture
def full(core: CoreBus, monkeypatch: pytest.MonkeyPatch) -> CoreBus:
    """A topic with as many SQL filters as it may have, and a subscription that has none."""
    monkeypatch.setattr(ruleset, "SQL_RULES_PER_TOPIC", 2)
    core.topic("t")
    core.subscribe("t", "a", [sql("one"), sql("two")])
    core.subscribe("t", "b")
    return core


def test_f2_a_subscription_whose_rules_have_no_room_is_not_created(full: CoreBus) -> None:
    before = rules_of(full)
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            full.subscribe("t", "c", [sql("three")])
        assert rules_of(full) == before
        full.restart()


def test_f2_a_rule_that_has_no_room_in_its_new_kind_stays_as_it_was(full: CoreBus) -> None:
    before = rules_of(full)
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            full.do(full.namespace.management.update_rule("t", "b", sql("$Default")))
        assert rules_of(full) == before
        full.sent("t", "all")
        full.restart()
    assert full.bodies("t/Subscriptions/b") == ["all", "all"]


def test_f2_a_rule_that_has_no_room_is_not_added_in_a_transaction(full: CoreBus) -> None:
    topic = full.namespace.entity("t")
    transaction = full.transaction()
    with pytest.raises(QuotaExceeded):
        transaction.change_rule(topic, RuleChange("b", "three", sql("three")))
    transaction.change_rule(topic, RuleChange("a", "one", None))
    transaction.change_rule(topic, RuleChange("b", "three", sql("three")))
    other = RuleDescription(name="one", filter=CorrelationFilterDescription(label="x"))
    full.do(full.namespace.management.update_rule("t", "a", other))
    full.do(full.namespace.management.create_rule("t", "a", sql("four")))
    with pytest.raises(QuotaExceeded):
        full.commit(transaction)
    for _ in range(2):
        assert rules_of(full) == {"a": ["one", "two", "four"], "b": ["$Default"]}
        full.sent("t", "all")
        full.restart()
    assert full.bodies("t/Subscriptions/b") == ["all", "all"]


def test_f2_a_subscription_with_two_rules_of_one_name_is_not_created(core: CoreBus) -> None:
    core.topic("t")
    for _ in range(2):
        with pytest.raises(EntityAlreadyExists):
            core.subscribe("t", "a", [sql("one"), sql("ONE")])
        assert rules_of(core) == {}
        core.restart()
