"""Sends in doubt, one situation at a time: each of these was once a message lost or doubled."""

from __future__ import annotations

import pytest

from polybus.errors import PartitionUnavailable
from polybus.hosting.catalogue import DOUBT
from polybus.hosting.partition_host import MARKS
from polybus.hosting.store_host import InDoubt
from polybus.message.message import build
from polybus.promise import spawn
from tests.support.sim_store import Fault
from tests.support.simulation.small_world import SmallWorld


def marks(small: SmallWorld) -> int:
    return sum(key.startswith(MARKS) for disk in small.disks for key, _ in disk.rows())


def doubts(small: SmallWorld) -> int:
    return sum(key.startswith(DOUBT) for key, _ in small.world.catalogue.rows())


def partitions_on(small: SmallWorld, path: str, disk: int) -> list[int]:
    entity = small.namespace.entity(path)
    return [p.index for p in entity.partitions if p.store.url == small.disks[disk].name]


def begin_at(small: SmallWorld, path: str, disk: int) -> None:
    """The next message without a key goes to a partition on this disk."""
    small.namespace.entity(path).turn = partitions_on(small, path, disk)[0]


def test_a_send_whose_commit_failed_after_writing_is_stored_once() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_AFTER)
    small.sent("q", "once")
    small.run(10)
    assert small.bodies("q") == ["once"]
    assert (marks(small), doubts(small)) == (0, 0)


def test_a_send_whose_commit_failed_before_writing_is_stored_once() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_BEFORE)
    small.sent("q", "once")
    small.run(10)
    assert small.bodies("q") == ["once"]


def test_a_store_does_not_serve_before_the_sends_that_left_it_have_arrived() -> None:
    """The store is back after 200 ms, the send is under way in a commit of two seconds, and so is its mark."""
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_AFTER)
    small.set_faults(1, commit_ms=(2_000.0, 2_000.0))
    answer = small.send("q", build(b"once"))
    small.run(1.5)
    assert not answer.settled
    assert small.bus.stores[0].available
    assert small.namespace.entity("q").missing_partitions() == partitions_on(small, "q", 0)
    small.answer(answer)
    small.run(10)
    assert small.bodies("q") == ["once"]
    assert small.namespace.entity("q").missing_partitions() == []


def test_a_send_that_fails_in_two_stores_is_stored_once() -> None:
    """Two marks name the same row then; removing it twice once drove the counters below zero."""
    small = SmallWorld(3)
    entity = small.queue("q", 3)
    due_ms = small.world.clock.now().wall_ms + 20_000
    entity.turn = 0
    first, second = entity.partitions[0].store.url, entity.partitions[1].store.url
    for disk in small.disks:
        if disk.name in (first, second):
            disk.plan(Fault.FAIL_AFTER)
    small.sent("q", "once", scheduled_ms=due_ms)
    small.run(10)
    assert small.namespace.entity("q").counts().result().scheduled == 1
    small.run(20)
    assert small.bodies("q") == ["once"]
    assert small.namespace.entity("q").counts().result().scheduled == 0


def test_doubts_outlive_the_process() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_AFTER)
    small.sent("q", "once")
    small.restart()
    small.run(5)
    assert small.bodies("q") == ["once"]
    assert (marks(small), doubts(small)) == (0, 0)


def test_a_doubted_store_that_opens_while_the_bus_starts_is_cleared_all_the_same() -> None:
    """It was missing when its partitions were loaded, and back before the others had recovered."""
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_AFTER)
    small.sent("q", "once")
    small.world.die()
    small.take_down(small.disks[0])
    small.set_faults(1, read_ms=(400.0, 400.0))
    starting = small.world.go(small.world.start())
    small.run(0.3)
    small.disks[0].down = False
    small.answer(starting)
    small.run(10)
    small.heal()
    assert small.bodies("q") == ["once"]
    assert (marks(small), doubts(small)) == (0, 0)


def test_a_doubted_store_waits_for_those_that_may_hold_marks() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_AFTER)
    small.sent("q", "once")
    small.take_down(small.disks[1])
    with pytest.raises(PartitionUnavailable):
        begin_at(small, "q", 1)
        small.sent("q", "refused or in doubt")
    small.run(10)
    assert small.bus.stores[0].available
    assert not small.namespace.entity("q").partitions[partitions_on(small, "q", 0)[0]].available
    small.heal()
    small.run(10)
    assert small.bodies("q").count("once") == 1


def test_a_send_in_doubt_that_nobody_can_take_is_reported_as_in_doubt() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.take_down(small.disks[1])
    small.disks[0].plan(Fault.FAIL_AFTER)
    with pytest.raises(InDoubt):
        small.answer(small.send("q", build(b"perhaps")))
    small.heal()
    small.run(10)
    assert small.bodies("q") in ([], ["perhaps"])


def test_a_catalogue_that_hangs_does_not_hold_up_a_send_for_ever() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    begin_at(small, "q", 0)
    small.world.catalogue.plan(Fault.HANG)
    small.disks[0].plan(Fault.FAIL_AFTER)
    with pytest.raises(InDoubt):
        small.answer(small.send("q", build(b"perhaps")), seconds=4)
    small.world.catalogue.release()
    small.heal()
    small.run(20)
    assert small.bodies("q") in ([], ["perhaps"])


def test_numbers_that_were_never_stored_are_not_taken_for_those_of_an_old_mark() -> None:
    """A mark is gone before its store serves again: else it would remove the next message with that number."""
    small = SmallWorld(2)
    small.queue("q", 2)
    for round_ in range(3):
        begin_at(small, "q", 0)
        small.disks[0].plan(Fault.FAIL_BEFORE)
        small.sent("q", f"moved {round_}")
        small.run(2)
        begin_at(small, "q", 0)
        small.sent("q", f"stays {round_}")
        small.restart()
        small.run(2)
    expected = [f"{kind} {round_}" for kind in ("moved", "stays") for round_ in range(3)]
    assert sorted(small.bodies("q")) == sorted(expected)


def test_a_deletion_whose_outcome_nobody_knows_when_the_bus_stops_is_said_to_be_in_doubt() -> None:
    """It was said to have failed, and the queue was gone after the restart."""
    small = SmallWorld(1)
    small.queue("q")
    catalogue = small.world.catalogue
    catalogue.plan(Fault.FAIL_AFTER)
    deletion = spawn(small.namespace.management.delete("q"))
    small.run(0.01)
    small.take_down(catalogue)
    small.do(small.bus.stop())
    with pytest.raises(InDoubt):
        small.answer(deletion)
    small.heal()
    small.restart()
    assert small.namespace.find("q") is None


def test_a_doubted_store_waits_for_one_that_was_not_given_at_the_start() -> None:
    """The send was taken over by a store that the next process does not know of: its mark is there."""
    small = SmallWorld(3)
    small.queue("q", 2)
    first, second = (small.bus.stores.index(p.store) for p in small.namespace.entity("q").partitions)
    begin_at(small, "q", first)
    small.disks[first].plan(Fault.FAIL_AFTER)
    small.take_down(small.disks[first])
    small.sent("q", "once")
    small.world.die()
    small.heal()
    disks = small.world.disks
    small.world.disks = [disk for place, disk in enumerate(disks) if place != second]
    small.do(small.world.start())
    small.run(10)
    assert small.namespace.entity("q").missing_partitions() == [0, 1]
    assert doubts(small) == 1
    small.world.die()
    small.world.disks = disks
    small.do(small.world.start())
    small.run(10)
    assert small.bodies("q") == ["once"]
    assert (marks(small), doubts(small)) == (0, 0)


def test_a_store_that_is_doubted_later_does_not_wait_for_one_that_was_never_given() -> None:
    """What was not there since the start cannot have taken anything over."""
    small = SmallWorld(3)
    small.queue("q", 4)
    small.world.die()
    small.world.disks = small.world.disks[:2]
    small.do(small.world.start())
    small.run(1)
    assert len(small.namespace.entity("q").missing_partitions()) == 1
    begin_at(small, "q", 0)
    small.disks[0].plan(Fault.FAIL_AFTER)
    small.sent("q", "once")
    small.run(10)
    assert small.bodies("q") == ["once"]
    assert len(small.namespace.entity("q").missing_partitions()) == 1
    assert (marks(small), doubts(small)) == (0, 0)


def test_a_doubted_store_does_not_wait_for_one_that_was_down_before() -> None:
    """Only a store that has taken a send over can hold a mark; until a restart the bus knows which one that is."""
    small = SmallWorld(3)
    small.queue("q", 3)
    first, second, dead = (small.bus.stores.index(p.store) for p in small.namespace.entity("q").partitions)
    small.take_down(small.disks[dead])
    small.disks[dead].plan(Fault.FAIL_BEFORE)
    begin_at(small, "q", dead)
    small.sent("q", "before")
    begin_at(small, "q", first)
    small.disks[first].plan(Fault.FAIL_AFTER)
    small.sent("q", "once")
    small.run(10)
    assert small.namespace.entity("q").missing_partitions() == [2]
    assert sorted(small.bodies("q")) == ["before", "once"]
    assert small.bus.stores[second].available
    small.heal()
    small.run(10)
    assert sorted(small.bodies("q")) == ["before", "once"]
    assert (marks(small), doubts(small)) == (0, 0)
