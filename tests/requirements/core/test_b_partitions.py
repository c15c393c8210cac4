"""B: choosing the partition for a send."""

from __future__ import annotations

from collections import Counter

import pytest

from polybus.errors import InvalidOperation, PartitionUnavailable
from polybus.hashing import HASH_VERSION, partition_for
from polybus.message.message import build
from polybus.namespace.entities.description import EntityAvailability
from polybus.namespace.entities.rule import RuleDescription, SqlActionDescription
from tests.requirements.core.conftest import Maker
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.sim_store import Fault


def indexes(numbers: list[int]) -> list[int]:
    return [number >> 48 for number in numbers]


def numbers_of(core: CoreBus, path: str, count: int, **fields: str) -> list[int]:
    return [core.sent(path, str(number), **fields)[0] for number in range(count)]


def test_b1_the_same_key_always_selects_the_same_partition(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for key in ("a", "b", "c"):
        expected = core.partition("q", key).index
        assert set(indexes(numbers_of(core, "q", 5, partition_key=key))) == {expected}
    core.restart()
    assert indexes(core.sent("q", "x", partition_key="a")) == [core.partition("q", "a").index]


def test_b1_a_key_selects_the_partition_that_it_has_selected_in_every_version() -> None:
    """Stores hold what earlier versions have put there: another hash would part keys from their messages."""
    assert HASH_VERSION == 1
    places = {"": (4, 0, 0), "a": (15, 1, 2), "b": (5, 1, 5), "order-17": (0, 0, 2), "Zürich": (8, 0, 5)}
    assert {key: tuple(partition_for(key, count) for count in (16, 2, 7)) for key in places} == places


def test_b1_keys_spread_over_the_partitions(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    used = {core.partition("q", f"key {number}").index for number in range(500)}
    assert used == set(range(PARTITIONS))


def test_b2_a_session_id_is_the_partition_key(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, requires_session=True)
    for session in ("s", "t", "u"):
        assert set(indexes(numbers_of(core, "q", 5, session_id=session))) == {core.partition("q", session).index}


def test_b2_a_session_that_a_rule_gives_to_its_copies_is_served_by_one_broker(core: CoreBus) -> None:
    """Whatever partitions of the topic the messages were sent to."""
    core.topic("t", PARTITIONS)
    rule = RuleDescription(name="r", action=SqlActionDescription(expression="SET sys.SessionId = sys.Label"))
    core.subscribe("t", "s", [rule], requires_session=True)
    core.subscribe("t", "all")
    bodies = [str(number) for number in range(2 * PARTITIONS)]
    for body in bodies:
        core.sent("t", body, subject="a")
    core.sent("t", "other", subject="b", session_id="c")
    core.run(2)
    held, box = core.accept("t/Subscriptions/s", "a")
    assert sorted(core.take_in_session(held, box, len(bodies)), key=int) == bodies
    home = core.partition("t", "a").index
    assert {delivery.partition.index for delivery in box.got} == {home}
    held, box = core.accept("t/Subscriptions/s", "b")
    assert core.take_in_session(held, box, 1) == ["other"]
    assert len(core.bodies("t/Subscriptions/all")) == len(bodies) + 1
    assert core.namespace.entity("t").counts().result().transfer == 0


def test_b3_a_partition_key_counts_where_there_is_no_session_id(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    found = indexes(core.sent("q", "x", partition_key="k", message_id="another"))
    assert found == [core.partition("q", "k").index]


def test_b4_a_session_id_and_another_partition_key_are_refused_and_nothing_is_stored(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    with pytest.raises(InvalidOperation):
        core.sent("q", "x", session_id="s", partition_key="k")
    assert core.namespace.entity("q").counts().result().total == 0
    assert indexes(core.sent("q", "x", session_id="s", partition_key="s")) == [core.partition("q", "s").index]


def test_b5_a_message_id_is_the_key_only_with_duplicate_detection(core: CoreBus) -> None:
    core.queue("unique", PARTITIONS, requires_duplicate_detection=True)
    core.queue("q", PARTITIONS)
    for number in range(8):
        name = f"id {number}"
        assert indexes(core.sent("unique", "x", message_id=name)) == [core.partition("unique", name).index]
    assert len(set(indexes(numbers_of(core, "q", 8, message_id="same")))) == 8


def test_b5_a_session_id_or_a_partition_key_goes_before_the_message_id(core: CoreBus) -> None:
    core.queue("unique", PARTITIONS, requires_duplicate_detection=True)
    found = indexes(core.sent("unique", "x", message_id="m", partition_key="k"))
    assert found == [core.partition("unique", "k").index]


def test_b6_all_copies_meet_at_one_broker_which_drops_them(core: CoreBus) -> None:
    core.queue("unique", PARTITIONS, requires_duplicate_detection=True)
    for _ in range(3):
        for name in ("a", "b", "c"):
            core.sent("unique", name, message_id=name)
    core.restart()
    core.sent("unique", "a", message_id="a")
    assert sorted(core.bodies("unique")) == ["a", "b", "c"]


def test_b7_without_a_key_messages_go_round(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    found = indexes(numbers_of(core, "q", 10 * PARTITIONS))
    assert found[:PARTITIONS] != sorted(set(found[:1])) * PARTITIONS
    assert Counter(found) == dict.fromkeys(range(PARTITIONS), 10)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_b8_a_message_without_a_key_goes_elsewhere_when_its_partition_is_down(core: CoreBus, lost: int) -> None:
    core.queue("q", PARTITIONS)
    core.lose(*range(lost))
    healthy = {p.index for p in core.namespace.entity("q").partitions if p.available}
    assert set(indexes(numbers_of(core, "q", 64))) == healthy
    core.heal()
    core.run(10)
    assert sorted(core.bodies("q"), key=int) == [str(number) for number in range(64)]


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.FULL])
def test_b8_a_send_that_meets_the_failure_goes_elsewhere_and_is_stored_once(make: Maker, fault: str) -> None:
    core = make(4)
    entity = core.queue("q", PARTITIONS)
    for number in range(20):
        chosen = entity.partitions[entity.turn]
        core.disks[core.store_of(chosen)].plan(fault)
        (found,) = core.sent("q", str(number))
        assert found >> 48 != chosen.index
        core.run(1)
        chosen.store.full = False
    core.run(10)
    assert sorted(core.bodies("q"), key=int) == [str(number) for number in range(20)]


def test_b9_a_message_with_a_key_is_refused_while_its_partition_is_down(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    core.lose(1)
    for partition in core.namespace.entity("q").partitions:
        key = core.key_for("q", partition.index)
        if partition.available:
            assert indexes(core.sent("q", key, partition_key=key)) == [partition.index]
            continue
        with pytest.raises(PartitionUnavailable) as refused:
            core.sent("q", key, partition_key=key)
        assert refused.value.retryable
    core.heal()
    core.run(10)
    assert len(core.bodies("q")) == 12


def test_b10_a_message_is_moved_at_once_when_the_store_is_known_to_be_down(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    core.lose(0, 1, 2)
    before = core.world.loop.time()
    numbers_of(core, "q", 16)
    assert core.world.loop.time() - before < 1.0


def test_b10_a_hanging_store_delays_a_send_by_less_than_15_seconds(core: CoreBus) -> None:
    """Two stores hang, one after the other."""
    entity = core.queue("q", PARTITIONS)
    entity.turn = 0
    first, second = (core.store_of(entity.partitions[index]) for index in (0, 1))
    for index in (first, second):
        core.disks[index].plan(Fault.HANG)
    before = core.world.loop.time()
    core.sent("q", "moved")
    assert core.world.loop.time() - before < 15.0
    for disk in core.disks:
        disk.release()
    core.run(20)
    assert core.bodies("q") == ["moved"]


def test_b10_no_number_of_hanging_stores_keeps_a_sender_for_more_than_15_seconds(core: CoreBus) -> None:
    entity = core.queue("q", PARTITIONS)
    entity.turn = 0
    for index in range(3):
        core.disks[core.store_of(entity.partitions[index])].plan(Fault.HANG)
    before = core.world.loop.time()
    with pytest.raises(PartitionUnavailable) as unknown:
        core.sent("q", "in doubt")
    assert unknown.value.retryable
    assert core.world.loop.time() - before < 15.1
    core.run(10)
    for disk in core.disks:
        disk.release()
    core.run(20)
    assert core.bodies("q") in ([], ["in doubt"])
    assert core.namespace.entity("q").availability is EntityAvailability.AVAILABLE
    for number in range(PARTITIONS):
        core.sent("q", str(number))


@pytest.mark.parametrize("field", ["session_id", "partition_key", "message_id"])
def test_b11_any_key_pins_the_message_in_a_transaction_or_not(core: CoreBus, field: str) -> None:
    core.queue("q", PARTITIONS, requires_duplicate_detection=True)
    fields = {"message_id": "m", field: "pin"}
    expected = core.partition("q", "pin").index
    assert indexes(core.sent("q", "x", **fields)) == [expected]
    transaction = core.transaction()
    fields["message_id"] = "pin" if field == "message_id" else "n"
    core.join(transaction, "q", "y", **fields)
    core.commit(transaction)
    assert {number >> 48 for _, number in core.peeked("q")} == {expected}


def test_b12_messages_with_the_same_key_keep_their_order(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    waiting = [
        core.send("q", build(f"{key} {number:02}".encode(), partition_key=key))
        for number in range(20)
        for key in ("a", "b", "c")
    ]
    for answer in waiting:
        core.answer(answer)
    received = core.drain("q")
    for key in ("a", "b", "c"):
        own = [body for body in received if body.startswith(key)]
        assert own == [f"{key} {number:02}" for number in range(20)]
    for key in ("a", "b"):
        core.sent("q", *(f"{key} {number:02}" for number in range(20)), partition_key=key)
    received = core.drain("q")
    for key in ("a", "b"):
        assert [body for body in received if body.startswith(key)] == [f"{key} {number:02}" for number in range(20)]
