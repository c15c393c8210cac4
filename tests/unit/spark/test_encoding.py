"""Rows made into messages side by side: the same bytes as the bus makes of the same rows, one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from polybus.gateway.bulk.rows import message_of
from polybus.message.message import Message
from polybus.spark.encoding import encoded_messages

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)  # type: ignore[arg-type]
long = st.sampled_from(["", "x" * 127, "é" * 127, "y" * 300])
keys = st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=20)  # type: ignore[arg-type]
rows = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=40) | st.sampled_from([b"z" * 255, b"z" * 256, b"z" * 70_000]),
        "message_id": keys,
        "session_id": keys,
        "partition_key": keys,
        "subject": st.none() | texts | long,
        "correlation_id": st.none() | texts,
        "to": st.none() | texts,
        "reply_to": st.none() | long,
        "reply_to_session_id": keys,
        "content_type": st.none() | st.just("application/json"),
        "properties": st.none()
        | st.dictionaries(texts | long, texts | long, max_size=6).map(lambda d: list(d.items())),
        "one": st.none() | texts,
        "two": st.none() | long,
    }
)
KINDS: dict[str, Any] = {"body": pa.binary(), "properties": pa.map_(pa.string(), pa.string())}


def _batch(found: list[dict[str, Any]], columns: list[str]) -> Any:
    arrays = [pa.array([row[name] for row in found], KINDS.get(name, pa.string())) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=columns)


def _columns(chosen: set[str], either: str) -> list[str]:
    left_out = {"properties"} if either == "columns" else {"one", "two"}
    return ["body", *sorted(chosen - left_out - {"body"})]


@given(
    st.lists(rows, min_size=1, max_size=8),
    st.sets(
        st.sampled_from(
            [
                "message_id",
                "session_id",
                "partition_key",
                "subject",
                "correlation_id",
                "to",
                "reply_to",
                "reply_to_session_id",
                "content_type",
                "properties",
                "one",
                "two",
            ]
        )
    ),
    st.sampled_from(["columns", "properties"]),
)
def test_every_row_becomes_the_message_that_the_bus_would_make(
    found: list[dict[str, Any]], chosen: set[str], either: str
) -> None:
    columns = _columns(chosen, either)
    batch = _batch(found, columns)
    made = encoded_messages(batch)
    assert made is not None
    expected = [message_of(row, number).raw for number, row in enumerate(batch.to_pylist())]
    assert made.to_pylist() == expected
    assert all(Message(raw).raw == raw for raw in expected)


def test_a_body_may_be_text() -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["é", "x" * 300]})
    made = encoded_messages(batch)
    assert made is not None
    assert made.to_pylist() == [message_of(row, 0).raw for row in batch.to_pylist()]


def test_what_needs_more_than_joining_is_left_to_the_bus() -> None:
    now = datetime.now(UTC)
    for more in ({"time_to_live": [5]}, {"scheduled_enqueue_time": [now]}, {"extra": [5]}):
        assert encoded_messages(pa.RecordBatch.from_pydict({"body": [b"x"], **more})) is None
    nulls = pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))
    assert (
        encoded_messages(pa.RecordBatch.from_arrays([pa.array([b"x"]), nulls], names=["body", "properties"])) is None
    )
