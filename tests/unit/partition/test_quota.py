"""The size of a partition: everything that is stored, each thing once, and back to nothing when all is gone."""

import pytest

from polybus.errors import QuotaExceeded
from polybus.message.message import build
from polybus.partition import staging, transactions
from polybus.partition.transactions import Work
from tests.unit.partition.kit import main, queue, topic

SIZE = build(b"x" * 100).size


def test_a_message_counts_in_every_state() -> None:
    solo = queue()
    for _ in range(3):
        solo.send(b"x" * 100)
    first, second, _ = solo.take_all()
    solo.defer(first)
    solo.dead_letter(second)
    assert solo.broker.size == 3 * SIZE
    assert (solo.log().active_bytes, solo.log().deferred_bytes, solo.log(1).active_bytes) == (SIZE, SIZE, SIZE)
    solo.crash()
    assert solo.broker.size == 3 * SIZE


def test_messages_on_their_way_count_at_the_source() -> None:
    solo = queue(forward_to="other")
    solo.routes["other"] = (9, 0)
    solo.send(b"x" * 100)
    assert solo.broker.size == SIZE


def test_small_copies_count_each() -> None:
    solo = topic(1, 2, 3)
    solo.send(b"x" * 100)
    assert solo.broker.size == 3 * SIZE
    for number in (1, 2, 3):
        solo.complete(solo.get(main(number)))
    assert solo.broker.size == 0


def test_what_is_taken_from_a_full_partition_makes_room() -> None:
    solo = queue()
    solo.settings.max_bytes = SIZE
    solo.send(b"x" * 100)
    with pytest.raises(QuotaExceeded):
        solo.send(b"x" * 100)
    solo.complete(solo.get(), commit=False)
    assert solo.send(b"x" * 100) == 2


def test_transactions_and_stages_are_checked_too() -> None:
    solo = queue()
    solo.settings.max_bytes = 2 * SIZE
    message = build(b"x" * 100)
    work = Work()
    work.sends = [message]
    work.transfers = [("other", message), ("other", message)]
    with pytest.raises(QuotaExceeded):
        transactions.commit(solo.broker, work, solo.now, None, solo.reply, None)
    with pytest.raises(QuotaExceeded):
        staging.stage(solo.broker, solo.now, b"s" * 16, 0, [message] * 3, solo.reply, None)
    solo.commit()
    assert solo.tables() == ""
