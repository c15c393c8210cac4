"""A store that moves or whose lease is over, step by step: what is held, in which order, and what no longer leaves."""

from __future__ import annotations

import pytest

from polybus.errors import PartitionUnavailable, StoreError
from polybus.hosting.partition_host import PartitionHost
from polybus.limits import MOVE_HOLD_MS
from polybus.message.message import build
from polybus.partition.kinds import MAIN
from polybus.store.lease import Lease, boot_ns
from tests.support.simulation.small_world import SmallWorld

KEY = "same"


class Moving:
    """A bus on which one store moves when it is told to."""

    def __init__(self) -> None:
        self.small = SmallWorld(1)
        self.moving = False
        self.small.bus.hold_moving(lambda store: self.moving)
        self.entity = self.small.queue("q", 2)

    def go(self) -> None:
        self.moving = True
        self.small.take_down(self.small.disks[0])
        self.small.bus.stores[0].fence(StoreError("it moves"), None)

    def arrive(self) -> None:
        self.small.heal()
        assert self.small.world.run_until(lambda: all(each.available for each in self.entity.partitions), 30, 0.01)
        self.moving = False


def test_sends_to_a_store_that_moves_are_held_and_stored_in_their_order() -> None:
    world = Moving()
    world.go()
    sends = [world.small.send("q", build(str(number).encode(), partition_key=KEY)) for number in range(5)]
    world.small.run(0.1)
    assert not any(send.settled for send in sends)
    world.arrive()
    after = world.small.send("q", build(b"5", partition_key=KEY))
    for send in (*sends, after):
        world.small.answer(send)
    assert world.small.bodies("q") == ["0", "1", "2", "3", "4", "5"]


def test_a_move_that_takes_too_long_refuses_what_it_held() -> None:
    world = Moving()
    world.go()
    send = world.small.send("q", build(b"x", partition_key=KEY))
    world.small.run(MOVE_HOLD_MS / 1000 - 0.1)
    assert not send.settled
    world.small.run(0.2)
    with pytest.raises(PartitionUnavailable, match="moves to another node"):
        send.result()
    world.arrive()
    assert world.small.bodies("q") == [], "what was refused is not stored later"


def test_a_store_that_is_away_and_does_not_move_is_refused_at_once() -> None:
    world = Moving()
    world.go()
    world.moving = False
    with pytest.raises(PartitionUnavailable):
        world.small.send("q", build(b"x", partition_key=KEY))


class Ended(Lease):
    """A lease whose end the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed(boot_ns(), 3600)


def owned() -> tuple[SmallWorld, Ended, PartitionHost]:
    small = SmallWorld(1)
    lease = Ended()
    small.bus.stores[0].lease = lease
    entity = small.queue("q")
    partition = entity.partitions[0]
    assert isinstance(partition, PartitionHost)
    return small, lease, partition


def test_nothing_is_handed_out_when_the_lease_is_over() -> None:
    small, lease, partition = owned()
    small.sent("q", "a", "b")
    first = small.receive("q")
    small.run(0.1)
    assert len(first.got) == 1
    lease.renewed(boot_ns() - 3_000_000_000, 3)
    second = small.receive("q")
    small.run(0.1)
    assert second.got == []
    assert partition.take(MAIN, 1) is None
    with pytest.raises(PartitionUnavailable):
        small.answer(partition.renew(first.got[0]))


def test_no_session_is_given_when_the_lease_is_over() -> None:
    small = SmallWorld(1)
    small.queue("s", requires_session=True)
    small.sent("s", "a", session_id="one")
    partition = small.namespace.entity("s").partitions[0]
    lease = Ended()
    small.bus.stores[0].lease = lease
    held = small.answer(partition.accept_session(MAIN, "one", "me"))
    lease.lost = True
    assert partition.take_in_session(held, 1) is None
    for refused in (partition.renew_session(held), partition.accept_session(MAIN, "two", "me")):
        with pytest.raises(PartitionUnavailable):
            small.answer(refused)
