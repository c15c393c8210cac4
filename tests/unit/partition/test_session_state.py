import pytest

from polybus.errors import SessionLockLost
from polybus.partition import session_verbs
from polybus.partition.sessions import Session
from tests.unit.partition.kit import LOCK_MS, queue
from tests.unit.partition.solo import Solo


def write(solo: Solo, session: Session, state: bytes | None, commit: bool = True) -> None:
    solo.run(session_verbs.set_state(solo.broker, solo.log(), session, state, solo.now, solo.reply, "state"))
    if commit:
        solo.commit()


def read(solo: Solo, session_id: str) -> object:
    return solo.run(session_verbs.get_state(solo.log(), session_id))


def listed(solo: Solo, after: str | None = None, limit: int = 100, updated: int | None = None) -> list[str]:
    return list(solo.run(session_verbs.list_sessions(solo.log(), after, limit, updated)))


def test_state_is_kept_without_messages_and_without_a_lock_until_it_is_cleared() -> None:
    solo = queue(sessions=True)
    session = solo.accept("a")
    assert read(solo, "a") is None
    write(solo, session, b"one")
    assert solo.replies[-1] == ("state", None, None)
    solo.crash()
    assert read(solo, "a") == b"one"
    assert solo.accept_next() is None
    write(solo, solo.accept("a"), b"")
    assert read(solo, "a") == b""
    solo.crash()
    write(solo, solo.accept("a"), None)
    assert (read(solo, "a"), solo.tables(), solo.broker.size) == (None, "", 0)


def test_state_counts_towards_the_size_once_however_often_it_is_set() -> None:
    solo = queue(sessions=True)
    session = solo.accept("a")
    write(solo, session, b"x" * 100, commit=False)
    write(solo, session, b"y" * 300, commit=False)
    assert read(solo, "a") == b"y" * 300
    solo.commit()
    assert solo.broker.size == 312
    write(solo, session, None)
    assert solo.broker.size == 0


def test_a_state_read_late_is_the_one_that_was_set_meanwhile() -> None:
    solo = queue(sessions=True)
    session = solo.accept("a")
    write(solo, session, b"old")
    reading = solo.begin(session_verbs.get_state(solo.log(), "a"))
    setting = solo.begin(
        session_verbs.set_state(solo.broker, solo.log(), session, b"third", solo.now, solo.reply, "state")
    )
    write(solo, session, b"second")
    assert reading.finish() == b"second"
    setting.finish()
    solo.commit()
    assert read(solo, "a") == b"third"


def test_a_state_is_not_set_by_one_who_has_lost_the_session_meanwhile() -> None:
    solo = queue(sessions=True)
    session = solo.accept("a")
    setting = solo.begin(
        session_verbs.set_state(solo.broker, solo.log(), session, b"x", solo.now, solo.reply, "state")
    )
    solo.move(LOCK_MS)
    with pytest.raises(SessionLockLost):
        setting.finish()


def test_the_list_has_sessions_with_messages_or_state_in_order() -> None:
    solo = queue(sessions=True)
    for session_id in ("bb", "a", "c"):
        solo.send(session_id=session_id)
    for session_id in ("b", "c"):
        write(solo, solo.accept(session_id), b"s")
    assert listed(solo) == ["a", "b", "c", "bb"]
    assert listed(solo, limit=2) == ["a", "b"]
    assert listed(solo, after="b") == ["c", "bb"]
    solo.crash()
    assert listed(solo, after="b", limit=1) == ["c"]


def test_the_list_of_those_whose_state_was_updated_since() -> None:
    solo = queue(sessions=True)
    solo.send(session_id="only-messages")
    write(solo, solo.accept("a"), b"s")
    since = solo.now.wall_ms
    solo.pass_time(1000)
    write(solo, solo.accept("b"), b"s")
    assert listed(solo, updated=since) == ["b"]
    assert listed(solo, updated=since - 1) == ["a", "b"]
    assert listed(solo, updated=solo.now.wall_ms) == []
