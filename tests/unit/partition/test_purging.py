import pytest

from polybus.message.message import build
from polybus.partition import purging
from polybus.rules import SqlFilter
from tests.unit.partition.kit import add_rule, body_of, main, topic
from tests.unit.partition.solo import Solo


def purge(solo: Solo, number: int) -> int:
    """Removes everything; gives in how many steps."""
    solo.audited = False
    steps, at = 1, solo.run(purging.purge(solo.broker, number))
    while at:
        solo.commit()
        at = solo.run(purging.purge(solo.broker, number, at))
        steps += 1
    solo.audited = True
    solo.commit()
    return steps


def test_a_deleted_subscription_leaves_nothing_and_the_others_keep_theirs() -> None:
    solo = topic(1, 2)
    solo.settings.events = True
    solo.settings.subscriptions[2].requires_session = True
    add_rule(solo, 2, "broken", SqlFilter("1/x = 1"))
    solo.crash()
    solo.log(main(2)).floor = 0
    for number in range(6):
        solo.send(b"%d" % number + b"x" * 500, session_id="s", application={"x": 0}, ttl_ms=90_000)
        solo.send(b"small", session_id="s", application={"x": 0})
    session = solo.accept_next(log_id=main(2))
    assert session is not None
    entries = [solo.take_from(session, log_id=main(2)) for _ in range(3)]
    assert all(entries)
    solo.complete(entries[0])  # type: ignore[arg-type]
    solo.defer(entries[1])  # type: ignore[arg-type]
    from polybus.partition import session_verbs

    solo.run(
        session_verbs.set_state(solo.broker, solo.log(main(2)), session, b"state", solo.now, solo.reply, "state")
    )
    solo.commit()
    del solo.settings.subscriptions[2]
    purging.forget_subscription(solo.broker, 2)
    assert session.lost
    assert all(entry.log.id != main(2) for entry in solo.broker.locks.values())
    purge(solo, 2)
    log = solo.log(main(1))
    assert (log.active, solo.broker.size) == (12, log.active_bytes)
    assert len([body_of(entry) for entry in solo.take_all(main(1))]) == 12
    for entry in list(solo.broker.locks.values()):
        solo.complete(entry)
    assert solo.tables() == "A"
    assert solo.broker.bodies.memory == {}


def test_purging_twice_is_harmless() -> None:
    solo = topic(1, 2)
    solo.send(b"x" * 500)
    del solo.settings.subscriptions[2]
    purging.forget_subscription(solo.broker, 2)
    for _ in range(2):
        purge(solo, 2)
    solo.crash()
    solo.complete(solo.get(main(1)))
    assert (solo.tables(), solo.broker.size) == ("", 0)


def test_a_step_removes_only_so_much_and_a_crash_between_two_is_harmless() -> None:
    """A million messages in one step would hold up everybody, and be one batch."""
    solo = topic(1, 2)
    solo.settings.bounds.sweep_rows = 4
    solo.send_all([build(b"x" * size, ttl_ms=90_000) for size in (1, 500) for _ in range(9)])
    for entry in solo.take_all(main(2))[:6]:
        solo.defer(entry)
    del solo.settings.subscriptions[2]
    solo.audited = False
    purging.forget_subscription(solo.broker, 2)
    at = solo.run(purging.purge(solo.broker, 2))
    assert at
    assert len(solo.batch.ops) < 20
    solo.commit()
    solo.crash()
    assert purge(solo, 2) == 5
    for entry in solo.take_all(main(1)):
        solo.complete(entry)
    assert (solo.tables(), solo.broker.size) == ("", 0)


@pytest.mark.parametrize("sessions", [False, True])
def test_a_message_on_its_way_to_a_subscription_that_is_forgotten_leaves_no_body_in_memory(sessions: bool) -> None:
    solo = topic(1, 2)
    solo.settings.subscriptions[2].requires_session = sessions
    solo.crash()
    if sessions:
        solo.accept("s", log_id=main(2))
    solo.send(b"x" * 500, session_id="s", commit=False)
    solo.audited = False
    del solo.settings.subscriptions[2]
    purging.forget_subscription(solo.broker, 2)
    solo.commit()
    purge(solo, 2)
    solo.complete(solo.get(main(1)))
    assert (solo.tables(), solo.broker.bodies.memory) == ("", {})
