"""E: forwarding."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from polybus.namespace.delivery.redrive import move_messages
from polybus.namespace.entities.rule import RuleDescription, SqlActionDescription
from polybus.partition.kinds import MAIN
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.sim_store import Fault
from tests.support.simulation.small_world import body_of


def partitions_of(core: CoreBus, path: str) -> Counter[int]:
    return Counter(number >> 48 for _, number in core.peeked(path))


@pytest.mark.parametrize(("source", "target"), [(1, 1), (1, 16), (16, 1), (16, 16)])
def test_e1_a_queue_forwards_from_and_to_partitions(core: CoreBus, source: int, target: int) -> None:
    core.queue("there", target)
    core.queue("here", source, forward_to="there")
    for number in range(32):
        core.sent("here", str(number))
    core.run(5)
    assert sorted(core.bodies("there"), key=int) == [str(number) for number in range(32)]
    assert core.namespace.entity("here").counts().result().total == 0


@pytest.mark.parametrize(("source", "target"), [(1, 16), (16, 1), (16, 16)])
def test_e1_a_subscription_forwards_from_and_to_partitions(core: CoreBus, source: int, target: int) -> None:
    core.queue("there", target)
    core.topic("t", source)
    core.subscribe("t", "onward", forward_to="there")
    core.subscribe("t", "stays")
    for number in range(32):
        core.sent("t", str(number))
    core.run(5)
    assert sorted(core.bodies("there"), key=int) == [str(number) for number in range(32)]
    assert len(core.bodies("t/Subscriptions/stays")) == 32


def test_e1_forwarding_waits_for_a_store_and_arrives_once(core: CoreBus) -> None:
    core.queue("there", PARTITIONS)
    here = core.queue("here", PARTITIONS, forward_to="there")
    for number in range(40):
        core.sent("here", str(number))
        core.disks[core.store_of(here.partitions[here.turn])].plan(Fault.FAIL_AFTER)
        core.run(2)
    core.run(20)
    assert sorted(core.bodies("there"), key=int) == [str(number) for number in range(40)]


def test_e2_a_key_chooses_the_partition_at_the_destination(core: CoreBus) -> None:
    core.queue("there", PARTITIONS)
    core.queue("here", forward_to="there")
    for field in ("partition_key", "session_id"):
        for key in ("a", "b", "c"):
            core.sent("here", key, **{field: key})
    core.run(5)
    for message, number in core.peeked("there"):
        key = message.session_id or message.partition_key  # type: ignore[assignment]
        assert key is not None
        assert number >> 48 == core.partition("there", key).index


def test_e2_without_a_key_forwarded_messages_go_round(core: CoreBus) -> None:
    core.queue("there", PARTITIONS)
    core.queue("here", forward_to="there")
    for number in range(2 * PARTITIONS):
        core.sent("here", str(number), message_id="same")
    core.run(5)
    assert partitions_of(core, "there") == dict.fromkeys(range(PARTITIONS), 2)


def test_e2_a_message_id_counts_where_the_destination_detects_duplicates(core: CoreBus) -> None:
    core.queue("there", PARTITIONS, requires_duplicate_detection=True)
    core.queue("here", forward_to="there")
    for name in ("a", "b", "a", "c", "b"):
        core.sent("here", name, message_id=name)
    core.run(5)
    found = {message.message_id: number >> 48 for message, number in core.peeked("there")}
    assert found == {name: core.partition("there", name).index for name in ("a", "b", "c")}
    assert sorted(core.bodies("there")) == ["a", "b", "c"]


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_e2_an_id_that_a_rule_has_set_tells_duplicates_at_the_destination(core: CoreBus, partitions: int) -> None:
    core.queue("there", partitions, requires_duplicate_detection=True)
    core.topic("t")
    for name in ("copy", "shared"):
        action = "SET sys.MessageId = sys.MessageId + ' copy'" if name == "copy" else "SET sys.MessageId = 'shared'"
        rule = RuleDescription(name=name, action=SqlActionDescription(expression=action))
        core.subscribe("t", name, [rule], forward_to="there")
    for name in ("a", "b"):
        core.sent("t", name, message_id=name)
        core.run(1)
    assert sorted(core.bodies("there")) == ["a", "a", "b"]
    core.restart()
    core.sent("there", "again", message_id="a copy")
    core.sent("there", "first", message_id="a")
    assert sorted(core.bodies("there")) == ["a", "a", "b", "first"]


def test_e1_what_one_subscription_can_no_longer_take_does_not_hold_back_the_others(core: CoreBus) -> None:
    queue, topic = core.queue("q"), core.topic("t")
    core.subscribe("t", "gone")
    core.subscribe("t", "stays")
    topic.throttled = True
    for name in ("gone", "stays", "gone", "stays"):
        (number,) = core.sent("q", name)
        target = topic.subscription(name).number
        core.do(move_messages(core.namespace, queue, MAIN, [number], {}, {}, "t", target))
    core.do(core.namespace.management.delete_subscription("t", "gone"))
    topic.throttled = False
    core.run(5)
    assert core.bodies("t/Subscriptions/stays") == ["stays", "stays"]
    assert core.bodies("q/$Transfer/$DeadLetterQueue") == ["gone", "gone"]


def test_e1_a_destination_that_is_almost_full_takes_what_it_has_space_for(core: CoreBus) -> None:
    there = core.queue("there")
    core.queue("here", forward_to="there")
    there.settings.max_bytes = 1_000
    there.throttled = True
    for number in range(5):
        core.sent("here", str(number) * 300)
    there.throttled = False
    core.run(60)
    assert [body[0] for body in core.bodies("there")] == ["0", "1", "2"]
    assert [body[0] for body in core.bodies("here/$Transfer/$DeadLetterQueue")] == ["3", "4"]


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
@pytest.mark.parametrize("place", ["q", "t/Subscriptions/s"])
def test_e1_what_was_there_before_forwarding_was_turned_on_is_moved_as_well(
    core: CoreBus, place: str, partitions: int
) -> None:
    """Nobody can receive it any more. What is locked goes when its lock ends, also over a restart."""
    core.bus.bounds.sweep_rows = 3
    core.queue("there")
    queue, topic = core.queue("q", partitions), core.topic("t", partitions)
    core.subscribe("t", "s")
    bodies = [str(number) for number in range(20)]
    for body in bodies:
        core.sent(place.split("/")[0], body)
    locked = core.take(place, 3)
    core.complete(locked[0])
    core.defer(locked[1])
    if place == "q":
        core.do(core.namespace.management.update(replace(queue.description, forward_to="there")))  # type: ignore[arg-type]
    else:
        described = replace(topic.subscription("s").description, forward_to="there")
        core.do(core.namespace.management.update_subscription(described))
    core.run(3)
    left = {body_of(delivery.message) for delivery in locked}
    assert sorted(core.bodies("there"), key=int) == [body for body in bodies if body not in left]
    core.run(70)
    assert len(core.bodies("there")) == 18
    assert core.bodies(place) == [body_of(locked[1].message)]


def test_e1_what_was_there_before_is_moved_also_when_a_restart_comes_between(core: CoreBus) -> None:
    core.queue("there")
    queue = core.queue("here")
    core.sent("here", "free")
    core.sent("here", "locked")
    core.take("here", 2)
    core.do(core.namespace.management.update(replace(queue.description, forward_to="there")))  # type: ignore[arg-type]
    core.restart()
    core.run(3)
    assert core.bodies("there") == ["free", "locked"]
    assert core.namespace.entity("here").counts().result().total == 0
