from polybus.partition import settling
from tests.unit.partition.solo import Solo


def test_a_message_is_sent_locked_and_completed() -> None:
    solo = Solo()
    assert solo.send(b"hello", message_id="1") == 1
    entry = solo.take()
    assert entry is not None
    assert entry.loaded().message_id == "1"
    assert solo.take() is None
    settling.complete(solo.broker, entry.log, entry.lock, solo.now, solo.reply, "done")
    solo.commit()
    assert solo.replies[-1] == ("done", None, None)
    log = solo.broker.log(0)
    assert (log.active, solo.broker.size) == (0, 0)
    assert len(solo.rows) == 2  # the two rows of counters


def test_a_message_survives_a_crash_after_the_commit_and_only_then() -> None:
    solo = Solo()
    solo.send(b"kept")
    solo.send(b"lost", commit=False)
    solo.crash()
    entry = solo.take()
    assert entry is not None
    assert entry.sequence == 1
    assert solo.take() is None
    assert solo.send(b"next") == 2
