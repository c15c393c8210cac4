from polybus.partition import cursors
from polybus.partition.kinds import NO_FLOOR
from tests.unit.partition.kit import body_of, main, queue, tiny, topic
from tests.unit.partition.solo import Solo


def kept(floor: int = 0) -> Solo:
    """A queue with a cursor at this position."""
    solo = queue()
    solo.log().floor = floor
    return solo


def read(solo: Solo, first: int, last: int, limit: int = 100, max_bytes: int = 1 << 20, log_id: int = 0) -> object:
    rows, complete_to = solo.run(cursors.read_range(solo.broker, solo.log(log_id), first, last, limit, max_bytes))
    return [row.stored.position for row in rows], complete_to


def trim(solo: Solo, floor: int, log_id: int = 0) -> None:
    solo.log(log_id).floor = floor
    while solo.run(cursors.trim(solo.broker, solo.log(log_id))):
        pass
    solo.commit()


def test_what_is_settled_above_the_floor_stays_for_the_cursor_and_for_nobody_else() -> None:
    solo = kept(floor=1)
    for number in range(3):
        solo.send(b"%d" % number)
    for entry in solo.take_all():
        solo.complete(entry)
    assert (solo.log().active, solo.log().retained, solo.broker.size) == (0, 2, 0)
    assert (solo.take(), solo.numbers()) == (None, [])
    assert read(solo, 1, 10) == ([2, 3], 3)
    solo.crash()
    assert solo.take() is None
    assert read(solo, 1, 10) == ([2, 3], 3)


def test_moving_the_floor_frees_what_is_below_in_bounded_steps() -> None:
    solo = kept()
    solo.settings.bounds.sweep_rows = 2
    for _ in range(7):
        solo.send()
    for entry in solo.take_all():
        solo.complete(entry)
    trim(solo, 5)
    assert (solo.log().retained, read(solo, 1, 10)) == (2, ([6, 7], 7))
    trim(solo, NO_FLOOR)
    assert (solo.log().retained, solo.log().retained_bytes, solo.tables()) == (0, 0, "")


def test_trimming_again_before_the_commit_frees_nothing_twice() -> None:
    solo = kept()
    for _ in range(3):
        solo.send()
    for entry in solo.take_all():
        solo.complete(entry)
    solo.log().floor = 2
    for _ in range(2):
        solo.run(cursors.trim(solo.broker, solo.log()))
    assert solo.log().retained == 1
    solo.commit()


def test_a_message_settled_late_below_what_was_trimmed_is_found_by_a_lower_floor() -> None:
    solo = kept()
    for _ in range(4):
        solo.send()
    slow, *others = solo.take_all()
    for entry in others:
        solo.complete(entry)
    trim(solo, 3)
    solo.log().floor = 0
    solo.complete(slow)
    assert solo.log().retained == 2
    trim(solo, 4)
    assert solo.tables() == ""


def test_messages_that_are_still_there_are_read_as_well() -> None:
    solo = kept()
    for _ in range(4):
        solo.send()
    solo.complete(solo.get())
    solo.defer(solo.get())
    assert read(solo, 1, 10) == ([1, 2, 3, 4], 4)
    assert solo.log().retained == 2
    solo.complete(solo.take_deferred(2)[0])
    assert solo.log().retained == 2
    trim(solo, 4)
    assert (solo.log().retained, solo.log().active) == (0, 2)


def test_ranges_are_cut_by_rows_and_bytes_and_can_be_gone_on_with() -> None:
    solo = kept()
    for _ in range(10):
        solo.send(b"x" * 200)
    assert read(solo, 3, 7) == ([3, 4, 5, 6, 7], 7)
    assert read(solo, 1, 10, limit=4) == ([1, 2, 3, 4], 4)
    found: list[int] = []
    first = 1
    while first <= 10:
        positions, complete_to = read(solo, first, 10, max_bytes=700)  # type: ignore[misc]
        assert len(positions) < 10
        found += positions
        first = complete_to + 1
    assert found == list(range(1, 11))


def test_gaps_of_positions_that_are_gone_are_complete() -> None:
    solo = queue()
    for _ in range(6):
        solo.send()
    entries = solo.take_all()
    for place in (0, 2, 3, 5):
        solo.complete(entries[place])
    assert read(solo, 1, 3) == ([2], 3)
    assert read(solo, 3, 4) == ([], 4)
    positions, complete_to = read(solo, 5, 6)  # type: ignore[misc]
    assert (positions, complete_to) == ([5], 5)
    assert read(solo, 6, 6) == ([], 6)


def test_nothing_beyond_the_stable_end_is_read() -> None:
    solo = kept()
    solo.send()
    solo.send(commit=False)
    solo.seal()
    solo.write()
    assert solo.log().stable_end == 1
    assert read(solo, 1, 10) == ([1], 1)
    assert read(solo, 2, 10) == ([], 1)
    solo.land()
    assert read(solo, 2, 10) == ([2], 2)


def test_positions_are_dense_though_numbers_are_not() -> None:
    solo = queue(index=4)
    for number in range(20):
        solo.send(scheduled_ms=solo.now.wall_ms + 1000 if number % 3 else None)
    solo.cancel(*[peeked.marks.sequence for peeked in solo.peek() if peeked.marks.state == 2][:5])
    solo.move(2000)
    positions, end = read(solo, 1, 1000)  # type: ignore[misc]
    assert positions == list(range(1, end + 1))
    for first in range(1, end + 1):
        assert read(solo, first, first) == ([first], first)


def test_the_first_position_that_can_be_read() -> None:
    solo = queue()
    assert solo.run(cursors.earliest(solo.log())) == 1
    for _ in range(3):
        solo.send()
    solo.complete(solo.get())
    assert solo.run(cursors.earliest(solo.log())) == 2
    for entry in solo.take_all():
        solo.complete(entry)
    assert solo.run(cursors.earliest(solo.log())) == 4


def test_the_first_position_at_or_after_a_time() -> None:
    solo = queue(index=1)
    start = solo.now.wall_ms
    for _ in range(10):
        solo.send()
        solo.pass_time(100)
    entries = solo.take_all()
    for place in (0, 4, 5, 9):
        solo.complete(entries[place])
    for offset, expected in ((-1, 2), (0, 2), (150, 3), (300, 4), (301, 7), (600, 7), (800, 9), (801, 0), (9999, 0)):
        position = solo.run(cursors.position_at_time(solo.broker, solo.log(), start + offset))
        rows, _ = solo.run(cursors.read_range(solo.broker, solo.log(), position, 100, 1, 1 << 20))
        assert (offset, rows[0].stored.position if rows else 0) == (offset, expected)


def test_a_topic_keeps_a_log_of_its_own_only_for_its_cursors() -> None:
    solo = topic(1)
    solo.send(b"before")
    solo.settings.keep_topic_log = True
    solo.log().floor = 0
    solo.send(b"1")
    solo.send(b"2")
    assert read(solo, 1, 10) == ([1, 2], 2)
    assert (solo.log().retained, solo.log().active, solo.numbers()) == (2, 0, [])
    solo.crash()
    solo.log().floor = 0
    assert solo.take() is None
    trim(solo, 1)
    assert read(solo, 1, 10) == ([2], 2)
    trim(solo, NO_FLOOR)
    assert len(solo.take_all(main(1))) == 3
    assert solo.tables() == "M"


def test_shared_bodies_are_kept_for_the_cursor_and_count_only_while_a_copy_is_live() -> None:
    solo = topic(1, 2)
    solo.log(main(1)).floor = 0
    solo.send(b"x" * 1000)
    solo.complete(solo.get(main(1)))
    solo.crash()
    solo.log(main(1)).floor = 0
    solo.complete(solo.get(main(2)))
    assert solo.broker.size == 0
    rows, _ = solo.run(cursors.read_range(solo.broker, solo.log(main(1)), 1, 1, 10, 1 << 20))
    assert b"x" * 1000 in rows[0].raw
    trim(solo, 1, main(1))
    assert solo.tables() == ""
    assert solo.broker.bodies.memory == {}


def test_receivers_page_past_what_is_kept() -> None:
    solo = tiny(kept(), 2)
    solo.log().floor = 0
    for number in range(20):
        solo.send(b"%d" % number)
    for _ in range(15):
        solo.complete(solo.get())
    solo.crash()
    solo.log().floor = 0
    assert [body_of(entry) for entry in solo.take_all()] == [b"%d" % number for number in range(15, 20)]
    assert solo.numbers() == [16, 17, 18, 19, 20]


def test_when_the_oldest_kept_message_was_settled() -> None:
    solo = kept()
    assert solo.run(cursors.oldest_kept_ms(solo.log())) is None
    solo.send()
    solo.pass_time(500)
    solo.complete(solo.get())
    assert solo.run(cursors.oldest_kept_ms(solo.log())) == solo.now.wall_ms


def test_dead_letters_have_positions_of_their_own() -> None:
    solo = queue()
    for _ in range(3):
        solo.send()
    solo.log(1).floor = 0
    for entry in reversed(solo.take_all()):
        solo.dead_letter(entry)
    rows, _ = solo.run(cursors.read_range(solo.broker, solo.log(1), 1, 9, 10, 1 << 20))
    assert [(row.stored.position, row.stored.sequence) for row in rows] == [(1, 3), (2, 2), (3, 1)]
    solo.complete(solo.get(1))
    assert (solo.log(1).retained, solo.numbers(1)) == (1, [1, 2])
    assert read(solo, 1, 9, log_id=1) == ([1, 2, 3], 3)
