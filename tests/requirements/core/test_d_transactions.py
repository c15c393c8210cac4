"""D: transactions."""

from __future__ import annotations

import pytest

from polybus.errors import InvalidOperation, PartitionUnavailable, QuotaExceeded, TransactionUnknown
from polybus.limits import TRANSACTION_MS
from polybus.message.message import build
from polybus.namespace.entities.rule import CorrelationFilterDescription, RuleDescription
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.sim_store import Fault


def test_d1_a_message_without_a_key_is_refused_on_a_partitioned_entity(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    transaction = core.transaction()
    with pytest.raises(InvalidOperation, match="must have a partition key"):
        core.join(transaction, "q", message_id="no key here")
    core.join(transaction, "q", "kept", partition_key="k")
    with pytest.raises(InvalidOperation, match="must have a partition key"):
        core.join(transaction, "q", message_id="nor here")
    core.commit(transaction)
    assert core.bodies("q") == ["kept"]


@pytest.mark.parametrize("fields", [{"session_id": "k"}, {"partition_key": "k"}, {"message_id": "k"}])
def test_d1_each_of_the_three_properties_is_a_key(core: CoreBus, fields: dict[str, str]) -> None:
    core.queue("q", PARTITIONS, requires_duplicate_detection=True)
    transaction = core.transaction()
    core.join(transaction, "q", "kept", **{"message_id": "m", **fields})
    core.commit(transaction)
    assert core.bodies("q") == ["kept"]


def test_d1_a_plain_entity_asks_for_no_key(core: CoreBus) -> None:
    core.queue("q")
    transaction = core.transaction()
    core.join(transaction, "q", "a")
    core.join(transaction, "q", "b", partition_key="k")
    core.commit(transaction)
    assert core.bodies("q") == ["a", "b"]


def test_d2_a_second_key_is_refused_even_if_it_selects_the_same_partition(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    home = core.partition("q", "k").index
    twin = next(k for k in (f"k{n}" for n in range(1_000)) if core.partition("q", k).index == home)
    transaction = core.transaction()
    core.join(transaction, "q", "a", partition_key="k")
    for other in (twin, "elsewhere"):
        with pytest.raises(InvalidOperation):
            core.join(transaction, "q", "b", partition_key=other)
    core.commit(transaction)
    assert core.bodies("q") == ["a"]


def test_d3_a_session_aware_entity_wants_a_session_id(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, requires_session=True)
    transaction = core.transaction()
    with pytest.raises(InvalidOperation):
        core.join(transaction, "q", partition_key="s")
    with pytest.raises(InvalidOperation):
        core.join(transaction, "q", session_id="s", partition_key="k")
    core.join(transaction, "q", "a", session_id="s", partition_key="s")
    core.commit(transaction)
    assert core.bodies("q") == ["a"]


def test_d4_two_sessions_of_a_partitioned_entity_are_refused_in_one_transaction(core: CoreBus) -> None:
    """Also two that live in one partition, where the broker could do it: whether it works must not be chance."""
    core.queue("q", PARTITIONS, requires_session=True)
    home = core.partition("q", "s").index
    twin = next(k for k in (f"s{n}" for n in range(1_000)) if core.partition("q", k).index == home)
    transaction = core.transaction()
    core.join(transaction, "q", "a", session_id="s")
    for other in (twin, "elsewhere"):
        with pytest.raises(InvalidOperation):
            core.join(transaction, "q", "b", session_id=other)
    core.commit(transaction)
    assert core.bodies("q") == ["a"]


def test_d4_two_sessions_of_a_plain_entity_work(core: CoreBus) -> None:
    core.queue("q", requires_session=True)
    transaction = core.transaction()
    core.join(transaction, "q", "a", session_id="s")
    core.join(transaction, "q", "b", session_id="t")
    core.commit(transaction)
    assert sorted(core.bodies("q")) == ["a", "b"]


def test_d5_all_messages_of_a_transaction_are_at_one_broker(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    transaction = core.transaction()
    for number in range(5):
        core.join(transaction, "q", str(number), partition_key="k")
    assert core.bodies("q") == []
    core.commit(transaction)
    assert core.bodies("q") == ["0", "1", "2", "3", "4"]
    assert {number >> 48 for _, number in core.peeked("q")} == {core.partition("q", "k").index}


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_d5_a_commit_that_meets_a_failure_is_done_wholly_or_not_at_all(core: CoreBus, fault: str) -> None:
    core.queue("q", PARTITIONS)
    core.queue("other")
    core.sent("q", "in", partition_key="k")
    (delivery,) = core.take("q")
    transaction = core.transaction()
    transaction.settle(core.namespace.entity("q"), delivery, "complete")
    core.join(transaction, "q", "out", partition_key="k")
    core.join(transaction, "other", "moved")
    core.disks[core.store_of(core.partition("q", "k"))].plan(fault)
    with pytest.raises(PartitionUnavailable):
        core.commit(transaction)
    core.run(15)
    done = (core.bodies("q"), core.bodies("other"))
    assert done == ((["out"], ["moved"]) if fault == Fault.FAIL_AFTER else (["in"], []))


def test_d5_an_open_transaction_ends_with_the_process(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    transaction = core.transaction()
    core.join(transaction, "q", "never", partition_key="k")
    core.restart()
    core.run(5)
    assert core.bodies("q") == []


def test_d5_a_rollback_leaves_nothing_and_gives_the_message_back(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, lock_duration_ms=5_000)
    core.sent("q", "in", partition_key="k")
    (delivery,) = core.take("q")
    transaction = core.transaction()
    transaction.settle(core.namespace.entity("q"), delivery, "complete")
    core.join(transaction, "q", "never", partition_key="k")
    core.roll_back(transaction)
    core.complete(delivery)
    assert core.bodies("q") == []


@pytest.mark.parametrize("destination", ["q", "other"])
def test_d5_nothing_is_sent_in_a_transaction_to_a_store_that_is_almost_full(core: CoreBus, destination: str) -> None:
    """What it would have settled stays; settling alone goes on."""
    entity = core.queue("q")
    core.queue("other")
    core.sent("q", "in")
    (delivery,) = core.take("q")
    entity.partitions[0].store.full = True
    transaction = core.transaction()
    transaction.settle(entity, delivery, "complete")
    core.join(transaction, destination, "never")
    with pytest.raises(QuotaExceeded):
        core.commit(transaction)
    assert core.bodies("q") == ["in"]
    again = core.transaction()
    again.settle(entity, delivery, "complete")
    core.commit(again)
    assert (core.bodies("q"), core.bodies("other")) == ([], [])


def test_d5_a_clock_that_is_moved_ends_a_transaction_that_is_too_old(core: CoreBus) -> None:
    core.queue("q", lock_duration_ms=300_000)
    core.sent("q", "in")
    (delivery,) = core.take("q")
    transaction = core.transaction()
    core.join(transaction, "q", "never")
    transaction.settle(core.namespace.entity("q"), delivery, "complete")
    core.world.advance(TRANSACTION_MS - 1)
    assert not transaction.done
    core.world.advance(1)
    with pytest.raises(TransactionUnknown):
        core.commit(transaction)
    core.complete(delivery)
    assert core.bodies("q") == []


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_d6_rules_are_added_and_removed_while_messages_flow(core: CoreBus, partitions: int) -> None:
    core.topic("t", partitions)
    core.subscribe("t", "s", [RuleDescription(name="red", filter=CorrelationFilterDescription(label="red"))])
    blue = RuleDescription(name="blue", filter=CorrelationFilterDescription(label="blue"))
    management = core.namespace.management
    core.sent("t", "red 1", subject="red")
    core.sent("t", "blue 1", subject="blue")
    core.do(management.create_rule("t", "s", blue))
    core.sent("t", "blue 2", subject="blue")
    core.do(management.delete_rule("t", "s", "red"))
    core.sent("t", "red 2", subject="red")
    core.restart()
    core.sent("t", "blue 3", subject="blue")
    core.sent("t", "red 3", subject="red")
    assert sorted(core.drain("t/Subscriptions/s")) == ["blue 2", "blue 3", "red 1"]


def test_a_transaction_has_two_minutes_from_its_first_operation(core: CoreBus) -> None:
    core.queue("q")
    transaction = core.transaction()
    core.run(150)
    core.join(transaction, "q", "in time")
    core.run(119)
    core.commit(transaction)
    late = core.transaction()
    core.join(late, "q", "too late")
    core.run(121)
    with pytest.raises(TransactionUnknown):
        core.commit(late)
    assert core.bodies("q") == ["in time"]


def test_nothing_is_remembered_of_transactions_that_are_rolled_back(core: CoreBus) -> None:
    core.queue("q")
    for _ in range(3):
        transaction = core.transaction()
        core.join(transaction, "q", "never")
        transaction.roll_back()
    assert core.namespace.transactions._open == {}


def test_d2_a_refused_send_does_not_decide_the_key(core: CoreBus) -> None:
    queue = core.queue("q", PARTITIONS)
    transaction = core.transaction()
    for second in ({}, {"partition_key": "b"}):
        with pytest.raises(InvalidOperation):
            transaction.send(queue, [build(b"1", partition_key="a"), build(b"2", **second)])  # type: ignore[arg-type]
    core.join(transaction, "q", "kept", partition_key="b")
    with pytest.raises(InvalidOperation):
        core.join(transaction, "q", partition_key="a")
    core.commit(transaction)
    assert core.bodies("q") == ["kept"]
