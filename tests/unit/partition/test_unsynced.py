from polybus.partition.output import Output
from polybus.partition.timetable import NOT_DUE, Timetable
from polybus.partition.unsynced import Unsynced


def changed(rows: Unsynced, row: object) -> None:
    rows.changed(Output(), row)


def test_a_row_is_known_until_its_change_is_synced() -> None:
    rows = Unsynced()
    batch = Output()
    rows.changed(batch, 1)
    assert 1 in rows
    assert batch.unsynced == [(rows, 1)]
    rows.synced(1)
    assert 1 not in rows


def test_and_until_every_read_that_began_before_has_ended() -> None:
    rows = Unsynced()
    first = rows.read_begins()
    changed(rows, 1)
    second = rows.read_begins()
    rows.synced(1)
    third = rows.read_begins()
    rows.read_ends(first)
    assert 1 in rows
    rows.read_ends(second)
    assert 1 not in rows
    assert rows.has_reads()
    rows.read_ends(third)
    assert not rows.has_reads()


def test_reads_that_overlap_for_ever_do_not_keep_everything() -> None:
    rows = Unsynced()
    ticket = rows.read_begins()
    for number in range(100):
        changed(rows, number)
        rows.synced(number)
        following = rows.read_begins()
        rows.read_ends(ticket)
        ticket = following
    assert not any(number in rows for number in range(100))


def test_a_row_changed_twice_is_known_until_both_are_synced() -> None:
    rows = Unsynced()
    changed(rows, 1)
    changed(rows, 1)
    rows.synced(1)
    assert 1 in rows
    rows.synced(1)
    assert 1 not in rows


def test_a_row_of_a_timetable_is_due_only_when_it_is_synced_and_low_from_the_start() -> None:
    table = Timetable()
    table.add(50)
    assert table.due_ms == NOT_DUE
    assert table.seal() == 50
    assert table.seal() == 50
    table.synced()
    assert (table.due_ms, table.low) == (50, 50)


def test_a_step_of_a_walk_keeps_what_came_meanwhile_and_what_it_left() -> None:
    table = Timetable()
    table.add(50)
    table.seal()
    table.synced()
    table.step_begins()
    assert (table.due_ms, table.walking) == (NOT_DUE, True)
    table.add(20)
    table.seal()
    table.synced()
    table.step_ends(left_ms=40, next_ms=90, at=b"")
    assert (table.due_ms, table.low) == (20, 20)
    table.step_begins()
    table.step_ends(left_ms=40, next_ms=60, at=b"place")
    assert (table.due_ms, table.low, table.at) == (60, 40, b"place")
    table.wake(40)
    table.step_begins()
    table.step_ends(left_ms=NOT_DUE, next_ms=90, at=b"")
    assert (table.due_ms, table.low) == (40, 40)


def test_a_failed_step_is_due_again() -> None:
    table = Timetable()
    table.wake(10)
    table.step_begins()
    table.step_fails()
    assert (table.due_ms, table.walking) == (10, False)
