"""G: the operations that AMQP offers, on partitioned entities, as the gateway asks the namespace for them."""

from __future__ import annotations

import pytest

from polybus.errors import MessageLockLost, MessageNotFound, SessionLockLost
from polybus.message.message import build
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.rule import RuleDescription, SqlFilterDescription
from tests.requirements.core.core_bus import PARTITIONS, CoreBus

LOCK_MS = 60_000


def test_g1_send_and_receive(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    core.sent("q", "one")
    assert core.drain("q") == ["one"]
    assert core.namespace.entity("q").counts().result().total == 0


def test_g2_a_batch_goes_to_one_partition_as_a_whole(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    batches = [core.answer(core.send("q", *(build(f"{b} {n}".encode()) for n in range(5)))) for b in range(4)]
    partitions = [{number >> 48 for number in batch} for batch in batches]
    assert [len(each) for each in partitions] == [1] * 4
    assert len(set.union(*partitions)) == 4
    assert len(core.bodies("q")) == 20


def test_g3_a_batch_is_received_from_many_partitions(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for number in range(3 * PARTITIONS):
        core.sent("q", str(number))
    for _ in range(3):
        got = core.take("q", PARTITIONS)
        assert sorted(delivery.sequence >> 48 for delivery in got) == list(range(PARTITIONS))


def test_g4_deferred_messages_are_received_by_number(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for number in range(PARTITIONS):
        core.sent("q", str(number))
    numbers = []
    for delivery in core.take("q", PARTITIONS):
        core.defer(delivery)
        numbers.append(delivery.sequence)
    core.restart()
    for number in numbers:
        (back,) = core.deferred("q", [number])
        assert back.sequence == number
        core.complete(back)
    with pytest.raises(MessageNotFound):
        core.deferred("q", numbers[:1])


def test_g5_a_peek_shows_everything_and_locks_nothing(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for number in range(PARTITIONS):
        core.sent("q", str(number))
    everything = [str(number) for number in range(PARTITIONS)]
    assert sorted(core.bodies("q"), key=int) == everything
    taken = core.take("q", PARTITIONS)
    assert len(taken) == PARTITIONS
    core.defer(taken[0])
    assert sorted(core.bodies("q"), key=int) == everything, "what is locked or deferred as well"


def test_g6_a_renewed_lock_holds_and_an_old_one_does_not(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, lock_duration_ms=LOCK_MS)
    for body in ("renewed", "forgotten"):
        core.sent("q", body)
    renewed, forgotten = core.take("q", 2)
    core.run(40)
    until_ms = core.answer(entity_verbs.renew_lock(renewed))
    assert until_ms == core.now().wall_ms + LOCK_MS
    core.run(40)
    core.complete(renewed)
    with pytest.raises(MessageLockLost):
        core.complete(forgotten)


def test_g7_g8_schedule_and_cancel(core: CoreBus) -> None:
    entity = core.queue("q", PARTITIONS)
    due_ms = core.now().wall_ms + 3_600_000
    messages = [build(str(number).encode(), scheduled_ms=due_ms) for number in range(PARTITIONS)]
    numbers = [core.answer(entity_verbs.schedule(core.namespace, entity, [message]))[0] for message in messages]
    assert sorted(number >> 48 for number in numbers) == list(range(PARTITIONS))
    core.do(entity_verbs.cancel_scheduled(core.namespace, entity, numbers[:4]))
    with pytest.raises(MessageNotFound):
        core.do(entity_verbs.cancel_scheduled(core.namespace, entity, numbers[:1]))
    assert core.take("q") == []
    core.world.advance(3_600_000)
    assert sorted(core.drain("q"), key=int) == [str(number) for number in range(4, PARTITIONS)]


def test_g9_g10_add_and_remove_rules(core: CoreBus) -> None:
    core.topic("t", PARTITIONS)
    core.subscribe("t", "s")
    red = RuleDescription(name="red", filter=SqlFilterDescription(expression="colour = 'red'"))
    core.do(core.namespace.management.create_rule("t", "s", red))
    core.do(core.namespace.management.delete_rule("t", "s", "$Default"))
    for colour in ["red", "blue"] * PARTITIONS:
        core.sent("t", colour, application={"colour": colour})
    assert core.drain("t/Subscriptions/s") == ["red"] * PARTITIONS


def test_g11_a_renewed_session_lock_holds_and_an_old_one_does_not(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, requires_session=True, lock_duration_ms=LOCK_MS)
    core.sent("q", "x", session_id="s")
    core.sent("q", "y", session_id="t")
    (held, box), (other, lost) = core.accept("q", "s"), core.accept("q", "t")
    core.run(40)
    core.answer(held.renew())
    core.run(40)
    assert core.take_in_session(held, box, 1) == ["x"]
    assert lost.lost
    with pytest.raises(SessionLockLost):
        core.answer(other.renew())


def test_g12_g13_session_state_is_set_and_got(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, requires_session=True)
    sessions = [f"session {number}" for number in range(PARTITIONS)]
    for session in sessions:
        held, _ = core.accept("q", session)
        assert core.do(entity_verbs.get_session_state(core.namespace, held)) is None
        core.do(entity_verbs.set_session_state(core.namespace, held, session.encode()))
        held.release()
    core.restart()
    for session in sessions:
        held, _ = core.accept("q", session)
        assert core.do(entity_verbs.get_session_state(core.namespace, held)) == session.encode()


def test_g14_sessions_are_enumerated_over_all_partitions(core: CoreBus) -> None:
    entity = core.queue("q", PARTITIONS, requires_session=True)
    sessions = sorted(f"session {number}" for number in range(30))
    for session in sessions:
        core.sent("q", "x", session_id=session)
    log_id = entity.log_id(parse_address("q"))

    def listed(skip: int, top: int) -> list[str]:
        return core.do(entity_verbs.list_sessions(core.namespace, entity, log_id, skip, top, None))

    assert sorted(listed(0, 100)) == sessions
    assert sorted(name for skip in range(0, 30, 7) for name in listed(skip, 7)) == sessions
