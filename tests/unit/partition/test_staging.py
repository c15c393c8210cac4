import pytest

from polybus.errors import ArgumentError
from polybus.limits import STAGE_BLOCK_BYTES, STAGE_BLOCK_ROWS
from polybus.message.message import Message, build
from polybus.partition import receiving, records, staging
from tests.unit.partition.kit import body_of, main, queue, tiny, topic
from tests.unit.partition.solo import Solo

STAGE = b"s" * 16


def stage(solo: Solo, first: int, *bodies: bytes, stage_id: bytes = STAGE, commit: bool = True) -> None:
    messages = [build(body, message_id=body.decode()) for body in bodies]
    staging.stage(solo.broker, solo.now, stage_id, first, messages, solo.reply, "stage")
    if commit:
        solo.commit()


def publish(solo: Solo, stage_id: bytes = STAGE, commit: bool = True) -> bool:
    more = solo.run(staging.publish_chunk(solo.broker, solo.now, stage_id, solo.reply, "publish"))
    if commit:
        solo.commit()
        assert solo.replies[-1] == ("publish", more, None)
    return bool(more)


def small(chunk: int = 3) -> Solo:
    solo = queue()
    solo.settings.bounds.stage_rows = chunk
    return solo


def test_what_is_staged_is_not_there_until_it_is_published() -> None:
    solo = queue()
    stage(solo, 0, b"1", b"2")
    assert (solo.take(), solo.log().active, solo.numbers()) == (None, 0, [])
    assert solo.run(staging.stages(solo.broker)) == [(STAGE, solo.now.wall_ms)]
    solo.crash()
    assert publish(solo) is False
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2"]
    assert solo.run(staging.stages(solo.broker)) == []
    assert solo.tables() == "M"


def test_in_chunks_in_order_and_over_crashes_in_between() -> None:
    for crash in (None, "committed", "lost"):
        solo = small()
        names = [b"%d" % number for number in range(8)]
        stage(solo, 0, *names)
        more = True
        while more:
            more = publish(solo, commit=crash != "lost")
            if crash == "lost":
                solo.crash()
                more = publish(solo)
            if crash == "committed":
                solo.crash()
        assert [body_of(entry) for entry in solo.take_all()] == names
        assert (solo.tables(), solo.broker.size) == ("M", solo.log().active_bytes)


def test_chunks_that_are_not_synced_are_not_published_again() -> None:
    solo = small()
    names = [b"%d" % number for number in range(8)]
    stage(solo, 0, *names)
    while publish(solo, commit=False):
        pass
    assert publish(solo, commit=False) is False
    solo.commit()
    assert [body_of(entry) for entry in solo.take_all()] == names


def test_the_same_numbers_written_twice_are_one_and_the_size_comes_out_right() -> None:
    solo = small()
    stage(solo, 0, b"1", b"2")
    stage(solo, 0, b"1", b"2")
    stage(solo, 2, b"3", b"4")
    solo.crash()
    while publish(solo):
        pass
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2", b"3", b"4"]
    assert solo.broker.size == solo.log().active_bytes


def test_dropping_throws_it_away() -> None:
    solo = small()
    stage(solo, 0, *[b"%d" % number for number in range(8)])
    stage(solo, 0, b"kept", stage_id=b"t" * 16)
    publish(solo)
    solo.run(staging.drop(solo.broker, STAGE, solo.reply, "drop"))
    solo.run(staging.drop(solo.broker, STAGE, solo.reply, "drop"))
    solo.commit()
    assert solo.replies[-1] == ("drop", None, None)
    assert solo.log().active == 3
    assert [stage_id for stage_id, _ in solo.run(staging.stages(solo.broker))] == [b"t" * 16]
    solo.run(staging.drop(solo.broker, b"t" * 16, None, None))
    solo.commit()
    assert (solo.tables(), solo.broker.size) == ("M", solo.log().active_bytes)


def test_a_stage_that_is_not_synced_or_is_being_published_has_more_to_come() -> None:
    solo = small()
    stage(solo, 0, b"1", commit=False)
    assert publish(solo, commit=False) is True
    solo.commit()
    first = solo.begin(staging.publish_chunk(solo.broker, solo.now, STAGE, None, None))
    assert publish(solo) is True
    first.finish()
    solo.commit()
    assert len(solo.take_all()) == 1


def test_publishing_what_is_not_there_is_harmless() -> None:
    solo = queue()
    assert publish(solo) is False
    assert solo.tables() == ""


def test_duplicates_and_rules_are_looked_at_when_published() -> None:
    solo = topic(1)
    solo.settings.duplicate_window_ms = 60_000
    stage(solo, 0, b"1", b"2", b"1")
    solo.send(b"x", message_id="2")
    publish(solo)
    assert [body_of(entry) for entry in solo.take_all(main(1))] == [b"x", b"1"]


def test_a_stages_id_has_sixteen_bytes() -> None:
    with pytest.raises(ArgumentError):
        stage(queue(), 0, b"1", stage_id=b"short")


def test_large_messages_make_small_chunks() -> None:
    solo = queue()
    solo.settings.bounds.window_bytes = 1000
    messages = [build(b"x" * 400) for _ in range(5)]
    staging.stage(solo.broker, solo.now, STAGE, 0, messages, solo.reply, None)
    solo.commit()
    assert publish(solo) is True
    assert solo.log().active < 5
    while publish(solo):
        pass
    assert solo.log().active == 5


def test_what_is_written_while_it_is_dropped_keeps_its_stage_until_it_expires() -> None:
    for written in (True, False):
        solo = small()
        stage(solo, 0, b"1")
        if written:
            stage(solo, 1, b"2", commit=False)
        dropping = solo.begin(staging.drop(solo.broker, STAGE, None, None))
        if not written:
            stage(solo, 1, b"2")
        dropping.finish()
        solo.commit()
        assert [stage_id for stage_id, _ in solo.run(staging.stages(solo.broker))] == [STAGE]
        solo.run(staging.drop(solo.broker, STAGE, None, None))
        solo.commit()
        assert (solo.tables(), solo.broker.size) == ("", 0)


# Blocks


def blocks(solo: Solo, messages: list[Message]) -> list[int]:
    """How many messages each row of the stage holds."""
    staging.stage(solo.broker, solo.now, STAGE, 0, messages, solo.reply, None)
    solo.commit()
    prefix = solo.broker.prefix + records.STAGED
    return [len(records.staged_messages(solo.rows[key])[0]) for key in solo.keys if key.startswith(prefix)]


def test_many_messages_are_one_row_bounded_by_count_and_by_bytes() -> None:
    small_ones = [build(b"x")] * (STAGE_BLOCK_ROWS + 1)
    assert blocks(queue(), small_ones) == [STAGE_BLOCK_ROWS, 1]
    large_ones = [build(bytes(STAGE_BLOCK_BYTES // 2 - 100))] * 3 + [build(bytes(STAGE_BLOCK_BYTES * 2)), build(b"x")]
    assert blocks(queue(), large_ones) == [2, 1, 1, 1]


def test_a_stage_of_an_older_version_has_one_message_in_each_row() -> None:
    solo = queue()
    stage(solo, 0, b"1", b"2")
    raws = [build(body, message_id=body.decode()).raw for body in (b"1", b"2")]
    prefix = solo.broker.prefix + records.STAGED + STAGE
    for number, raw in enumerate(raws):
        solo.rows[records.number_key(prefix, number)] = records.sealed(raw)
    solo.crash()
    solo.keys = sorted(solo.rows)
    publish(solo)
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2"]
    assert (solo.tables(), solo.broker.size) == ("M", solo.log().active_bytes)


# What enters a log without being looked at is there as if it had been sent

KINDS_OF_MESSAGE = {
    "plain": {},
    "with a time to live": {"ttl_ms": 5_000},
    "scheduled": {"scheduled_ms": 1_700_000_009_000},
    "large": {"body": bytes(40_000)},
}


@pytest.mark.parametrize("kind", KINDS_OF_MESSAGE)
@pytest.mark.parametrize("log_ttl_ms", [None, 9_000])
def test_published_messages_are_stored_as_if_they_were_sent(kind: str, log_ttl_ms: int | None) -> None:
    fields = {"body": b"y", **KINDS_OF_MESSAGE[kind]}  # type: ignore[dict-item]
    messages = [build(b"x", message_id="1"), build(**fields), build(b"z")]  # type: ignore[arg-type]
    own = {} if log_ttl_ms is None else {"ttl_ms": log_ttl_ms}
    sent, published = queue(3, **own), queue(3, **own)  # type: ignore[arg-type]
    sent.send_all(messages)
    staging.stage(published.broker, published.now, STAGE, 0, messages, published.reply, None)
    published.commit()
    publish(published)
    assert published.rows == sent.rows
    assert [entry.sequence for entry in published.take_all()] == [entry.sequence for entry in sent.take_all()]
    published.move(10_000)
    sent.move(10_000)
    assert published.rows == sent.rows


class Ear:
    """Whoever waits for messages of a log."""

    def __init__(self) -> None:
        self.heard = 0

    def available(self) -> None:
        self.heard += 1


def test_receivers_hear_of_it_when_it_is_synced_and_not_before() -> None:
    solo = queue()
    stage(solo, 0, b"1", b"2")
    solo.log().watcher = ear = Ear()
    publish(solo, commit=False)
    assert (ear.heard, solo.take()) == (0, None)
    solo.commit()
    assert ear.heard == 1
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2"]


def test_what_is_sent_before_and_after_it_in_one_batch_keeps_its_place() -> None:
    for window in (2, 100):
        solo = tiny(queue(), window)
        stage(solo, 0, b"2", b"3")
        solo.send(b"1", commit=False)
        publish(solo, commit=False)
        solo.send(b"4")
        solo.send(b"5")
        assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_page_that_was_read_before_it_was_synced_does_not_hide_it() -> None:
    for landed in (True, False):
        solo = tiny(queue(), 4)
        for body in (b"1", b"2", b"3", b"4", b"5"):
            solo.send(body)
        stage(solo, 0, b"6", b"7")
        taken = [solo.take() for _ in range(4)]
        page = solo.begin(receiving.load_page(solo.broker, solo.log()))
        publish(solo, commit=False)
        solo.seal()
        solo.write()
        if landed:
            solo.land()
        page.finish()
        if not landed:
            solo.land()
        found = [*taken, *solo.take_all()]
        assert [body_of(entry) for entry in found if entry is not None] == [b"%d" % n for n in range(1, 8)]


def test_a_page_that_shows_it_before_anybody_was_told_brings_it_once() -> None:
    solo = tiny(queue(), 4)
    for body in (b"1", b"2", b"3", b"4", b"5"):
        solo.send(body)
    stage(solo, 0, b"6", b"7")
    taken = [solo.take() for _ in range(4)]
    publish(solo, commit=False)
    solo.seal()
    solo.write()
    page = solo.begin(receiving.load_page(solo.broker, solo.log()))
    solo.land()
    page.finish()
    found = [*taken, *solo.take_all()]
    assert [body_of(entry) for entry in found if entry is not None] == [b"%d" % n for n in range(1, 8)]
