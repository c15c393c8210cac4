"""The ledger of sends, step by step: what the next owner says of a number, and what may not come after it was asked."""

from __future__ import annotations

import pytest

from polybus.cluster.owner import OwnedSend
from polybus.errors import PartitionUnavailable, PolybusError, StoreError
from polybus.hosting import send_ledger
from polybus.hosting.partition_host import PartitionHost
from polybus.hosting.send_ledger import LEDGER, NotStored, NumberedSends, SendLedger
from polybus.message.message import build
from polybus.partition.reading import scan_rows
from polybus.promise import Promise
from tests.support.simulation.small_world import SmallWorld

SENDER = b"s" * 16


class Owning:
    """A store with a ledger, and a sender elsewhere whose sends come by hand."""

    def __init__(self) -> None:
        self.small = SmallWorld(1)
        self.store = self.small.bus.stores[0]
        self.store.ledger = SendLedger(self.store, self.small.world.loop)
        self.store.ledger.opened()
        self.small.queue("q")

    @property
    def ledger(self) -> SendLedger:
        assert self.store.ledger is not None
        return self.store.ledger

    def send(self, number: int, heard_below: int = 1) -> Promise[list[int]]:
        """As the owner's side of a link does it."""
        partition = self.small.namespace.entity("q").partitions[0]
        assert isinstance(partition, PartitionHost)
        sent = OwnedSend()
        sent.number_in(self.ledger, SENDER, number, heard_below)
        done: Promise[list[int]] = Promise()

        def answered(context: None, result: list[int] | None, error: PolybusError | None) -> None:
            sent.ended(error is None)
            done.reply(context, result, error)

        partition.send([build(f"body {number}".encode())], answered, None, sent)
        return done

    def next_owner(self) -> None:
        """The store is opened by another: memory is gone, rows are there."""
        self.store.fence(StoreError("its owner died"), None)
        assert self.small.world.run_until(lambda: self.store.available, 30, 0.01)
        self.small.run(1)

    def stored(self, number: int) -> list[int] | None:
        return self.small.answer(self.ledger.stored(SENDER, number))

    def rows(self) -> int:
        return len(self.small.answer(self.store.run(scan_rows(LEDGER))))


def test_the_next_owner_knows_what_was_stored_and_what_was_not() -> None:
    owning = Owning()
    numbers = [owning.small.answer(owning.send(number)) for number in (1, 2)]
    owning.next_owner()
    assert [owning.stored(1), owning.stored(2), owning.stored(3)] == [*numbers, None]


def test_a_batch_has_one_row_and_rows_go_when_their_sender_has_heard() -> None:
    owning = Owning()
    for answer in [owning.send(number) for number in range(1, 11)]:
        owning.small.answer(answer)
    assert owning.rows() == 1
    for number in range(11, 15):
        owning.small.answer(owning.send(number, heard_below=number))
    assert owning.rows() <= 2
    assert owning.stored(14) is not None
    owning.ledger.forget([])
    owning.small.run(0.1)
    assert owning.rows() == 0


def test_what_was_denied_cannot_come_later() -> None:
    owning = Owning()
    assert owning.stored(5) is None
    with pytest.raises(PartitionUnavailable):
        owning.send(5)
    owning.small.answer(owning.send(6))
    assert owning.small.bodies("q") == ["body 6"]


def test_a_send_that_is_under_way_is_waited_for() -> None:
    owning = Owning()
    sending = owning.send(1)
    asked = owning.ledger.stored(SENDER, 1)
    assert not asked.settled
    assert owning.small.answer(asked) == owning.small.answer(sending)


def test_the_sender_asks_until_somebody_can_tell() -> None:
    owning = Owning()
    refusals = 3

    def ask(sender: bytes, number: int) -> Promise[list[int] | None]:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            refused: Promise[list[int] | None] = Promise()
            refused.reject(PartitionUnavailable("nobody owns it"))
            return refused
        return owning.ledger.stored(sender, number)

    sends = NumberedSends(SENDER, owning.small.world.loop, ask)
    first, second = sends.begin(), sends.begin()
    owning.small.answer(owning.send(first))
    assert owning.small.answer(sends.settle(first))
    assert sends.heard_below == second
    with pytest.raises(NotStored):
        owning.small.answer(sends.settle(second))
    assert sends.heard_below == second + 1


def test_bugs_that_are_planted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these loses or doubles a send; one of the tests above must notice."""
    planted = {
        "numbers are not written": ("written", lambda self, sender, number: None),
        "rows are not read": ("_load", _nothing),
        "the denied may come": ("begins", lambda self, sender, number, heard: None),
    }
    checks = (test_the_next_owner_knows_what_was_stored_and_what_was_not, test_what_was_denied_cannot_come_later)
    for name, (attribute, value) in planted.items():
        with monkeypatch.context() as patched:
            patched.setattr(send_ledger.SendLedger, attribute, value)
            found = 0
            for check in checks:
                try:
                    check()
                except (AssertionError, pytest.fail.Exception):
                    found += 1
            assert found, name


async def _nothing(ledger: SendLedger) -> None:
    del ledger
