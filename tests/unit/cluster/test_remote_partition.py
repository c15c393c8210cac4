"""The same commands through a partition in this process and through one behind a link give the same history."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from polybus.errors import PartitionUnavailable, PolybusError, SessionLockLost
from polybus.hosting.store_host import InDoubt
from polybus.message import outcome
from polybus.message.message import build
from polybus.namespace.delivery import entity_verbs as operations
from polybus.namespace.delivery.redrive import move_messages
from polybus.namespace.delivery.session_listing import sessions_of
from polybus.namespace.delivery.session_source import HeldSession
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.names import parse_address
from polybus.namespace.pipeline.ranges import RangeReader, partition_logs
from polybus.numbering import partition_of
from polybus.partition.data import Moved
from polybus.partition.kinds import DEAD_LETTER, MAIN
from polybus.promise import Promise
from polybus.rules.selectors import Selector
from tests.support.sim_store import Fault
from tests.support.simulation.small_world import Inbox, SmallWorld, body_of
from tests.unit.cluster.remote_world import RemoteWorld

SECOND = 1.0
STEPS = 70


def shown(delivery: Delivery) -> tuple[object, ...]:
    return (
        body_of(delivery.message),
        delivery.token[:10],  # a lock has a number more where one was taken only to be given back
        delivery.sequence,
        delivery.delivery_count,
        delivery.state,
        delivery.locked_until_ms // 500,
        delivery.enqueued_ms // 500,
        delivery.expires_ms // 100,
        delivery.original_sequence,
        delivery.size,
        delivery.log_id,
        None if delivery.overlay is None else delivery.overlay.to_bytes(),
    )


class SelectingInbox(Inbox):
    selector: Selector


class Player:
    """Plays one history; every choice comes from the seed, so that two players make the same ones."""

    def __init__(self, world: SmallWorld, seed: int, sessions: bool) -> None:
        self.world = world
        self.rng = Random(seed)
        self.sessions = sessions
        settings = {"requires_session": sessions, "lock_duration_ms": 10_500, "max_delivery_count": 3}
        window = {"requires_duplicate_detection": True, "duplicate_detection_history_time_window_ms": 61_500}
        self.entity = world.queue("q", **settings, **(window if seed % 2 else {}))
        world.queue("other")
        self.held: list[Delivery] = []
        self.session: HeldSession | None = None
        self.numbers: list[int] = []
        self.history: list[object] = []

    def play(self) -> list[object]:
        verbs: list[Callable[[], object]] = [
            self.send,
            self.send,
            self.receive,
            self.receive,
            self.receive,
            self.delete_on_receipt,
            self.settle,
            self.settle,
            self.settle,
            self.renew,
            self.peek,
            self.deferred,
            self.put_by,
            self.cancel,
            self.transact,
            self.move,
            self.count,
            self.read,
            self.wait,
            self.lose,
            self.by_token,
            self.stage,
            self.reserve_and_forget,
            self.select,
        ]
        if self.sessions:
            verbs += [self.accept, self.accept, self.accept, self.state, self.list_sessions, self.let_go]
        self._next_second()
        self._next_second()
        for _ in range(STEPS):
            verb = self.rng.choice(verbs)
            try:
                told = verb()
            except PolybusError as error:
                told = (type(error).__name__, str(error))
            self.history.append((verb.__name__, told))
            self._next_second()
        return self.history

    def _next_second(self) -> None:
        """Both players begin each step at the same time; what a link's turns take is less than a step."""
        left_ms = 1000 - self.now() % 1000
        self.world.run(left_ms / 1000)

    def now(self) -> int:
        return self.world.world.clock.now().wall_ms

    # Verbs

    def send(self) -> object:
        count = self.rng.randint(1, 3)
        fields: dict[str, object] = {}
        if self.sessions:
            fields["session_id"] = self.rng.choice("abc")
        if self.rng.random() < 0.2:
            fields["ttl_ms"] = self.rng.choice((1_300, 30_300))
        if self.rng.random() < 0.3:
            fields["message_id"] = f"m{self.rng.randrange(5)}"
        if self.rng.random() < 0.2:
            fields["scheduled_ms"] = self.now() + self.rng.choice((700, 20_300))
        body = f"body{self.rng.randrange(1000)}"
        numbers = self.world.answer(
            self.world.send("q", *(build(f"{body}/{place}".encode(), **fields) for place in range(count)))  # type: ignore[arg-type]
        )
        self.numbers += numbers
        return numbers

    def receive(self) -> object:
        if self.sessions and self.session is None:
            return None
        box = Inbox(self.rng.randint(1, 4))
        return self._receive(box)

    def _receive(self, box: Inbox) -> object:
        wanted = box.credit
        if self.session is not None:
            self.session.receiver = box
            drained = self.session.drained()
        else:
            source = self.entity.source(parse_address("q"))
            source.want(box)
            drained = source.drained()
        self.world.answer(drained)
        self.world.run(0.02)
        if self.session is not None:
            self.session.receiver = None
        else:
            source.forget(box)
        box.credit = 0
        if not box.deletes:
            self.held += box.got
        assert len(box.got) <= wanted
        return [shown(delivery) if not box.deletes else body_of(delivery.message) for delivery in box.got]

    def delete_on_receipt(self) -> object:
        if self.sessions and self.session is None:
            return None
        return self._receive(Inbox(self.rng.randint(1, 2), deletes=True))

    def _one(self) -> Delivery | None:
        return self.held.pop(self.rng.randrange(len(self.held))) if self.held else None

    def settle(self) -> object:
        delivery = self._one()
        kind = self.rng.choice((outcome.COMPLETE, outcome.ABANDON, outcome.DEFER, outcome.DEAD_LETTER, "release"))
        properties: dict[str, object] | None = {"tried": self.rng.randrange(9)} if self.rng.random() < 0.5 else None
        if delivery is None:
            return None
        done: Promise[None] = Promise()
        now = self.world.world.clock.now()
        if kind == "release":
            delivery.partition.release(delivery, now, done.reply, None)
        elif kind == outcome.COMPLETE:
            delivery.partition.complete(delivery, now, done.reply, None)
        else:
            delivery.partition.settle(delivery, now, kind, "why", "so", properties, done.reply, None)
        self.world.answer(done)
        return kind, delivery.sequence

    def renew(self) -> object:
        if self.session is not None:
            return self.world.answer(self.session.renew()) // 500
        return self.world.answer(operations.renew_lock(self.held[0])) // 500 if self.held else None

    def peek(self) -> object:
        session = self.rng.choice("abc") if self.sessions and self.rng.random() < 0.5 else None
        work = operations.peek(self.world.namespace, self.entity, MAIN, 1, self.rng.randint(1, 30), session)
        found = self.world.do(work)
        return [(body_of(each.message), each.marks.sequence, each.marks.state, each.size) for each in found]

    def put_by(self) -> object:
        """Defers a message by its number, whether somebody holds it or not."""
        found = self.world.do(operations.peek(self.world.namespace, self.entity, MAIN, 1, 8, None))
        if not found:
            return None
        number = self.rng.choice(found).marks.sequence

        async def ask() -> Moved:
            return await self.entity.partitions[partition_of(number)].defer_numbers(MAIN, [number])

        told = self.world.do(ask())
        self.numbers += told.moved
        return told.moved, told.missing, told.locked

    def deferred(self) -> object:
        if not self.numbers:
            return None
        number, lock = self.rng.choice(self.numbers), self.rng.random() < 0.7
        work = operations.receive_deferred(self.world.namespace, self.entity, MAIN, [number], lock, self.session)
        found = self.world.do(work)
        if lock:
            self.held += found
        return [shown(delivery) if lock else body_of(delivery.message) for delivery in found]

    def cancel(self) -> object:
        if not self.numbers:
            return None
        number = self.rng.choice(self.numbers)
        self.world.do(operations.cancel_scheduled(self.world.namespace, self.entity, [number]))
        return number

    def transact(self) -> object:
        namespace = self.world.namespace
        transaction = namespace.transactions.declare()
        delivery, fail = self._one(), self.rng.random() < 0.3
        elsewhere = self.rng.random() < 0.5
        body = f"in transaction {self.rng.randrange(99)}".encode()
        if delivery is not None:
            self.world.answer(transaction.settle(self.entity, delivery, self.rng.choice(("complete", "abandon"))))
        message = build(body, session_id="a") if self.sessions else build(body)
        transaction.send(namespace.entity("other") if elsewhere else self.entity, [message])
        self.world.do(namespace.transactions.discharge(transaction, fail))
        return fail, elsewhere, None if delivery is None else delivery.sequence

    def move(self) -> object:
        work = operations.peek(self.world.namespace, self.entity, DEAD_LETTER, 1, 3)
        numbers = [each.marks.sequence for each in self.world.do(work)]
        changed = {numbers[0]: build(b"changed")} if numbers and self.rng.random() < 0.5 else {}
        report = self.world.do(
            move_messages(self.world.namespace, self.entity, DEAD_LETTER, numbers, changed, {}, "other", 0)
        )
        return report.moved, report.missing, report.locked, report.unreachable

    def count(self) -> object:
        other = self.world.namespace.entity("other")
        return [self.world.answer(each.counts()).by_name() for each in (self.entity, other)]

    def read(self) -> object:
        logs = self.world.do(partition_logs(self.entity, MAIN, self.now() - 2_000))
        found = [(log.earliest, log.stable_end, log.at_time, log.messages, log.bytes) for log in logs]
        reader = self.world.do(RangeReader(self.entity.partitions[0], MAIN, 1, 1 << 40).begin())
        rows: list[object] = []
        while not reader.done:
            rows += [
                (row.position, body_of(row.message), row.state) for row in self.world.do(reader.read(10, 1 << 20))
            ]
        return found, rows, reader.missing

    def wait(self) -> object:
        self.world.run(self.rng.choice((0.5, 3 * SECOND, 12 * SECOND)))
        return self.now() // 500

    def lose(self) -> object:
        partition = self.entity.partitions[0]
        lost = self.world.answer(partition.lose_message_locks(MAIN, None))
        return lost + self.world.answer(partition.lose_session_locks(MAIN, None)) if self.sessions else lost

    def by_token(self) -> object:
        if not self.held:
            return None
        token = self.rng.choice(self.held).token
        found = self.world.answer(self.world.namespace.delivery_of(self.entity, MAIN, token))
        flags = self.world.answer(found.partition.are_locked([*self.held, found]))
        return shown(found), flags

    def stage(self) -> object:
        partition, stage_id = self.entity.partitions[0], bytes([self.rng.randrange(256)]) * 16
        session = "a" if self.sessions else None
        messages = [build(f"staged {place}".encode(), session_id=session) for place in range(3)]
        self.world.answer(partition.stage(stage_id, 0, messages))
        if self.rng.random() < 0.3:
            self.world.answer(partition.drop_stage(stage_id))
            return "dropped"
        while self.world.answer(partition.publish_chunk(stage_id)):
            pass
        return self.world.answer(partition.old_stages(self.now() + 1))

    def reserve_and_forget(self) -> object:
        return self.world.answer(self.entity.partitions[0].reserve(2))

    def select(self) -> object:
        """A receiver that wants only one message id, under locks or for good."""
        box = SelectingInbox(self.rng.randint(1, 3), deletes=self.rng.random() < 0.3)
        box.selector = Selector(f"sys.MessageId = 'm{self.rng.randrange(5)}'")
        if self.sessions:
            return None
        source = self.entity.source(parse_address("q"))
        source.want_selected(box)
        self.world.answer(source.drained())
        self.world.run(0.02)
        source.forget_selecting(box)
        if not box.deletes:
            self.held += box.got
        return [shown(each) if not box.deletes else body_of(each.message) for each in box.got]

    # Sessions

    def accept(self) -> object:
        if self.session is not None:
            self.let_go()
        source = self.entity.session_source(parse_address("q"))
        if self.rng.random() < 0.5:
            self.session = self.world.do(source.accept(self.rng.choice("abc"), "player"))
        else:
            self.session = self.world.answer(source.accept_next("player", 1_000))
        return self.session.id, self.session.locked_until_wall_ms // 500

    def let_go(self) -> object:
        session, self.session = self.session, None
        if session is None:
            return None
        session.receiver = None
        session.release()
        return session.id

    def state(self) -> object:
        if self.session is None:
            return None
        if self.rng.random() < 0.6:
            value = self.rng.choice((None, b"", b"state"))
            self.world.do(operations.set_session_state(self.world.namespace, self.session, value))
        return self.world.do(operations.get_session_state(self.world.namespace, self.session))

    def list_sessions(self) -> object:
        listed = self.world.do(operations.list_sessions(self.world.namespace, self.entity, MAIN, 0, 10, None))
        page = self.world.do(sessions_of(self.entity, MAIN, (0, None), 10))

        async def states() -> list[bytes | None]:
            return [
                await partition.peek_session_state(MAIN, name)
                for partition in self.entity.partitions
                for name in "abc"
            ]

        return (
            listed,
            self.world.do(states()),
            [(each.id, each.messages, each.locked, each.holder) for _, each in page.sessions],
        )


@pytest.mark.parametrize("sessions", [False, True], ids=["plain", "sessions"])
@pytest.mark.parametrize("seed", range(12))
def test_both_sides_of_a_link_tell_the_same_history(seed: int, sessions: bool) -> None:
    here = Player(SmallWorld(1), seed, sessions).play()
    there = Player(RemoteWorld(1), seed, sessions).play()
    for local, remote in zip(here, there, strict=True):
        assert remote == local
    assert any(told for _, told in here), "something happened"  # type: ignore[misc]


# What only a link can do


def test_a_link_that_breaks_makes_its_partitions_unavailable() -> None:
    world = RemoteWorld(1)
    world.queue("q")
    world.sent("q", "a")
    waiting = world.send("q", build(b"under way"))
    world.pipe.break_off()
    with pytest.raises(InDoubt):
        world.answer(waiting)
    with pytest.raises(PartitionUnavailable):
        world.sent("q", "b")
    assert world.namespace.entity("q").missing_partitions() == [0]


def test_a_send_without_a_key_whose_owner_is_lost_is_told_to_be_in_doubt() -> None:
    """Only the owner knows its rows, so no other partition can take it over."""
    world = RemoteWorld(2)
    world.queue("q", partitions=2)
    waiting = world.send("q", build(b"under way"))
    world.pipe.break_off()
    with pytest.raises(InDoubt):
        world.answer(waiting)


def test_sends_without_a_key_pass_by_a_partition_whose_store_is_gone() -> None:
    """What the owner has not written for certain another partition takes over, marks included."""
    world = RemoteWorld(2)
    entity = world.queue("q", partitions=2)
    world.disks[0].plan(Fault.FAIL_BEFORE)
    for number in range(6):
        world.sent("q", str(number))
    world.heal()
    assert world.world.run_until(lambda: not entity.missing_partitions(), 60.0, 0.1)
    assert sorted(world.bodies("q")) == list("012345")


def test_sessions_of_a_link_that_breaks_are_free_at_once() -> None:
    world = RemoteWorld(1)
    entity = world.queue("q", requires_session=True)
    world.sent("q", "a", session_id="s")
    held = world.answer(entity.session_source(parse_address("q")).accept_next("here", 1_000))
    box = Inbox(1)
    held.receiver = box
    held.pump()
    world.run(0.1)
    assert box.bodies == ["a"]
    world.pipe.break_off()
    assert box.lost
    host = world.hosts[entity.id, 0]
    again = world.answer(host.accept_session(MAIN, "s", "elsewhere"))
    delivery = host.take_in_session(again, 1)
    assert delivery is not None
    assert (body_of(delivery.message), delivery.delivery_count) == ("a", 1)
    with pytest.raises(SessionLockLost):
        world.answer(held.renew())


def test_what_no_receiver_wants_any_more_goes_back_uncounted() -> None:
    world = RemoteWorld(1)
    entity = world.queue("q")
    source = entity.source(parse_address("q"))
    box = Inbox(5)
    source.want(box)
    world.run(0.1)
    source.forget(box)
    world.sent("q", "a", "b")
    world.run(0.1)
    assert box.got == []
    host = world.hosts[entity.id, 0]
    assert world.answer(host.statistics([0])).logs[0].locked == 0
    again = Inbox(5)
    source.want(again)
    world.run(0.1)
    assert [(body_of(each.message), each.delivery_count) for each in again.got] == [("a", 0), ("b", 0)]


def test_an_owner_whose_store_is_gone_says_so_and_when_it_is_back() -> None:
    world = RemoteWorld(1)
    entity = world.queue("q")
    world.sent("q", "a")
    box = Inbox(10)
    entity.source(parse_address("q")).want(box)
    world.run(0.1)
    (held,) = box.got
    world.take_down(world.disks[0])
    with pytest.raises(PolybusError):
        world.sent("q", "b")
    world.run(0.1)
    assert entity.missing_partitions() == [0]
    world.heal()
    assert world.world.run_until(lambda: not entity.missing_partitions(), 60.0, 0.1)
    world.run(0.1)
    assert [(body_of(each.message), each.token == held.token) for each in box.got[:2]] == [("a", True), ("a", False)]
    done: Promise[None] = Promise()
    held.partition.complete(held, world.world.clock.now(), done.reply, None)
    with pytest.raises(PolybusError, match="lock"):
        world.answer(done)


def test_a_transaction_that_a_link_leaves_behind_is_rolled_back() -> None:
    world = RemoteWorld(1)
    entity = world.queue("q")
    world.sent("q", "a")
    box = Inbox(1)
    entity.source(parse_address("q")).want(box)
    world.run(0.1)
    transaction = world.namespace.transactions.declare()
    world.answer(transaction.settle(entity, box.got[0], "complete"))
    world.pipe.break_off()
    host = world.hosts[entity.id, 0]
    found = world.answer(host.find_locked(MAIN, box.got[0].token))
    done: Promise[None] = Promise()
    host.complete(found, world.world.clock.now(), done.reply, None)
    world.answer(done)


def test_two_gateways_share_one_partition() -> None:
    """One receives in the owner's process, one over a link; neither waits for what the other does not want."""
    world = RemoteWorld(1)
    entity = world.queue("q")
    host = world.hosts[entity.id, 0]
    from polybus.namespace.delivery.source import MessageSource

    beside = MessageSource("q", MAIN, [host])
    far, near = Inbox(3), Inbox(3)
    entity.source(parse_address("q")).want(far)
    beside.want(near)
    world.run(0.1)
    for number in range(6):
        world.sent("q", str(number))
        world.run(0.1)
    assert sorted([*far.bodies, *near.bodies]) == list("012345")
    assert (len(far.got), len(near.got)) == (3, 3)
