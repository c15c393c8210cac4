"""D5: messages scheduled in a transaction; whoever schedules knows their numbers before the commit."""

from __future__ import annotations

import pytest

from polybus.errors import MessageNotFound, PartitionUnavailable, TransactionUnknown
from polybus.message.message import build
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.transaction import Transaction
from polybus.promise import spawn
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.sim_store import Fault

SOON_MS = 5_000


def schedule(core: CoreBus, transaction: Transaction, path: str, *bodies: str) -> list[int]:
    due_ms = core.now().wall_ms + SOON_MS
    messages = [build(body.encode(), partition_key="k", scheduled_ms=due_ms) for body in bodies]
    return core.do(transaction.schedule(core.namespace.entity(path), messages))


def cancel(core: CoreBus, path: str, *numbers: int) -> None:
    core.do(entity_verbs.cancel_scheduled(core.namespace, core.namespace.entity(path), list(numbers)))


def scheduled(core: CoreBus, path: str) -> int:
    return core.namespace.entity(path).counts().result().scheduled


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_d5_the_numbers_cancel_after_the_commit_and_mean_nothing_before(core: CoreBus, partitions: int) -> None:
    core.queue("q", partitions)
    transaction = core.transaction()
    numbers = schedule(core, transaction, "q", "a", "b", "c")
    assert len(set(numbers)) == 3
    assert {number >> 48 for number in numbers} == {core.partition("q", "k").index}
    with pytest.raises(MessageNotFound):
        cancel(core, "q", numbers[0])
    core.commit(transaction)
    assert [number for _, number in core.peeked("q")] == numbers
    cancel(core, "q", numbers[1])
    core.restart()
    cancel(core, "q", numbers[2])
    core.run(SOON_MS / 1000 + 1)
    assert core.bodies("q") == ["a"]


def test_d5_a_rollback_leaves_nothing_and_its_numbers_are_given_to_nobody(core: CoreBus) -> None:
    core.queue("q")
    transaction = core.transaction()
    (lost,) = schedule(core, transaction, "q", "never")
    core.restart()
    (kept,) = core.sent("q", "kept", scheduled_ms=core.now().wall_ms + SOON_MS)
    assert kept > lost
    with pytest.raises(MessageNotFound):
        cancel(core, "q", lost)
    assert core.bodies("q") == ["kept"]


def test_d5_a_schedule_goes_to_another_entity_with_its_number(core: CoreBus) -> None:
    core.queue("home")
    core.queue("away", PARTITIONS)
    transaction = core.transaction()
    core.join(transaction, "home", "here")
    numbers = schedule(core, transaction, "away", "a", "b")
    core.commit(transaction)
    core.run(1)
    assert [number for _, number in core.peeked("away")] == numbers
    cancel(core, "away", numbers[0])
    core.run(SOON_MS / 1000 + 1)
    ((_, sequence),) = core.peeked("away")
    assert core.bodies("away") == ["b"]
    assert sequence not in numbers, "it got its place in the queue when its time had come"


def test_d5_a_schedule_that_is_due_at_the_commit_is_simply_there(core: CoreBus) -> None:
    core.queue("q")
    transaction = core.transaction()
    (reserved,) = schedule(core, transaction, "q", "late")
    core.run(SOON_MS / 1000 + 1)
    core.sent("q", "first")
    core.commit(transaction)
    assert core.bodies("q") == ["first", "late"]
    assert scheduled(core, "q") == 0
    first, late = core.take("q", 2)
    assert late.original_sequence == reserved
    assert reserved < first.sequence < late.sequence


def test_d5_a_store_that_fails_while_numbers_are_reserved(core: CoreBus) -> None:
    core.queue("q")
    core.disks[core.store_of(core.partition("q", "k"))].plan(Fault.FAIL_BEFORE)
    transaction = core.transaction()
    with pytest.raises(PartitionUnavailable):
        schedule(core, transaction, "q", "never")
    core.run(15)
    (number,) = schedule(core, transaction, "q", "kept")
    core.commit(transaction)
    assert core.peeked("q")[0][1] == number
    assert core.bodies("q") == ["kept"]


def test_d5_a_commit_that_overtakes_the_answer_leaves_the_message_out(core: CoreBus) -> None:
    core.queue("q")
    transaction = core.transaction()
    message = build(b"late", scheduled_ms=core.now().wall_ms + SOON_MS)
    answer = spawn(transaction.schedule(core.namespace.entity("q"), [message]))
    core.commit(transaction)
    with pytest.raises(TransactionUnknown):
        core.answer(answer)
    assert scheduled(core, "q") == 0
