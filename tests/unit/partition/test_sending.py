import pytest

from polybus.errors import InvalidOperation, QuotaExceeded
from polybus.message.message import build
from polybus.partition import sending
from tests.unit.partition.kit import body_of, queue


def test_numbers_begin_at_one_and_rise() -> None:
    solo = queue()
    assert [solo.send() for _ in range(3)] == [1, 2, 3]


def test_the_partition_is_in_the_top_sixteen_bits_of_a_number() -> None:
    solo = queue(index=5)
    assert solo.send() == (5 << 48) + 1
    assert solo.get().sequence >> 48 == 5


def test_nobody_sees_a_message_before_its_commit() -> None:
    solo = queue()
    solo.send(commit=False)
    assert solo.take() is None
    assert solo.replies == []
    solo.seal()
    solo.write()
    assert solo.take() is None
    assert solo.replies == []
    solo.land()
    assert solo.said == [1]
    assert solo.take() is not None


def test_a_crash_before_the_commit_leaves_nothing_and_after_it_everything() -> None:
    solo = queue()
    solo.send(b"kept")
    solo.send(b"lost", commit=False)
    solo.crash()
    assert body_of(solo.get()) == b"kept"
    assert solo.take() is None
    assert solo.send(b"next") == 2


def test_a_batch_is_all_or_nothing() -> None:
    solo = queue(sessions=True)
    with pytest.raises(InvalidOperation, match="The SessionId was not set"):
        solo.send_all([build(b"1", session_id="a"), build(b"2")])
    solo.commit()
    assert (solo.rows, solo.broker.log(0).counter) == ({}, 0)
    assert solo.send_all([build(b"1", session_id="a"), build(b"2", session_id="")]) == [1, 2]


def test_an_empty_batch_is_answered_and_stores_nothing() -> None:
    solo = queue()
    assert solo.send_all([]) == []
    assert solo.tables() == ""


def test_the_senders_bytes_are_kept_as_they_came() -> None:
    solo = queue()
    message = build(b"body", message_id="m", subject="s", application={"a": 1})
    solo.send_all([message])
    solo.crash()
    assert solo.get().loaded().raw == message.raw


def test_the_keys_of_a_send_are_those_of_its_rows() -> None:
    solo = queue()
    solo.send_all([build(b"now"), build(b"later", scheduled_ms=solo.now.wall_ms + 1000)])
    assert len(solo.sent_keys) == 2
    assert all(key in solo.rows for key in solo.sent_keys)


def test_a_partition_that_is_full_refuses_and_changes_nothing() -> None:
    solo = queue()
    size = build(b"x").size
    solo.settings.max_bytes = 2 * size
    solo.send_all([build(b"x"), build(b"x")])
    with pytest.raises(QuotaExceeded, match="maximum entity size"):
        solo.send()
    solo.commit()
    assert (solo.log().active, solo.broker.size) == (2, 2 * size)
    solo.complete(solo.get())
    assert solo.send() == 3


def test_numbers_are_not_used_again_after_everything_is_gone_and_the_broker_is_opened_anew() -> None:
    solo = queue()
    solo.send()
    solo.complete(solo.get())
    solo.crash()
    assert solo.send() == 2
    assert solo.get().enqueued_ms == solo.now.wall_ms


def test_time_stamps_never_go_back() -> None:
    solo = queue()
    solo.send()
    first = solo.get().enqueued_ms
    solo.pass_time(-5_000)
    solo.send()
    assert solo.get().enqueued_ms == first
    solo.crash()
    solo.send()
    assert [entry.enqueued_ms for entry in solo.take_all()] == [first] * 3


def test_a_send_needs_no_rows_without_duplicate_detection() -> None:
    solo = queue()
    solo.send(message_id="1")
    solo.crash()
    assert sending.rows_needed(solo.broker, [build(b"", message_id="1")]) == []
