"""A batch is judged by a topic's rules in one step of the loop, so how many rules it asks together is bounded."""

from __future__ import annotations

import pytest

from polybus.errors import MessageTooLarge
from polybus.namespace.delivery import sender
from polybus.namespace.entities.rule import CorrelationFilterDescription, RuleDescription, SqlFilterDescription
from tests.requirements.core.core_bus import CoreBus


def test_a_batch_that_asks_too_many_rules_is_refused_whole_and_half_of_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "RULE_BATCH_ASKED", 40)
    core = CoreBus(1)
    core.topic("t")
    sql = [RuleDescription(name=f"r{n}", filter=SqlFilterDescription(expression=f"n = {n}")) for n in range(4)]
    core.subscribe("t", "s", [*sql, RuleDescription(name="c", filter=CorrelationFilterDescription(label="x"))])
    core.subscribe("t", "all")
    with pytest.raises(
        MessageTooLarge, match="A batch of 11 messages is too large for the 4 SQL rules of 't': it may have 10"
    ):
        core.sent("t", *map(str, range(11)))
    assert core.bodies("t/Subscriptions/all") == []
    core.sent("t", *map(str, range(10)))
    core.sent("t", "alone")
    assert len(core.bodies("t/Subscriptions/all")) == 11
    core.close()
