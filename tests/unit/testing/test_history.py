"""Histories: what is recorded comes back, in the same bytes, in order."""

from __future__ import annotations

import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from polybus.testing.history import (
    FAILED,
    OK,
    UNKNOWN,
    Event,
    History,
    Op,
    Recorder,
    digest,
    from_line,
    merge,
    to_line,
)
from tests.support.sim_loop import SimClock, SimLoop

_ms = st.integers(min_value=-(2**40), max_value=2**62)
_text = st.none() | st.text()
_int = st.none() | st.integers(min_value=-(2**63), max_value=2**63 - 1)

EVENTS = st.builds(
    Event,
    began_ms=_ms,
    ended_ms=_ms,
    wall_ms=_ms,
    client=st.text(),
    op=st.sampled_from([Op.SEND, Op.RECEIVE, Op.FENCED, Op.CLOCK_MOVED]),
    entity=st.text(),
    outcome=st.sampled_from([OK, FAILED, UNKNOWN]),
    message_id=_text,
    key=_text,
    session=_text,
    number=_int,
    token=_text,
    transaction=_text,
    batch=_text,
    count=_int,
    digest=_text,
    due_ms=_int,
    ttl_ms=_int,
    enqueued_ms=_int,
    partition=_int,
    at_most=_int,
    partitions=st.none() | st.lists(st.integers(0, 15)).map(tuple),
    moved_wall_ms=_int,
    moved_mono_ms=_int,
    after=_int,
    detail=_text,
)


@given(EVENTS)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    line = to_line(event)
    assert from_line(line) == event
    assert to_line(from_line(line)) == line
    assert line.count(b"\n") == 1


def test_a_line_holds_what_is_known_in_a_fixed_order() -> None:
    event = Event(1, 2, 3, "a", Op.SEND, "q", message_id="é", number=7)
    assert to_line(event) == (
        b'{"began_ms":1,"ended_ms":2,"wall_ms":3,"client":"a","op":"send","entity":"q","outcome":"ok",'
        b'"message_id":"\\u00e9","number":7}\n'
    )


def test_a_file_comes_back_without_its_unfinished_last_line(tmp_path: Path) -> None:
    history = History([Event(n, n, n, "a", Op.SEND, "q", message_id=str(n)) for n in range(3)])
    path = tmp_path / "history.jsonl"
    history.write(path)
    assert path.read_bytes() == history.to_bytes()
    path.write_bytes(history.to_bytes()[:-5])
    assert History.read(path).events == history.events[:2]


def test_a_history_with_an_output_writes_each_event_at_once() -> None:
    out = io.BytesIO()
    history = History(out=out)
    for n in range(3):
        history.append(Event(n, n, n, "a", Op.SEND))
        assert out.getvalue() == history.to_bytes()


def test_merging_goes_by_time_and_keeps_the_order_of_each_history() -> None:
    first = [Event(5, 5, 0, "a", Op.SEND, detail="1"), Event(5, 5, 0, "a", Op.SEND, detail="2")]
    second = [Event(1, 1, 0, "b", Op.SEND, detail="0"), Event(2, 9, 0, "b", Op.SEND, detail="3")]
    assert [event.detail for event in merge([first, second])] == ["0", "1", "2", "3"]


def test_a_recorder_stamps_the_end_and_brackets_the_beginning() -> None:
    loop = SimLoop(1)
    clock = SimClock(loop, wall_ms=1_000, mono_ms=50)
    history = History()
    recorder = Recorder("a", clock, history)
    recorder.record(Op.DECLARE, transaction="t")
    began = recorder.begin()
    loop.run_for(0.020)
    clock.jump_wall(-500)
    recorder.record(Op.SEND, "q", UNKNOWN, began=began, message_id="m")
    recorder.record(Op.SEND, "q", began=60, message_id="n")
    declare, send, other = history
    assert (declare.began_ms, declare.ended_ms, declare.after) == (50, 50, None)
    assert (send.began_ms, send.ended_ms, send.wall_ms, send.after) == (50, 70, 520, 1)
    assert (other.began_ms, other.after, other.outcome) == (60, 0, OK)
    assert send.client == "a"


def test_digests_tell_bodies_apart() -> None:
    assert digest(b"one") == digest(b"one") != digest(b"two")
