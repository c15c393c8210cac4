from polybus.message.message import build
from polybus.partition import receiving
from tests.unit.partition.kit import body_of, queue, tiny, topic
from tests.unit.partition.solo import Solo


def all_states(solo: Solo) -> Solo:
    """1 locked, 2 deferred, 3 scheduled, 4 free, 5 dead, 6 expired."""
    solo.send(b"1")
    solo.send(b"2")
    solo.send(b"3", scheduled_ms=solo.now.wall_ms + 60_000)
    solo.send(b"4")
    solo.send(b"5")
    solo.send(b"6", ttl_ms=10)
    solo.get()
    solo.defer(solo.get())
    free, dead = solo.get(), solo.get()
    solo.release(free)
    solo.dead_letter(dead)
    solo.pass_time(20)
    return solo


def test_messages_of_all_states_are_shown_in_order_of_number() -> None:
    solo = all_states(queue())
    for _ in range(2):
        assert [(peeked.marks.sequence, peeked.marks.state) for peeked in solo.peek()] == [
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 0),
        ]
        assert solo.numbers(1) == [5]
        solo.crash()


def test_peeking_changes_nothing() -> None:
    solo = all_states(queue())
    before = dict(solo.rows), solo.log().locked, solo.log().active
    assert body_of_peeked(solo) == [b"1", b"2", b"3", b"4"]
    assert before == (solo.rows, solo.log().locked, solo.log().active)
    assert not solo.batch
    assert body_of(solo.get()) == b"4"


def body_of_peeked(solo: Solo) -> list[object]:
    return [peeked.message.body()[0][1] for peeked in solo.peek()]


def test_it_starts_at_a_number_and_ends_at_a_count() -> None:
    solo = queue(index=1)
    base = 1 << 48
    for _ in range(5):
        solo.send()
    assert [peeked.marks.sequence - base for peeked in solo.peek(0)] == [1, 2, 3, 4, 5]
    assert [peeked.marks.sequence - base for peeked in solo.peek(base + 2, 2)] == [2, 3]
    assert solo.peek(base + 6) == []


def test_it_is_cut_by_bytes_but_gives_one_at_least_and_going_on_reaches_all() -> None:
    for size in (300, 40_000):
        solo = all_states(queue())
        for _ in range(4):
            solo.send(b"x" * size)
        seen: list[int] = []
        while peeked := solo.peek(seen[-1] + 1 if seen else 1, 100, 500):
            assert len(peeked) == 1 or sum(item.message.size for item in peeked) <= 500
            seen += [item.marks.sequence for item in peeked]
        assert seen == [1, 2, 3, 4, 7, 8, 9, 10]


def test_a_table_that_was_cut_hides_nothing_of_the_others() -> None:
    solo = queue()
    solo.send(b"1" * 400)
    solo.send(b"2" * 400)
    solo.send(b"3", scheduled_ms=solo.now.wall_ms + 60_000)
    solo.send(b"4" * 400)
    seen: list[int] = []
    while peeked := solo.peek(seen[-1] + 1 if seen else 1, 3, 450):
        seen += [item.marks.sequence for item in peeked]
    assert seen == [1, 2, 3, 4]


def test_expired_messages_take_up_room_but_hide_nothing() -> None:
    solo = queue()
    solo.send(b"1", ttl_ms=10)
    solo.send(b"2")
    solo.send(b"3")
    solo.send(b"4", scheduled_ms=solo.now.wall_ms + 60_000)
    solo.pass_time(20)
    seen: list[int] = []
    while peeked := solo.peek(seen[-1] + 1 if seen else 1, 2):
        seen += [item.marks.sequence for item in peeked]
    assert seen == [2, 3, 4]


def test_marks_are_shown_as_they_are() -> None:
    solo = queue()
    solo.send(b"1", message_id="m")
    solo.abandon(solo.get(), a=1)
    marks = solo.peek()[0].marks
    assert (marks.delivery_count, marks.locked_until_ms) == (1, 0)
    assert marks.overlay is not None
    assert marks.overlay.application == {"a": 1}


def test_one_session_only() -> None:
    solo = tiny(queue(sessions=True), 2)
    for number in range(12):
        solo.send(b"%d" % number, session_id="ab"[number % 2])
    session = solo.accept("b")
    entry = solo.take_from(session)
    assert entry is not None
    solo.defer(entry)
    assert [peeked.marks.sequence for peeked in solo.peek(session="b")] == [2, 4, 6, 8, 10, 12]
    assert [peeked.marks.sequence for peeked in solo.peek(5, 2, session="a")] == [5, 7]
    assert [peeked.marks.sequence for peeked in solo.peek()] == list(range(1, 13))
    assert solo.peek(session="c") == []


def test_many_dead_letters_are_read_through_their_index_in_parts() -> None:
    solo = queue()
    solo.audited = False
    solo.send_all([build(b"x" * 300) for _ in range(200)])
    for entry in reversed(solo.take_all()):
        solo.dead_letter(entry, commit=False)
    solo.commit()
    assert [peeked.marks.sequence for peeked in solo.peek(count=150, log_id=1)] == list(range(1, 151))
    assert [peeked.marks.sequence for peeked in solo.peek(100, 100, 2000, log_id=1)] == [100, 101, 102]


def test_what_is_being_deferred_is_shown_until_the_commit_and_after() -> None:
    solo = queue()
    solo.send()
    solo.send()
    solo.defer(solo.get(), commit=False)
    assert solo.numbers() == [1, 2]
    solo.commit()
    assert solo.numbers() == [1, 2]


def test_a_topic_shows_what_is_scheduled() -> None:
    solo = topic(1)
    solo.send()
    solo.send(scheduled_ms=solo.now.wall_ms + 1000)
    assert [(peeked.marks.sequence, peeked.marks.state) for peeked in solo.peek()] == [(2, 2)]


def test_an_absurd_count_is_bounded_by_bytes() -> None:
    solo = queue()
    solo.send_all([build(b"x" * 100) for _ in range(50)])
    assert 1 < len(solo.peek(1, 1 << 31, 2000)) < 50


def reads_of_a_peek(solo: Solo, first: int) -> int:
    peeking = solo.begin(receiving.peek(solo.broker, solo.log(), solo.now, first, 1, 1 << 20, None))
    reads = 1
    while not peeking.step():
        reads += 1
    assert [peeked.marks.sequence for peeked in peeking.result] == [302]
    return reads


def test_what_is_kept_for_cursors_is_passed_in_few_reads() -> None:
    """Reads of an embedded store hold up everybody: one for each of a million kept messages would, for a minute."""
    held, empty = queue(), topic(1)
    held.audited = empty.audited = False
    held.log().floor = 0
    empty.settings.keep_topic_log = True
    for solo in (held, empty):
        solo.send_all([build(b"x") for _ in range(301)])
        solo.send(b"last", scheduled_ms=solo.now.wall_ms + 60_000)
    head, *rest = held.take_all()
    for entry in rest:
        held.complete(entry, commit=False)
    held.commit()
    assert (held.log().retained, empty.log().retained, head.lock > 0) == (300, 301, True)
    assert reads_of_a_peek(held, 2) < 20
    assert reads_of_a_peek(empty, 1) < 20
