import pytest

from polybus.errors import InvalidOperation, MessageLockLost, MessageNotFound, SessionCannotBeLocked, SessionLockLost
from polybus.partition import session_verbs, settling, upkeep
from polybus.partition.broker import NOT_DUE
from polybus.partition.entry import Entry
from polybus.partition.sessions import Session
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, tiny, topic
from tests.unit.partition.solo import Solo


def bus(*sent: tuple[str, bytes]) -> Solo:
    solo = queue(sessions=True)
    for session_id, body in sent:
        solo.send(body, session_id=session_id)
    return solo


def bodies(solo: Solo, session: Session, lock: bool = True) -> list[object]:
    found = []
    while (entry := solo.take_from(session, lock)) is not None:
        found.append(body_of(entry))
    return found


def get(solo: Solo, session: Session) -> Entry:
    entry = solo.take_from(session)
    assert entry is not None
    return entry


def test_a_session_gives_its_own_messages_in_order() -> None:
    solo = bus(("a", b"1"), ("b", b"2"), ("a", b"3"), ("", b"4"))
    assert bodies(solo, solo.accept("a")) == [b"1", b"3"]
    assert bodies(solo, solo.accept("")) == [b"4"]
    assert solo.take() is None


def test_it_is_held_by_one_at_a_time() -> None:
    solo = bus(("a", b"1"))
    session = solo.accept("a")
    with pytest.raises(SessionCannotBeLocked):
        solo.accept("a", "other")
    assert solo.accept_next("other") is None
    solo.release_session(session)
    assert solo.accept("a", "other").holder == "other"


def test_a_session_without_messages_can_be_accepted_and_gets_what_comes() -> None:
    solo = bus()
    session = solo.accept("a")
    assert bodies(solo, session) == []
    solo.send(b"1", session_id="a")
    assert bodies(solo, session) == [b"1"]
    assert session_verbs.book(solo.log()).touched == {"a": session}


def test_an_abandoned_message_comes_before_everything_behind_it_even_before_its_commit() -> None:
    solo = bus(("a", b"1"), ("a", b"2"), ("a", b"3"))
    session = solo.accept("a")
    first, second = get(solo, session), get(solo, session)
    solo.abandon(first, commit=False)
    assert solo.take_from(session) is None
    solo.abandon(second, commit=False)
    solo.commit()
    again = get(solo, session)
    assert (body_of(again), again.delivery_count) == (b"1", 1)
    assert bodies(solo, session) == [b"2", b"3"]


def test_one_that_dies_on_its_way_back_holds_nobody_up() -> None:
    solo = queue(sessions=True, max_delivery_count=1)
    solo.send(b"1", session_id="a")
    solo.send(b"2", session_id="a")
    session = solo.accept("a")
    solo.abandon(get(solo, session), commit=False)
    assert bodies(solo, session) == [b"2"]


def test_one_that_expires_on_its_way_back_holds_nobody_up() -> None:
    solo = bus()
    solo.send(b"1", session_id="a", ttl_ms=1000)
    solo.send(b"2", session_id="a")
    session = solo.accept("a")
    entry = get(solo, session)
    solo.pass_time(2000)
    solo.abandon(entry, commit=False)
    session_verbs.book(solo.log()).touched.clear()
    solo.upkeep()
    assert session_verbs.book(solo.log()).touched == {"a": session}
    assert bodies(solo, session) == [b"2"]


def test_locks_of_messages_are_the_sessions_lock() -> None:
    solo = bus(("a", b"1"))
    session = solo.accept("a")
    solo.pass_time(1000)
    entry = get(solo, session)
    assert entry.locked_until_ms == session.until_ms == solo.now.mono_ms - 1000 + LOCK_MS
    with pytest.raises(InvalidOperation):
        settling.renew(solo.broker, solo.log(), entry.lock, solo.now)
    until = session_verbs.renew(solo.log(), session, solo.now)
    assert until == entry.locked_until_wall_ms == solo.now.wall_ms + LOCK_MS
    solo.pass_time(LOCK_MS - 1)
    solo.complete(entry)
    assert solo.tables() == ""


def test_settling_does_not_renew_it() -> None:
    solo = bus(("a", b"1"), ("a", b"2"))
    session = solo.accept("a")
    until = session.until_ms
    solo.pass_time(1000)
    solo.complete(get(solo, session))
    get(solo, session)
    assert session.until_ms == until


def test_when_the_lock_runs_out_all_comes_back_counted_and_the_session_is_free() -> None:
    solo = bus(("a", b"1"), ("a", b"2"), ("a", b"3"))
    session = solo.accept("a")
    entry, _ = get(solo, session), get(solo, session)
    assert upkeep.next_due(solo.broker, solo.now) == LOCK_MS
    assert solo.move(LOCK_MS) == [session]
    assert session.lost
    with pytest.raises(SessionLockLost):
        solo.complete(entry)
    again = solo.accept_next("other")
    assert again is not None
    assert [get(solo, again).delivery_count for _ in range(3)] == [1, 1, 0]


def test_a_lock_that_has_run_out_gives_and_settles_nothing_even_before_the_upkeep() -> None:
    solo = bus(("a", b"1"), ("a", b"2"))
    session = solo.accept("a")
    entry = get(solo, session)
    solo.pass_time(LOCK_MS)
    assert solo.take_from(session) is None
    with pytest.raises(SessionLockLost):
        solo.complete(entry)
    with pytest.raises(SessionLockLost):
        session_verbs.require_held(solo.log(), "a", solo.now)


def test_holding_knows_the_holder() -> None:
    solo = bus()
    holder = object()
    session = solo.accept("a", holder)
    assert session_verbs.require_held(solo.log(), "a", solo.now, holder) is session
    assert session_verbs.require_held(solo.log(), "a", solo.now) is session
    for other in ("a", "b"):
        with pytest.raises(SessionLockLost):
            session_verbs.require_held(solo.log(), other, solo.now, "somebody")


def test_release_counts_what_was_delivered_unless_it_never_left() -> None:
    solo = bus(("a", b"1"), ("a", b"2"))
    session = solo.accept("a")
    get(solo, session)
    solo.release_session(session, count=False)
    session = solo.accept("a")
    assert get(solo, session).delivery_count == 0
    solo.release_session(session)
    session = solo.accept("a")
    assert [get(solo, session).delivery_count for _ in range(2)] == [1, 0]
    assert solo.log().locked == 2


def test_releasing_twice_is_harmless() -> None:
    solo = bus(("a", b"1"))
    session = solo.accept("a")
    solo.release_session(session)
    other = solo.accept("a", "other")
    solo.release_session(session)
    assert session_verbs.book(solo.log()).held == {"a": other}


def test_a_crash_frees_every_session() -> None:
    solo = bus(("a", b"1"))
    get(solo, solo.accept("a"))
    solo.crash()
    session = solo.accept("a", "other")
    assert get(solo, session).delivery_count == 0


def test_receive_and_delete() -> None:
    solo = bus(("a", b"1"), ("a", b"2"))
    assert bodies(solo, solo.accept("a"), lock=False) == [b"1", b"2"]
    solo.commit()
    assert solo.tables() == ""


def test_deferred_messages_belong_to_their_session() -> None:
    solo = bus(("a", b"1"), ("b", b"2"))
    first = solo.accept("a")
    solo.defer(get(solo, first))
    second = solo.accept("b")
    steps = session_verbs.take_deferred
    with pytest.raises(MessageNotFound):
        solo.run(steps(solo.broker, solo.log(), second, solo.now, [1], True))
    entry = solo.run(steps(solo.broker, solo.log(), first, solo.now, [1], True))[0]
    assert (entry.locked_until_ms, list(first.outstanding)) == (first.until_ms, [1])
    session_verbs.renew(solo.log(), first, solo.now)
    solo.complete(entry)
    assert first.outstanding == {}
    assert solo.log().deferred == 0


def test_a_deferred_message_stays_deferred_when_its_session_is_given_back() -> None:
    for count in (True, False):
        solo = bus(("a", b"1"))
        session = solo.accept("a")
        solo.defer(get(solo, session))
        solo.run(session_verbs.take_deferred(solo.broker, solo.log(), session, solo.now, [1], True))
        solo.release_session(session, count)
        assert (solo.log().active, solo.log().deferred, solo.log().locked) == (0, 1, 0)
        assert solo.accept_next() is None
        session = solo.accept("a")
        entries = solo.run(session_verbs.take_deferred(solo.broker, solo.log(), session, solo.now, [1], False))
        assert entries[0].delivery_count == int(count)


def test_without_the_session_they_cannot_be_locked() -> None:
    solo = bus(("a", b"1"))
    session = solo.accept("a")
    solo.defer(get(solo, session))
    with pytest.raises(InvalidOperation):
        solo.take_deferred(1)


def test_long_sessions_are_paged_in_order() -> None:
    solo = tiny(queue(sessions=True), 2)
    for number in range(9):
        solo.send(b"%d" % number, session_id="a")
    session = solo.accept("a")
    assert len(session.ready) <= 2
    entry = get(solo, session)
    assert solo.take_from(session) is not None
    solo.abandon(entry)
    assert bodies(solo, session) == [b"0", *(b"%d" % number for number in range(2, 9))]


def test_a_session_whose_messages_are_large_holds_few_of_them() -> None:
    solo = tiny(queue(sessions=True), 100, size=1000)
    for number in range(6):
        solo.send(b"%d" % number + b"x" * 600, session_id="a")
    session = solo.accept("a")
    assert len(session.ready) == 2
    assert len(bodies(solo, session)) == 6


def test_sessions_of_a_subscription() -> None:
    solo = topic(1)
    solo.settings.subscriptions[1].requires_session = True
    solo.crash()
    solo.send(b"1", session_id="a")
    session = solo.accept_next(log_id=main(1))
    assert session is not None
    entry = solo.take_from(session, log_id=main(1))
    assert entry is not None
    assert body_of(entry) == b"1"


def test_memory_holds_only_held_sessions() -> None:
    solo = bus(("a", b"1"), ("a", b"2"), ("b", b"3"))
    assert solo.log().memory == {}
    session = solo.accept("a")
    assert list(solo.log().memory) == [1, 2]
    get(solo, session)
    solo.release_session(session)
    assert solo.log().memory == {}
    assert upkeep.next_due(solo.broker, solo.now) in (LOCK_MS, NOT_DUE)


def test_a_lock_of_a_session_is_no_lock_of_a_message() -> None:
    solo = bus(("a", b"1"))
    entry = get(solo, solo.accept("a"))
    with pytest.raises(MessageLockLost):
        settling.complete(solo.broker, solo.log(1), entry.lock, solo.now, None, None)


@pytest.mark.parametrize("size", [1, 40_000])
def test_the_next_holder_waits_for_what_is_on_its_way_back(size: int) -> None:
    """It was given out again before its return was synced, and came back twice."""
    solo = queue(sessions=True)
    for _ in range(2):
        solo.send(b"x" * size, session_id="s")
    first = solo.accept("s")
    entry = solo.take_from(first)
    assert entry is not None
    solo.abandon(entry, commit=False)
    session_verbs.release(solo.broker, solo.log(), first, solo.now)
    second = solo.accept("s")
    assert solo.take_from(second) is None
    solo.commit()
    again = solo.take_from(second)
    assert again is not None
    assert (again.sequence, again.delivery_count) == (1, 1)
    session_verbs.release(solo.broker, solo.log(), second, solo.now, count=False)
    third = solo.accept("s")
    for number in (1, 2):
        entry = solo.take_from(third)
        assert entry is not None
        assert entry.sequence == number
        solo.complete(entry)
    assert (solo.tables(), solo.broker.bodies.memory, solo.log().memory) == ("", {}, {})
