"""Which session is next, also when there are more of them than memory holds."""

import pytest

from polybus.message.message import build
from polybus.partition import session_verbs
from polybus.partition.sessions import Session
from tests.unit.partition.kit import LOCK_MS, queue, tiny
from tests.unit.partition.solo import Solo


def bus(*session_ids: str, sessions: int = 4096) -> Solo:
    solo = queue(sessions=True)
    solo.settings.bounds.sessions = sessions
    for session_id in session_ids:
        solo.send(session_id=session_id)
    return solo


def all_next(solo: Solo) -> list[str]:
    found = []
    while (session := solo.accept_next()) is not None:
        found.append(session.id)
    return found


def test_the_longest_waiting_is_next() -> None:
    solo = bus("b", "a", "b", "c")
    assert all_next(solo) == ["b", "a", "c"]


def test_a_session_given_back_with_messages_waits_at_the_end() -> None:
    solo = bus("a", "b")
    first = solo.accept_next()
    assert first is not None
    solo.release_session(first)
    assert all_next(solo) == ["b", "a"]


def test_an_emptied_session_is_not_offered() -> None:
    solo = bus("a")
    session = solo.accept_next()
    assert session is not None
    entry = solo.take_from(session)
    assert entry is not None
    solo.complete(entry)
    solo.release_session(session)
    assert all_next(solo) == []
    assert not session_verbs.book(solo.log()).has_waiting()


def test_nor_one_that_has_only_deferred_or_expired_messages() -> None:
    solo = bus("a")
    session = solo.accept("a")
    entry = solo.take_from(session)
    assert entry is not None
    solo.defer(entry)
    solo.release_session(session)
    solo.send(session_id="b", ttl_ms=1000)
    solo.pass_time(1000)
    assert all_next(solo) == []


def test_after_a_restart_a_scan_finds_them_all() -> None:
    ids = [f"{number:03}" for number in range(150)]
    solo = bus(*ids)
    solo.crash()
    assert session_verbs.book(solo.log()).has_waiting()
    assert all_next(solo) == ids
    assert not session_verbs.book(solo.log()).has_waiting()


def test_the_scan_hops_over_sessions_however_many_messages_they_have() -> None:
    solo = tiny(bus(*["a"] * 20, *["b"] * 20), 2)
    solo.crash()
    assert all_next(solo) == ["a", "b"]


def test_what_arrives_while_the_scan_is_at_work_is_found_on_either_side_of_it() -> None:
    solo = bus(*[f"m{number:03}" for number in range(100)])
    solo.crash()
    first = solo.accept_next()
    assert first is not None
    assert first.id == "m000"
    solo.send(session_id="a000")  # behind the scan
    solo.send(session_id="z000")  # ahead of it
    assert set(all_next(solo)) == {f"m{number:03}" for number in range(1, 100)} | {"a000", "z000"}


def test_more_sessions_than_memory_holds_are_found_by_scanning_again() -> None:
    ids = [f"{number:02}" for number in range(12)]
    solo = bus(*ids, sessions=3)
    assert len(session_verbs.book(solo.log()).waiting) == 3
    assert sorted(all_next(solo)) == ids


def test_a_session_whose_lock_ran_out_is_offered_again() -> None:
    solo = bus("a")
    session = solo.accept_next()
    assert session is not None
    solo.move(LOCK_MS)
    again = solo.accept_next("other")
    assert isinstance(again, Session)
    assert again is not session


def test_who_asks_while_another_scans_hears_of_it_afterwards() -> None:
    class Watch:
        heard = 0

        def available(self) -> None:
            self.heard += 1

    solo = bus("a", "b")
    solo.crash()
    watch = solo.log().watcher = Watch()
    scanning = solo.begin(session_verbs.accept_next(solo.broker, solo.log(), solo.now, "first"))
    assert solo.accept_next("second") is None
    scanning.finish()
    assert watch.heard >= 1
    assert solo.accept_next("second") is not None


def test_a_session_that_appears_during_a_scan_that_does_not_show_it_is_not_lost() -> None:
    solo = bus("a")
    solo.crash()
    scanning = solo.begin(session_verbs.scan_sessions(solo.log()))
    scanning.step()  # it has found a, and has asked what comes behind
    solo.send(session_id="z")
    scanning.finish()
    assert sorted(all_next(solo)) == ["a", "z"]


def test_overflow_during_a_scan_begins_it_anew() -> None:
    solo = bus("a", "b", sessions=1)
    solo.crash()
    scanning = solo.begin(session_verbs.scan_sessions(solo.log()))
    scanning.step()
    for name in ("x", "y"):
        solo.send(session_id=name)
    scanning.finish()
    assert sorted(all_next(solo)) == ["a", "b", "x", "y"]


def test_a_read_that_fails_gives_the_session_back() -> None:
    solo = bus("a")
    solo.begin(session_verbs.accept(solo.broker, solo.log(), "a", solo.now, "me")).drop()
    assert session_verbs.book(solo.log()).held == {}
    assert all_next(solo) == ["a"]


@pytest.mark.parametrize("opened", [False, True])
def test_sessions_in_which_everything_has_expired_are_passed_in_bounded_steps(opened: bool) -> None:
    """Reads of an embedded store hold up everybody, and the sweep has not come to them yet."""
    solo = queue(sessions=True)
    solo.audited = False
    solo.send_all([build(b"", session_id=f"{number:03}", ttl_ms=10) for number in range(200)])
    solo.send(session_id="200")
    if opened:
        solo.crash()
    solo.pass_time(20)
    steps = 0
    while (session := solo.accept_next()) is None:
        assert session_verbs.book(solo.log()).has_more()
        steps += 1
    assert (session.id, steps) == ("200", 200 // session_verbs.EMPTY_SESSIONS)
