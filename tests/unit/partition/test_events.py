from typing import Any

from polybus.partition import events
from tests.unit.partition.kit import LOCK_MS, main, queue, topic
from tests.unit.partition.solo import Solo


def telling(**own: Any) -> Solo:
    solo = queue(**own)
    solo.settings.events = True
    return solo


def told(
    solo: Solo, log_id: int = 0, first: int = 1, limit: int = 100
) -> list[tuple[int, int, str, int, str | None]]:
    found, _ = solo.run(events.read_range(solo.log(log_id), first, 1 << 40, limit, 1 << 20))
    return [(event.position, event.sequence, event.change, event.delivery_count, event.reason) for event in found]


def test_every_change_of_a_message_is_written_with_it() -> None:
    solo = telling(max_delivery_count=3)
    solo.send()
    solo.abandon(solo.get())
    solo.get()
    solo.move(LOCK_MS)
    solo.defer(solo.get())
    solo.dead_letter(solo.take_deferred(1)[0], "why")
    solo.send(ttl_ms=1000)
    solo.move(1000)
    solo.send()
    solo.complete(solo.get())
    for _ in range(2):
        assert told(solo) == [
            (1, 1, "enqueued", 0, None),
            (2, 1, "abandoned", 1, None),
            (3, 1, "lock-expired", 2, None),
            (4, 1, "deferred", 2, None),
            (5, 1, "dead-lettered", 2, "why"),
            (6, 2, "enqueued", 0, None),
            (7, 2, "expired", 0, None),
            (8, 3, "enqueued", 0, None),
            (9, 3, "completed", 0, None),
        ]
        solo.crash()


def test_none_are_written_unless_asked_for() -> None:
    solo = queue()
    solo.send()
    solo.complete(solo.get())
    assert (told(solo), solo.tables()) == ([], "")


def test_only_synced_events_are_read_and_lost_ones_leave_no_gap() -> None:
    solo = telling()
    solo.send()
    solo.send(commit=False)
    assert [event[0] for event in told(solo)] == [1]
    solo.crash()
    solo.send()
    assert [event[0] for event in told(solo)] == [1, 2]


def test_they_are_read_in_parts_and_trimmed() -> None:
    solo = telling()
    for _ in range(5):
        solo.send()
    found, complete_to = solo.run(events.read_range(solo.log(), 2, 4, 2, 1 << 20))
    assert ([event.position for event in found], complete_to) == ([2, 3], 3)
    assert solo.run(events.read_range(solo.log(), 6, 9, 2, 1 << 20)) == ([], 5)
    events.trim(solo.broker, solo.log(), 3)
    solo.commit()
    assert [event[0] for event in told(solo)] == [4, 5]
    solo.send()
    assert told(solo)[-1][0] == 6


def test_copies_have_their_own() -> None:
    solo = topic(1, 2)
    solo.settings.events = True
    solo.send()
    solo.complete(solo.get(main(1)))
    assert [event[2] for event in told(solo, main(1))] == ["enqueued", "completed"]
    assert [event[2] for event in told(solo, main(2))] == ["enqueued"]
    event = solo.run(events.read_range(solo.log(main(2)), 1, 1, 1, 1 << 20))[0][0]
    assert (event.time_ms, event.enqueued_ms) == (solo.now.wall_ms, solo.now.wall_ms)
