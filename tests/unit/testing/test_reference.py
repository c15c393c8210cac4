"""The reference bus keeps the promises that the verifier holds others to."""

from __future__ import annotations

import pytest

from polybus.errors import (
    MessageLockLost,
    MessageNotFound,
    PartitionUnavailable,
    SessionCannotBeLocked,
    SessionLockLost,
)
from polybus.testing.history import FAILED, OK, UNKNOWN, Op
from polybus.testing.verifier import EntityOptions
from polybus.testing.verifier.contents import ACTIVE, DEAD_LETTER, DEFERRED, LOCKED, SCHEDULED
from tests.support.reference import Delivery, Message, ReferenceBus, Ticket
from tests.support.sim_loop import SimClock, SimLoop


class Bench:
    def __init__(self, **options: object) -> None:
        options.setdefault("lock_ms", 1_000)
        self.loop = SimLoop(1)
        self.clock = SimClock(self.loop, wall_ms=0)
        self.bus = ReferenceBus({"q": EntityOptions(**options)}, self.clock)  # type: ignore[arg-type]

    def send(self, *ids: str, **values: object) -> Ticket:
        ticket = self.bus.send("q", [Message(name, **values) for name in ids])  # type: ignore[arg-type]
        self.sync()
        return ticket

    def sync(self) -> None:
        for partition in self.bus.partitions["q"]:
            if partition.up:
                partition.sync()

    def receive(self, state: str = ACTIVE) -> Delivery:
        delivery = self.bus.receive("q", state)
        assert delivery is not None
        return delivery

    def settle(self, delivery: Delivery, how: str) -> str | None:
        ticket = self.bus.settle(delivery.token, how)
        self.sync()
        return ticket.outcome

    def states(self) -> dict[str, str]:
        return {message.message_id: message.state for message in self.bus.contents().entities["q"].messages}


def test_an_acknowledged_send_survives_a_restart_and_a_waiting_one_may() -> None:
    for written, stored in ((0, {"m"}), (1, {"m", "n"})):
        bench = Bench()
        assert bench.send("m").outcome == OK
        waiting = bench.bus.send("q", [Message("n")])
        assert waiting.outcome is None
        bench.bus.restart({("q", 0): written})
        assert waiting.outcome == UNKNOWN
        assert set(bench.states()) == stored


def test_locks_end_with_time_and_with_the_process() -> None:
    bench = Bench()
    bench.send("m")
    first = bench.receive()
    assert bench.bus.receive("q") is None
    bench.loop.run_for(0.9)
    bench.bus.renew(first.token)
    bench.loop.run_for(0.9)
    assert bench.bus.receive("q") is None
    bench.loop.run_for(0.2)
    second = bench.receive()
    assert second.message.count == 1
    assert bench.settle(first, Op.COMPLETE) == FAILED
    bench.bus.restart({})
    assert bench.settle(second, Op.COMPLETE) == FAILED
    with pytest.raises(MessageLockLost):
        bench.bus.renew(second.token)
    assert bench.settle(bench.receive(), Op.COMPLETE) == OK
    assert bench.states() == {}


@pytest.mark.parametrize(
    ("how", "state"), [(Op.ABANDON, ACTIVE), (Op.DEFER, DEFERRED), (Op.DEAD_LETTER, DEAD_LETTER)]
)
def test_settlements_move_messages_and_counters(how: str, state: str) -> None:
    bench = Bench()
    bench.send("m")
    delivery = bench.receive()
    assert bench.states() == {"m": LOCKED}
    assert bench.settle(delivery, how) == OK
    assert bench.states() == {"m": state}
    counters = bench.bus.contents().entities["q"].counters
    assert counters == {**dict.fromkeys(counters, 0), state: 1, "total": 1}


def test_the_last_attempt_dead_letters() -> None:
    bench = Bench(max_delivery_count=2)
    bench.send("m")
    bench.settle(bench.receive(), Op.ABANDON)
    bench.settle(bench.receive(), Op.ABANDON)
    assert bench.states() == {"m": DEAD_LETTER}
    assert bench.settle(bench.receive(DEAD_LETTER), Op.COMPLETE) == OK


def test_deferred_messages_come_by_number() -> None:
    bench = Bench()
    bench.send("m")
    delivery = bench.receive()
    bench.settle(delivery, Op.DEFER)
    assert bench.bus.receive("q") is None
    again = bench.bus.receive_deferred("q", delivery.message.number)
    with pytest.raises(MessageNotFound):
        bench.bus.receive_deferred("q", delivery.message.number)
    assert bench.settle(again, Op.COMPLETE) == OK


def test_schedules_become_active_under_a_new_number_or_are_cancelled() -> None:
    bench = Bench()
    kept = bench.send("m", due_ms=5_000).answer[0]
    gone = bench.send("n", due_ms=5_000).answer[0]
    assert bench.states() == {"m": SCHEDULED, "n": SCHEDULED}
    cancel = bench.bus.cancel("q", gone)
    bench.sync()
    assert cancel.outcome == OK
    assert bench.bus.receive("q") is None
    bench.loop.run_for(5.0)
    assert bench.receive().message.number > kept


def test_duplicates_are_accepted_and_dropped_also_after_a_restart() -> None:
    bench = Bench(dedup_window_ms=1_000, partitions=4)
    bench.send("m")
    bench.bus.restart({})
    assert bench.send("m").outcome == OK
    assert len(bench.bus.contents().entities["q"].messages) == 1
    bench.loop.run_for(1.0)
    bench.send("m")
    assert len(bench.bus.contents().entities["q"].messages) == 2


def test_expired_messages_go() -> None:
    bench = Bench(ttl_ms=1_000)
    bench.send("m")
    bench.loop.run_for(1.0)
    assert bench.bus.receive("q") is None
    assert bench.states() == {}


def test_a_session_has_one_holder_and_keeps_its_order() -> None:
    bench = Bench(sessions=True, partitions=4)
    bench.send("m", "n", session="s")
    partition = bench.bus.home("q", "s")
    lock = partition.accept("s")
    with pytest.raises(SessionCannotBeLocked):
        partition.accept("s")
    first = partition.receive(ACTIVE, lock)
    assert first is not None
    bench.settle(first, Op.ABANDON)
    again = partition.receive(ACTIVE, lock)
    assert again is not None
    assert (first.message.message_id, again.message.message_id) == ("m", "m")
    bench.loop.run_for(1.0)
    with pytest.raises(SessionLockLost):
        partition.renew_session(lock)
    assert partition.accept("s") is not lock


def test_a_transaction_is_all_or_nothing() -> None:
    bench = Bench()
    bench.send("old")
    delivery = bench.receive()
    bench.bus.declare("t")
    bench.bus.join("t", "q", Op.COMPLETE, delivery.token)
    bench.bus.join("t", "q", Op.SEND, Message("new"))
    assert bench.states() == {"old": LOCKED}
    ticket = bench.bus.commit("t")
    bench.sync()
    assert (ticket.outcome, bench.states()) == (OK, {"new": ACTIVE})

    delivery = bench.receive()
    bench.bus.declare("u")
    bench.bus.join("u", "q", Op.COMPLETE, delivery.token)
    bench.bus.join("u", "q", Op.SEND, Message("newer"))
    bench.loop.run_for(1.0)
    ticket = bench.bus.commit("u")
    bench.sync()
    assert (ticket.outcome, bench.states()) == (FAILED, {"new": ACTIVE})


def test_a_key_needs_its_partition_and_a_send_without_one_moves() -> None:
    bench = Bench(partitions=2)
    index = bench.bus.home("q", "k").index
    keyed = bench.bus.send("q", [Message("m", key="k")])
    free = [bench.bus.send("q", [Message(name)]) for name in ("n", "o")]
    bench.bus.fence("q", index, written=9)
    assert keyed.outcome == UNKNOWN
    assert [ticket.outcome for ticket in free] == [OK, OK]
    with pytest.raises(PartitionUnavailable):
        bench.bus.send("q", [Message("p", key="k")])
    bench.bus.recover("q", index)
    messages = bench.bus.contents().entities["q"].messages
    assert sorted(message.message_id for message in messages) == ["m", "n", "o"]
