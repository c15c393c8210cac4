"""Stores and the catalogue that fail and come back, one situation at a time; each was once a fault of the bus."""

from __future__ import annotations

import pytest

from polybus.errors import PartitionUnavailable, ServerBusy, SessionLockLost, StoreError
from polybus.hashing import partition_for
from polybus.hosting.catalogue import TOMBSTONE
from polybus.limits import FORWARD_RETRIES, FORWARD_RETRY_MS
from polybus.message.message import build
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.namespace.entities.names import parse_address
from polybus.promise import spawn
from tests.support.sim_store import Fault
from tests.support.simulation.small_world import QUICK, Inbox, SmallWorld


def test_a_store_that_was_missing_at_the_start_serves_when_it_comes() -> None:
    small = SmallWorld(2)
    small.queue("q", 2)
    small.sent("q", "a")
    small.sent("q", "b")
    small.world.die()
    small.take_down(small.disks[0])
    small.do(small.world.start())
    assert len(small.namespace.entity("q").missing_partitions()) == 1
    small.heal()
    small.run(10)
    assert small.namespace.entity("q").missing_partitions() == []
    assert sorted(small.bodies("q")) == ["a", "b"]


def test_partitions_come_up_though_the_catalogue_fails_when_their_store_returns() -> None:
    small = SmallWorld(1)
    small.queue("q")
    small.disks[0].plan(Fault.FAIL_BEFORE)
    small.world.catalogue.plan(Fault.FAIL_BEFORE)
    small.world.catalogue.plan(Fault.FAIL_BEFORE)
    with pytest.raises(PartitionUnavailable):
        small.sent("q", "lost")
    small.run(10)
    assert small.namespace.entity("q").missing_partitions() == []


def test_partitions_come_up_though_reads_fail_when_their_store_returns() -> None:
    small = SmallWorld(1)
    small.queue("q")
    small.sent("q", "kept")
    small.world.die()
    small.set_faults(0, fail_read=1.0)
    small.do(small.world.start())
    small.run(1)
    assert small.namespace.entity("q").missing_partitions() == [0]
    small.heal()
    small.run(1)
    assert small.bodies("q") == ["kept"]


def test_a_store_that_fails_again_while_it_recovers_is_brought_up_once() -> None:
    """Two recoveries at once would build two brokers from the same rows, and the second would forget the first."""
    small = SmallWorld(1)
    small.queue("q")
    small.set_faults(0, read_ms=(300.0, 300.0))
    for _ in range(4):
        small.disks[0].plan(Fault.FAIL_BEFORE)
        with pytest.raises(PartitionUnavailable):
            small.sent("q", "lost")
        small.run(0.35)
    small.heal()
    small.run(10)
    small.sent("q", "kept")
    assert small.bodies("q") == ["kept"]


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_what_the_catalogue_does_with_a_failed_deletion_is_what_memory_does(fault: str) -> None:
    """A deletion that memory takes for failed and the catalogue has done would lose all later messages at a restart."""
    small = SmallWorld(1)
    small.queue("q")
    small.world.catalogue.plan(fault)
    deleting = spawn(small.namespace.management.delete("q"))
    small.world.run_until(lambda: deleting.settled, 10)
    there = small.namespace.find("q") is not None
    assert there is (fault == Fault.FAIL_BEFORE)
    if there:
        small.sent("q", "kept")
    small.restart()
    assert (small.namespace.find("q") is not None) is there
    if there:
        assert small.bodies("q") == ["kept"]


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_a_failed_creation_leaves_no_second_entity_behind(fault: str) -> None:
    small = SmallWorld(1)
    small.world.catalogue.plan(fault)
    creating = spawn(small.namespace.management.create(QueueDescription(path="q")))
    small.world.run_until(lambda: creating.settled, 10)
    if small.namespace.find("q") is None:
        small.queue("q")
    small.sent("q", "kept")
    small.do(small.namespace.management.delete("q"))
    small.restart()
    assert small.namespace.find("q") is None


def test_management_is_refused_while_nobody_knows_what_the_catalogue_holds() -> None:
    small = SmallWorld(1)
    small.queue("q")
    small.world.catalogue.plan(Fault.FAIL_AFTER)
    small.take_down(small.world.catalogue)
    first = spawn(small.namespace.management.create(QueueDescription(path="first")))
    small.run(1)
    with pytest.raises(ServerBusy):
        small.do(small.namespace.management.create(QueueDescription(path="second")))
    assert not first.settled
    small.heal()
    small.run(2)
    assert first.settled
    small.queue("second")
    small.restart()
    assert small.namespace.find("second") is not None


def test_what_enters_an_outbox_while_an_earlier_commit_is_under_way_is_moved_on() -> None:
    """The look into the outbox belonged to that commit, which did not hold the message yet."""
    small = SmallWorld(2)
    there = small.queue("there", 2)
    small.queue("here", forward_to="there")
    home = small.namespace.entity("here").partitions[0].store.url
    near, far = sorted(there.partitions, key=lambda partition: partition.store.url != home)
    disk = next(disk for disk in small.disks if disk.name == home)
    other = next(disk for disk in small.disks if disk.name != home)
    small.take_down(other)
    small.sent("here", "far", partition_key=key_for(far.index))
    small.world.die()
    small.set_faults(small.disks.index(disk), commit_ms=(50.0, 50.0))
    small.do(small.world.start())
    small.sent("here", "near", partition_key=key_for(near.index))
    small.run(5)
    assert small.bodies("there") == ["near"]
    small.heal()
    small.run(10)
    assert sorted(small.bodies("there")) == ["far", "near"]


def key_for(index: int) -> str:
    return next(key for key in map(str, range(100)) if partition_for(key, 2) == index)


def test_an_outbox_is_emptied_though_reads_fail() -> None:
    small = SmallWorld(1)
    small.queue("there")
    small.queue("here", forward_to="there")
    small.set_faults(0, fail_read=0.7)
    for number in range(10):
        small.sent("here", str(number))
    small.run(60)
    small.heal()
    small.run(10)
    assert small.bodies("there") == [str(number) for number in range(10)]


def test_forwarding_waits_for_a_full_store() -> None:
    small = SmallWorld(1)
    small.queue("there")
    small.queue("here", forward_to="there")
    small.bus.stores[0].full = True
    entity = small.namespace.entity("here")
    small.bus.stores[0].full = False
    answer = small.send("here", build(b"moved"))
    small.bus.stores[0].full = True
    small.run(1)
    assert answer.settled
    for _ in range(40):
        small.bus.stores[0].full = True
        small.run(0.5)
    assert entity.counts().result().transfer == 1
    small.run(5)
    assert small.bodies("there") == ["moved"]
    assert entity.counts().result().transfer_dead_letter == 0


def test_what_arrived_is_not_given_up_at_a_source_whose_store_is_full() -> None:
    """However often its removal from the outbox fails: the destination has it."""
    small = SmallWorld(2)
    small.queue("there")
    small.queue("here", forward_to="there")
    places = {small.namespace.entity(name).partitions[0].store.url for name in ("here", "there")}
    assert len(places) == 2
    home = small.namespace.entity("here").partitions[0].store.url
    disk, other = sorted(small.disks, key=lambda disk: disk.name != home)
    small.set_faults(small.disks.index(other), commit_ms=(500.0, 500.0))
    small.sent("here", "moved")
    small.set_faults(small.disks.index(disk), full=1.0)
    small.run(2 * FORWARD_RETRIES * FORWARD_RETRY_MS / 1000)
    small.heal()
    small.run(10)
    assert small.bodies("there") == ["moved"]
    assert small.bodies("here/$Transfer/$DeadLetterQueue") == []
    assert small.namespace.entity("here").counts().result().transfer == 0
    assert small.world.errors == []


def test_a_receiver_gets_what_a_failed_read_has_held_up() -> None:
    small = SmallWorld(1)
    small.queue("q")
    small.sent("q", "a")
    small.restart()
    small.set_faults(0, fail_read=1.0)
    box = small.receive("q", 1)
    small.run(2)
    assert box.got == []
    small.heal()
    small.run(1)
    assert box.bodies == ["a"]


def test_a_scheduled_message_comes_though_the_read_failed_when_it_was_due() -> None:
    small = SmallWorld(1)
    small.queue("q")
    small.sent("q", "later", scheduled_ms=small.world.clock.now().wall_ms + 1_000)
    small.set_faults(0, fail_read=1.0)
    small.run(3)
    small.heal()
    small.run(2)
    assert small.namespace.entity("q").counts().result().scheduled == 0
    assert small.bodies("q") == ["later"]


def test_a_session_is_lost_with_its_store() -> None:
    """Its holder may neither renew it nor set its state, for somebody else may hold it by then."""
    small = SmallWorld(1)
    small.queue("q", requires_session=True)
    small.sent("q", "a", session_id="s")
    source = small.namespace.entity("q").session_source(parse_address("q"))
    box = Inbox(0)
    held = small.answer(source.accept_next("test", 1_000))
    held.receiver = box
    small.disks[0].plan(Fault.FAIL_BEFORE)
    with pytest.raises(PartitionUnavailable):
        small.sent("q", "b", session_id="s")
    assert box.lost
    small.run(5)
    with pytest.raises(SessionLockLost):
        held.renew().result()
    with pytest.raises(SessionLockLost):
        small.do(entity_verbs.set_session_state(small.namespace, held, b"state"))
    again = small.answer(source.accept_next("test", 1_000))
    assert again.id == "s"


def test_who_waits_for_a_session_gets_it_though_reads_are_slow() -> None:
    """Messages that come to a partition which was just asked are not forgotten."""
    small = SmallWorld(2)
    small.queue("q", 4, requires_session=True)
    small.set_faults(0, read_ms=(200.0, 200.0))
    small.set_faults(1, read_ms=(200.0, 200.0))
    source = small.namespace.entity("q").session_source(parse_address("q"))
    waiting = [source.accept_next("test", 60_000) for _ in range(6)]
    for number in range(6):
        small.sent("q", "x", session_id=f"s{number}")
        small.run(0.05)
    small.run(10)
    assert [promise.settled for promise in waiting] == [True] * 6
    assert len({promise.result().id for promise in waiting}) == 6


def test_peeking_on_reaches_every_message_however_large() -> None:
    small = SmallWorld(2)
    small.queue("q", 4)
    for number in range(40):
        small.sent("q", f"{number:02}" + "." * 30_000)
    assert sorted(body[:2] for body in small.bodies("q")) == [f"{number:02}" for number in range(40)]


def test_a_subscription_is_purged_once_though_its_purge_is_tried_twice() -> None:
    """Bodies are shared: giving one back twice takes it from the other subscriptions."""
    small = SmallWorld(1)
    small.create(TopicDescription(path="t"))
    for name in ("stays", "goes"):
        small.do(small.namespace.management.create_subscription(SubscriptionDescription(topic="t", name=name)))
    for number in range(30):
        small.sent("t", f"{number:02}" + "." * 400)
    small.set_faults(0, fail_read=0.5, commit_ms=(300.0, 300.0))
    small.do(small.namespace.management.delete_subscription("t", "goes"))
    small.run(60)
    small.heal()
    small.run(10)
    assert len(small.bodies("t/Subscriptions/stays")) == 30
    assert not [key for key, _ in small.world.catalogue.rows() if key.startswith(TOMBSTONE)]


def test_a_late_answer_of_a_store_that_failed_meanwhile_is_not_used() -> None:
    small = SmallWorld(1)
    small.queue("q", requires_duplicate_detection=True)
    small.sent("q", "first", message_id="same")
    small.restart()
    small.set_faults(0, read_ms=(3_000.0, 3_000.0))
    late = small.send("q", build(b"second", message_id="same"))
    small.run(0.1)
    small.disks[0].faults = QUICK
    small.disks[0].apply()
    small.bus.stores[0].fence(StoreError("on demand"), None)
    small.run(10)
    with pytest.raises(PartitionUnavailable):
        late.result()
    assert small.sent("q", "third", message_id="same") == [0]
    assert small.bodies("q") == ["first"]


def test_who_waits_for_a_session_gets_it_once_reads_are_quick_again() -> None:
    """Reads so slow that every lock has run out before the first page is there."""
    small = SmallWorld(1)
    small.queue("q", requires_session=True, lock_duration_ms=5_000)
    small.sent("q", "x", session_id="s")
    small.restart()
    small.set_faults(0, read_ms=(3_000.0, 3_000.0))
    source = small.namespace.entity("q").session_source(parse_address("q"))
    waiting = source.accept_next("test", 600_000)
    small.run(30)
    assert not waiting.settled
    small.heal()
    small.run(30)
    assert waiting.settled
    assert waiting.result().id == "s"
