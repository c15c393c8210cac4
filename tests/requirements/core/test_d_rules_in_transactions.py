"""D6: rules that change in a transaction, with everything else that it does, whatever fails in between."""

from __future__ import annotations

import pytest

from polybus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    InvalidOperation,
    OperationConflict,
    PartitionUnavailable,
)
from polybus.namespace.delivery.transaction import Transaction
from polybus.namespace.delivery.transaction_rules import RuleChange
from polybus.namespace.entities.rule import CorrelationFilterDescription, RuleDescription
from polybus.partition import transactions
from polybus.promise import spawn
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.inside import broker_of, host_of
from tests.support.sim_store import Fault

BEFORE = {"$default"}
AFTER = {"blue"}


def coloured(name: str) -> RuleDescription:
    return RuleDescription(name=name, filter=CorrelationFilterDescription(label=name))


def prepared(core: CoreBus, name: str = "t") -> Transaction:
    """A transaction that sends, completes, and replaces the only rule of the topic's subscription."""
    topic = core.topic(name)
    core.subscribe(name, "s")
    core.sent(name, "in")
    (delivery,) = core.take(f"{name}/Subscriptions/s")
    transaction = core.transaction()
    transaction.settle(topic, delivery, "complete")
    transaction.change_rule(topic, RuleChange("s", "$Default", None))
    transaction.change_rule(topic, RuleChange("s", "blue", coloured("blue")))
    core.join(transaction, name, "out")
    return transaction


def seen(core: CoreBus, name: str = "t") -> tuple[list[str], set[str]]:
    return core.bodies(f"{name}/Subscriptions/s"), set(core.namespace.entity(name).subscription("s").rules)


def has_intent(core: CoreBus, name: str = "t") -> bool:
    """Whether a transaction still has to do something in the catalogue."""
    partition = core.namespace.entity(name).partitions[0]
    return core.answer(host_of(partition).run(transactions.intent(broker_of(partition)))) != b""


def test_d6_rules_change_with_the_commit_and_stay(core: CoreBus) -> None:
    transaction = prepared(core)
    assert seen(core)[1] == BEFORE
    core.commit(transaction)
    for _ in range(2):
        assert seen(core) == (["out"], AFTER)
        core.restart()
    core.sent("t", "red", subject="red")
    core.sent("t", "sky", subject="blue")
    assert core.bodies("t/Subscriptions/s") == ["out", "sky"]


def test_d6_a_rollback_leaves_the_rules(core: CoreBus) -> None:
    transaction = prepared(core)
    core.roll_back(transaction)
    assert seen(core) == (["in"], BEFORE)


def test_d6_a_transaction_of_rules_alone(core: CoreBus) -> None:
    core.topic("t")
    core.subscribe("t", "s")
    topic = core.namespace.entity("t")
    transaction = core.transaction()
    for change in (
        RuleChange("s", "red", coloured("red")),
        RuleChange("s", "red", None),
        RuleChange("s", "$Default", None),
        RuleChange("s", "red", coloured("red")),
    ):
        transaction.change_rule(topic, change)
    core.commit(transaction)
    core.restart()
    assert set(topic.subscription("s").rules) == {"red"}
    assert set(core.namespace.entity("t").subscription("s").rules) == {"red"}


def test_d6_a_change_that_cannot_be_is_refused_at_once(core: CoreBus) -> None:
    core.topic("t")
    core.subscribe("t", "s")
    topic = core.namespace.entity("t")
    transaction = core.transaction()
    with pytest.raises(EntityAlreadyExists):
        transaction.change_rule(topic, RuleChange("s", "$DEFAULT", coloured("x")))
    with pytest.raises(EntityNotFound):
        transaction.change_rule(topic, RuleChange("s", "none", None))
    with pytest.raises(EntityNotFound):
        transaction.change_rule(topic, RuleChange("none", "x", coloured("x")))
    core.commit(transaction)
    assert set(topic.subscription("s").rules) == BEFORE


def test_d6_a_change_that_somebody_else_made_meanwhile_fails_the_whole_commit(core: CoreBus) -> None:
    transaction = prepared(core)
    core.do(core.namespace.management.create_rule("t", "s", coloured("blue")))
    with pytest.raises(EntityAlreadyExists):
        core.commit(transaction)
    assert seen(core) == (["in"], BEFORE | AFTER)


def test_d6_not_on_a_partitioned_topic_and_not_on_two_entities(core: CoreBus) -> None:
    core.queue("q")
    core.topic("p", PARTITIONS)
    core.topic("t")
    for topic in ("p", "t"):
        core.subscribe(topic, "s")
    alone = core.transaction()
    for change in (RuleChange("s", "$Default", None), RuleChange("s", "blue", coloured("blue"))):
        with pytest.raises(InvalidOperation, match="partitioned topic"):
            alone.change_rule(core.namespace.entity("p"), change)
    core.commit(alone)
    assert set(core.namespace.entity("p").subscription("s").rules) == {"$default"}
    transaction = core.transaction()
    core.join(transaction, "q", "kept")
    with pytest.raises(InvalidOperation, match="another topic"):
        transaction.change_rule(core.namespace.entity("t"), RuleChange("s", "$Default", None))
    core.commit(transaction)
    assert core.bodies("q") == ["kept"]


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_d6_a_store_that_fails_during_the_commit(core: CoreBus, fault: str) -> None:
    transaction = prepared(core)
    core.disks[core.store_of(core.namespace.entity("t").partitions[0])].plan(fault)
    with pytest.raises(PartitionUnavailable):
        core.commit(transaction)
    core.run(15)
    assert seen(core) == ((["out"], AFTER) if fault == Fault.FAIL_AFTER else (["in"], BEFORE))
    assert not has_intent(core)
    core.restart()
    assert seen(core)[1] == (AFTER if fault == Fault.FAIL_AFTER else BEFORE)


def test_d6_a_catalogue_that_is_away_is_waited_for_by_the_topic_alone(core: CoreBus) -> None:
    transaction = prepared(core)
    core.world.catalogue.plan(Fault.FAIL_BEFORE)
    core.take_down(core.world.catalogue)
    promise = spawn(core.namespace.transactions.discharge(transaction, False))
    core.run(5)
    core.sent("t", "sky", subject="blue")
    assert seen(core) == (["out", "sky"], AFTER)
    assert has_intent(core)
    with pytest.raises(OperationConflict):
        core.do(core.namespace.management.delete_rule("t", "s", "blue"))
    core.heal()
    core.answer(promise)
    core.run(15)
    assert not has_intent(core)
    core.do(core.namespace.management.delete_rule("t", "s", "blue"))
    core.restart()
    assert seen(core)[1] == set()


def test_d6_the_process_dies_at_any_moment_of_the_commit(core: CoreBus) -> None:
    """Step by step through the commit: each time it dies a little later, until the client has its answer.

    While the store's own commit is under way a death leaves all of it or nothing.
    """
    outcomes = []
    answered = False
    while not answered:
        name = f"t{len(outcomes)}"
        transaction = prepared(core, name)
        promise = spawn(core.namespace.transactions.discharge(transaction, False))
        core.run(0.0002 * len(outcomes))
        answered = promise.settled
        core.restart()
        core.run(5)
        outcomes.append(seen(core, name))
        assert not has_intent(core, name)
    before, after = (["in"], BEFORE), (["out"], AFTER)
    assert all(outcome in (before, after) for outcome in outcomes)
    switch = len(outcomes) - outcomes[::-1].index(before)
    assert len(outcomes) - switch > 3, "it died between the store's commit and the answer, too"
