import pytest

from polybus.errors import InvalidOperation, MessageLockLost, QuotaExceeded, SessionLockLost
from polybus.message.message import build
from polybus.message.outcome import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from polybus.partition import settling, transactions
from polybus.partition.entry import Entry
from polybus.partition.transactions import Work
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, topic
from tests.unit.partition.solo import Solo


def hold(solo: Solo, work: Work, entry: Entry, outcome: str, **more: str) -> None:
    transactions.hold(solo.broker, work, entry.log, entry.lock, solo.now, outcome, **more)  # type: ignore[arg-type]


def commit(solo: Solo, work: Work, sync: bool = True) -> None:
    transactions.commit(solo.broker, work, solo.now, None, solo.reply, "commit")
    if sync:
        solo.commit()


def full_work(solo: Solo) -> Work:
    """A work with every kind of effect; the queue holds four messages."""
    solo.routes["other"] = (9, 0)
    for number in range(4):
        solo.send(b"%d" % number)
    work = Work()
    outcomes = (COMPLETE, ABANDON, DEFER, DEAD_LETTER)
    for entry, outcome in zip(solo.take_all(), outcomes, strict=True):
        hold(solo, work, entry, outcome)
    work.sends = [build(b"sent"), build(b"later", scheduled_ms=solo.now.wall_ms + 1000)]
    work.transfers = [("other", build(b"away"))]
    return work


def state(solo: Solo) -> tuple[int, ...]:
    broker, log = solo.broker, solo.log()
    return log.active, log.deferred, solo.log(1).active, broker.scheduled, broker.transfers


def test_everything_happens_with_the_commit() -> None:
    solo = queue()
    work = full_work(solo)
    solo.commit()
    assert state(solo) == (4, 0, 0, 0, 0)
    commit(solo, work)
    assert solo.replies[-1] == ("commit", None, None)
    for _ in range(2):
        assert state(solo) == (2, 1, 1, 1, 1)
        assert [(body_of(entry), entry.delivery_count) for entry in solo.take_all()] == [(b"1", 1), (b"sent", 0)]
        solo.crash()


def test_or_nothing_when_it_crashes_before() -> None:
    solo = queue()
    work = full_work(solo)
    commit(solo, work, sync=False)
    assert solo.replies[-1][0] != "commit"
    solo.crash()
    assert state(solo) == (4, 0, 0, 0, 0)
    assert [entry.delivery_count for entry in solo.take_all()] == [0] * 4


def test_rolling_back_leaves_the_locks_as_they_are() -> None:
    solo = queue()
    work = full_work(solo)
    entry = work.settlements[0].entry
    transactions.roll_back(work)
    assert solo.log().locked == 4
    solo.complete(entry)
    assert solo.log().active == 3


def test_a_message_that_is_held_can_be_settled_by_nobody_else_but_its_lock_renewed() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    work = Work()
    hold(solo, work, entry, COMPLETE)
    for verb in (solo.complete, solo.abandon, solo.release):
        with pytest.raises(InvalidOperation):
            verb(entry)  # type: ignore[operator]
    with pytest.raises(InvalidOperation):
        hold(solo, Work(), entry, ABANDON)
    solo.pass_time(LOCK_MS - 1)
    settling.renew(solo.broker, entry.log, entry.lock, solo.now)
    solo.move(LOCK_MS - 1)
    commit(solo, work)
    assert solo.tables() == ""


@pytest.mark.parametrize("swept", [True, False])
def test_a_lock_that_is_lost_meanwhile_fails_the_whole_commit(swept: bool) -> None:
    solo = queue()
    solo.send(b"1")
    work = Work()
    hold(solo, work, solo.get(), COMPLETE)
    work.sends = [build(b"2")]
    solo.pass_time(LOCK_MS)
    if swept:
        solo.move(0)
    with pytest.raises(MessageLockLost):
        commit(solo, work)
    transactions.roll_back(work)
    solo.move(0)
    assert [(body_of(entry), entry.delivery_count) for entry in solo.take_all()] == [(b"1", 1)]


def test_a_session_lost_meanwhile_fails_it_too() -> None:
    solo = queue(sessions=True)
    solo.send(b"1", session_id="a")
    session = solo.accept("a")
    entry = solo.take_from(session)
    assert entry is not None
    work = Work()
    hold(solo, work, entry, COMPLETE)
    solo.release_session(session)
    with pytest.raises(SessionLockLost):
        commit(solo, work)
    assert solo.log().active == 1


def test_what_cannot_be_sent_fails_it_before_anything_is_settled() -> None:
    solo = queue()
    solo.send(b"1")
    entry = solo.get()
    work = Work()
    hold(solo, work, entry, COMPLETE)
    work.sends = [build(b"2")]
    solo.settings.max_bytes = 10
    with pytest.raises(QuotaExceeded):
        commit(solo, work)
    solo.commit()
    assert (solo.log().active, solo.log().locked, entry.transaction) == (1, 1, work)


def test_a_dead_letter_cannot_die_in_a_transaction() -> None:
    solo = queue()
    solo.send()
    solo.dead_letter(solo.get())
    with pytest.raises(InvalidOperation):
        hold(solo, Work(), solo.get(1), DEAD_LETTER)


def test_reasons_and_properties_are_kept() -> None:
    solo = queue()
    solo.send()
    work = Work()
    hold(solo, work, solo.get(), DEAD_LETTER, reason="r", description="d")
    commit(solo, work)
    overlay = solo.get(1).overlay
    assert overlay is not None
    assert overlay.application == {"DeadLetterReason": "r", "DeadLetterErrorDescription": "d"}


def test_duplicates_are_told_in_a_transaction() -> None:
    solo = queue()
    solo.settings.duplicate_window_ms = 60_000
    solo.send(message_id="a")
    work = Work()
    work.sends = [build(b"", message_id="a"), build(b"", message_id="b"), build(b"", message_id="b")]
    commit(solo, work)
    assert solo.log().active == 2


def test_on_a_topic_copies_are_settled_and_messages_published() -> None:
    solo = topic(1, 2)
    solo.send(b"1")
    work = Work()
    hold(solo, work, solo.get(main(1)), COMPLETE)
    work.sends = [build(b"2")]
    commit(solo, work)
    assert [body_of(entry) for entry in solo.take_all(main(1))] == [b"2"]
    assert [body_of(entry) for entry in solo.take_all(main(2))] == [b"1", b"2"]
