"""Entities that delete themselves when nobody uses them, and only then, one situation at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from polybus.message.message import build
from polybus.namespace.entities.description import SubscriptionDescription, TopicDescription
from polybus.namespace.pipeline.cursors import Start
from polybus.partition.kinds import KINDS, MAIN
from tests.support.inside import broker_of
from tests.support.simulation.small_world import SmallWorld

MINUTE_MS = 60_000
IDLE: dict[str, Any] = {"auto_delete_on_idle_ms": 10 * MINUTE_MS}


def pass_minutes(small: SmallWorld, minutes: int) -> None:
    small.world.advance(minutes * MINUTE_MS)
    small.run(1)


def transact(small: SmallWorld) -> None:
    transaction = small.namespace.transactions.declare()
    transaction.send(small.namespace.entity("q"), [build(b"x")])
    small.do(small.namespace.transactions.discharge(transaction, False))


def send(small: SmallWorld) -> None:
    small.sent("q", "x")


def look(small: SmallWorld) -> None:
    small.bodies("q")


@pytest.mark.parametrize("use", [send, transact, look])
def test_a_queue_that_is_used_stays_and_one_that_is_not_goes(use: Callable[[SmallWorld], None]) -> None:
    small = SmallWorld(1)
    small.queue("q", **IDLE)
    for _ in range(4):
        pass_minutes(small, 6)
        use(small)
    pass_minutes(small, 9)
    assert small.namespace.find("q") is not None
    pass_minutes(small, 1)
    assert small.namespace.find("q") is None


def test_a_store_that_was_away_does_not_make_its_entities_idle() -> None:
    small = SmallWorld(1)
    small.queue("q", **IDLE)
    pass_minutes(small, 9)
    small.sent("q", "x")
    small.set_faults(0, fail_after=1.0)
    failed = small.send("q", build(b"y"))
    small.run(1)
    assert failed.settled
    small.heal()
    small.run(5)
    pass_minutes(small, 2)
    assert small.bodies("q")[0] == "x"


def test_a_restart_does_not_make_an_entity_idle() -> None:
    """When it was last used is not written down: it has its whole time again."""
    small = SmallWorld(1)
    small.queue("q", **IDLE)
    small.do(small.namespace.management.create(TopicDescription(path="t")))
    small.do(small.namespace.management.create_subscription(SubscriptionDescription(topic="t", name="s", **IDLE)))
    pass_minutes(small, 9)
    small.sent("q", "x")
    small.restart()
    pass_minutes(small, 9)
    assert small.bodies("q") == ["x"]
    assert "s" in small.namespace.entity("t").subscriptions


def test_a_subscription_stays_while_it_is_received_from_and_goes_when_only_the_topic_is_used() -> None:
    small = SmallWorld(1)
    topic = small.do(small.namespace.management.create(TopicDescription(path="t")))
    for name in ("used", "unused"):
        described = SubscriptionDescription(topic="t", name=name, **IDLE)
        small.do(small.namespace.management.create_subscription(described))
    for _ in range(2):
        pass_minutes(small, 6)
        small.sent("t", "x")
        small.run(1)
        assert len(small.receive("t/Subscriptions/used").got) == 1
    assert list(topic.subscriptions) == ["used"]
    number = topic.subscription("used").number
    assert broker_of(topic.partitions[0]).logs[number * KINDS + MAIN].locked == 1
    pass_minutes(small, 10)
    assert not topic.subscriptions


def test_a_subscription_that_a_cursor_reads_stays() -> None:
    small = SmallWorld(1)
    topic = small.do(small.namespace.management.create(TopicDescription(path="t")))
    small.do(small.namespace.management.create_subscription(SubscriptionDescription(topic="t", name="s", **IDLE)))
    log_id = topic.subscription("s").number * KINDS
    cursors = small.bus.cursors
    cursor, _ = small.do(cursors.create(topic, log_id, "c", "sim", Start(), 86_400_000, None))
    for _ in range(3):
        pass_minutes(small, 6)
        cursor = small.do(cursors.lease(topic, cursor, "me", MINUTE_MS, None, True))
    assert "s" in topic.subscriptions
    pass_minutes(small, 10)
    assert not topic.subscriptions
