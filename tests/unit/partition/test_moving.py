import pytest

from polybus.errors import EntityNotFound, MessageTooLarge
from polybus.message.edit import Edit
from polybus.message.message import CORRELATION_ID, DATA, SUBJECT, Message, build, with_body
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from polybus.message.rendering import Marks, merged_properties, render
from polybus.partition import moving, transfers
from polybus.partition.data import Moved, OutboxMessage
from polybus.partition.transfers import MOVED
from tests.unit.partition.kit import add_rule, body_of, queue, tiny, topic
from tests.unit.partition.solo import Solo


def move(
    solo: Solo,
    numbers: list[int],
    log_id: int = 0,
    changed: dict[int, Message] | None = None,
    edits: dict[int, Edit] | None = None,
    to: str = "other",
) -> Moved:
    solo.routes["other"] = (9, 0)
    log = solo.log(log_id)
    steps = moving.move(solo.broker, log, solo.now, numbers, changed or {}, edits or {}, to, 0, solo.reply, "move")
    solo.run(steps)
    solo.commit()
    assert isinstance(solo.said, Moved)
    return solo.said


def outbox(solo: Solo) -> list[OutboxMessage]:
    return list(solo.run(transfers.pending(solo.broker, 9, 0, 0, 100, 1 << 20)))


def outcome(moved: Moved) -> tuple[list[int], list[int], list[int]]:
    return moved.moved, moved.missing, moved.locked


def test_messages_are_taken_out_by_number_and_put_on_their_way() -> None:
    solo = tiny(queue(), 2)
    for number in range(8):
        solo.send(b"%d" % number, ttl_ms=90_000)
    solo.get()
    deferred = solo.get()
    solo.defer(deferred)
    assert outcome(move(solo, [1, 2, 7, 7, 99, 4])) == ([2, 7, 4], [99], [1])
    assert [transfer.message.body()[0][1] for transfer in outbox(solo)] == [b"1", b"6", b"3"]
    assert [transfer.original for transfer in outbox(solo)] == [2, 7, 4]
    assert [body_of(entry) for entry in solo.take_all()] == [b"2", b"4", b"5", b"7"]
    assert solo.log().deferred == 0


def test_a_changed_message_replaces_the_old_one() -> None:
    solo = queue()
    solo.send(b"old")
    solo.dead_letter(solo.get(), "why")
    assert outcome(move(solo, [1], log_id=1, changed={1: build(b"new")})) == ([1], [], [])
    transfer = outbox(solo)[0]
    assert transfer.message.body()[0][1] == b"new"
    assert merged_properties(transfer.message, transfer.overlay) == {MOVED: 0}
    assert solo.tables() == "F"


def test_an_edit_alters_what_it_names_and_nothing_else() -> None:
    solo = queue()
    solo.send_all([build(b"old", subject="kept", correlation_id="away", application={"n": 5, "gone": 1})])
    solo.dead_letter(solo.get(), "why")
    edit = Edit(1 << 20)
    edit.body = b"new"
    edit.fields = {CORRELATION_ID: None}
    edit.application = {"gone": None, "added": True, DEAD_LETTER_REASON: None, DEAD_LETTER_DESCRIPTION: None}
    assert outcome(move(solo, [1], log_id=1, edits={1: edit})) == ([1], [], [])
    transfer = outbox(solo)[0]
    assert transfer.overlay is not None
    received = Message(render(transfer.message, Marks(1, 1, overlay=transfer.overlay)))
    assert received.body() == [(DATA, b"new")]
    assert received.application_properties() == {"n": 5, "added": True, MOVED: 0}
    assert (received.properties()[SUBJECT], received.properties()[CORRELATION_ID]) == ("kept", None)


def test_an_edited_message_that_is_too_large_stays_with_all_others() -> None:
    solo = queue()
    solo.send(b"1")
    solo.send(b"2")
    edit = Edit(100)
    edit.body = b"x" * 100
    with pytest.raises(MessageTooLarge, match="Message 2 would have"):
        move(solo, [1, 2], edits={2: edit})
    assert (solo.log().active, solo.broker.transfers) == (2, 0)


def test_an_edited_body_takes_the_footer_of_the_old_one_away() -> None:
    footer = b"\x00\x53\x78\xc1\x01\x00"
    edited = with_body(Message(build(b"old", subject="s").raw + footer), b"a longer body")
    assert edited.raw == build(b"a longer body", subject="s").raw


def test_an_unchanged_dead_letter_takes_its_reasons_along_and_starts_its_hops_anew() -> None:
    solo = queue()
    solo.send(b"1")
    solo.dead_letter(solo.get(), "why")
    move(solo, [1], log_id=1)
    overlay = outbox(solo)[0].overlay
    assert overlay is not None
    assert (overlay.application["DeadLetterReason"], overlay.hops) == ("why", 0)


def test_deferred_dead_letters_are_found_too() -> None:
    solo = queue()
    solo.send(b"1")
    solo.dead_letter(solo.get())
    solo.defer(solo.get(1))
    solo.crash()
    assert outcome(move(solo, [1], log_id=1)) == ([1], [], [])


def test_where_the_destination_cannot_take_one_none_is_moved() -> None:
    solo = queue()
    solo.send(b"x" * 40_000)
    solo.send(b"2")
    solo.crash()
    with pytest.raises(EntityNotFound):
        move(solo, [1, 2], to="nowhere")
    assert (solo.log().active, solo.broker.transfers) == (2, 0)
    assert solo.broker.bodies.memory == {}


def test_what_is_settled_but_not_synced_is_not_moved() -> None:
    solo = queue()
    solo.send(b"1")
    solo.send(b"2")
    solo.complete(solo.get(), commit=False)
    assert outcome(move(solo, [1, 2])) == ([2], [1], [])
    assert outcome(move(solo, [2])) == ([], [2], [])


def test_messages_of_sessions_are_moved() -> None:
    solo = queue(sessions=True)
    for session_id in ("a", "b"):
        solo.send(session_id=session_id)
    session = solo.accept("a")
    assert outcome(move(solo, [1, 2])) == ([1, 2], [], [])
    assert solo.take_from(session) is None
    assert solo.tables() == "F"


def undo(solo: Solo, keys: list[bytes]) -> int:
    """As recovery does: on a broker that was just opened."""
    solo.crash()
    undone = solo.run(moving.undo(solo.broker, keys))
    solo.commit()
    return int(undone)


def test_a_send_in_doubt_is_undone_completely() -> None:
    solo = queue()
    solo.send(b"kept")
    solo.send_all([build(b"1", ttl_ms=5000), build(b"2" * 40_000), build(b"3", scheduled_ms=solo.now.wall_ms + 9000)])
    keys = solo.sent_keys
    assert undo(solo, keys) == 3
    assert undo(solo, keys) == 0
    assert [body_of(entry) for entry in solo.take_all()] == [b"kept"]
    assert (solo.tables(), solo.broker.scheduled) == ("M", 0)


def test_also_on_a_topic_with_its_dead_copies_its_own_log_and_shared_bodies() -> None:
    from polybus.rules import SqlFilter

    solo = topic(1, 2)
    add_rule(solo, 2, "broken", SqlFilter("1/x = 1"))
    solo.settings.keep_topic_log = True
    solo.log().floor = 0
    solo.send_all([build(b"x" * 1000, application={"x": 0})])
    keys = solo.sent_keys
    assert len(keys) == 4
    assert undo(solo, keys) == 4
    assert (solo.tables(), solo.log().retained) == ("", 0)


def test_also_when_it_was_to_be_forwarded() -> None:
    for routes in ({"other": (9, 0)}, {}):
        solo = queue(forward_to="other")
        solo.routes = routes
        solo.send(b"1")
        assert undo(solo, solo.sent_keys) == 1
        assert (solo.tables(), solo.broker.transfers, solo.broker.size) == ("", 0, 0)


def test_deleting_in_bulk_takes_the_oldest_free_ones() -> None:
    solo = queue()
    for _ in range(4):
        solo.send()
        solo.pass_time(1000)
    solo.get()
    deleted = moving.delete_before(solo.broker, solo.log(), solo.now, 10, solo.now.wall_ms - 1000)
    solo.commit()
    assert [entry.sequence for entry in deleted] == [2, 3]
    assert [entry.sequence for entry in solo.take_all()] == [4]
    assert moving.delete_before(solo.broker, solo.log(), solo.now, 10, solo.now.wall_ms) == []
