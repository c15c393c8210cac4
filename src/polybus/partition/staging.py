"""Messages that are stored but not yet there: what a Spark task wrote waits until its epoch is published.

A stage is a numbered run of messages. Publishing moves it into the log in chunks and remembers its place, so
that a crash in the middle neither doubles nor drops anything. Duplicates and rules are looked at when published.
"""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.errors import ArgumentError
from polybus.message.message import Message
from polybus.partition import records, sending
from polybus.partition.broker import Broker, Steps
from polybus.partition.output import Reply
from polybus.partition.receiving import rows_of
from polybus.rows import Get, Scan

STAGE_BYTES: Final = 16
"""A stage's id."""
CHUNK: Final = 1_000


def stage(
    broker: Broker,
    now: Now,
    stage_id: bytes,
    first: int,
    messages: list[Message],
    reply: Reply,
    context: object,
) -> None:
    """Stores messages under a stage, numbered from `first`; the same numbers written twice are one."""
    if len(stage_id) != STAGE_BYTES:
        raise ArgumentError("A stage's id has 16 bytes.")
    sending.check(broker, messages)
    batch = broker.out()
    prefix = broker.prefix + records.STAGED + stage_id
    for offset, message in enumerate(messages):
        batch.put(records.number_key(prefix, first + offset), records.sealed(message.raw))
    size = sum(message.size for message in messages)
    broker.size += size
    batch.put(broker.prefix + records.STAGES + stage_id, records.sealed_number(broker.wall(now)))
    batch.replies.append((reply, context, None))


def stages(broker: Broker) -> Steps[list[tuple[bytes, int]]]:
    """The stages of this partition and when each was last written to."""
    prefix = broker.prefix + records.STAGES
    rows = yield Scan(prefix, records.after(prefix), 1 << 20)
    return [(key[len(prefix) :], records.unsealed_number(value, "a stage")) for key, value in rows_of(rows)]


def publish_chunk(
    broker: Broker, now: Now, stage_id: bytes, reply: Reply | None, context: object
) -> Steps[bool]:
    """Moves the next messages of a stage into the log; True where more are left."""
    prefix = broker.prefix + records.STAGED + stage_id
    rows = rows_of((yield Scan(prefix, records.after(prefix), CHUNK)))
    messages = [Message(records.unsealed(value, "a staged message")) for _, value in rows]
    keys = sending.rows_needed(broker, messages)
    answer = (yield Get(keys)) if keys else []
    known: dict[bytes, object] = dict(zip(keys, answer, strict=True))
    wall_ms = broker.wall(now)
    batch = broker.out()
    for (key, _), message in zip(rows, messages, strict=True):
        batch.delete(key)
        broker.size -= message.size
        if not sending.is_duplicate(broker, message, wall_ms, known):
            sending.accept(broker, message, wall_ms, [])
    more = len(rows) == CHUNK
    if not more:
        batch.delete(broker.prefix + records.STAGES + stage_id)
    if reply is not None:
        batch.replies.append((reply, context, more))
    return more


def drop(broker: Broker, stage_id: bytes, reply: Reply | None, context: object) -> Steps[None]:
    """Throws a stage away."""
    prefix = broker.prefix + records.STAGED + stage_id
    start = prefix
    while True:
        rows = rows_of((yield Scan(start, records.after(prefix), CHUNK)))
        batch = broker.out()
        for key, value in rows:
            batch.delete(key)
            broker.size -= len(value) - 4
            start = key + b"\x00"
        if len(rows) < CHUNK:
            break
    batch = broker.out()
    batch.delete(broker.prefix + records.STAGES + stage_id)
    if reply is not None:
        batch.replies.append((reply, context, None))
