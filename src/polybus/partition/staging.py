"""Messages that are stored but not yet there: what a Spark task wrote waits until its epoch is published.

A stage is a numbered run of messages, many in one row: they come together and leave together. Publishing moves it
into the log in chunks and remembers its place, so that a crash in the middle neither doubles nor drops anything.
Duplicates and rules are looked at when published; where there are none, the messages need not be looked at again.
"""

from __future__ import annotations

from typing import Any, Final

from polybus.clock import Now
from polybus.errors import ArgumentError, PolybusError
from polybus.limits import STAGE_BLOCK_BYTES, STAGE_BLOCK_ROWS
from polybus.message.message import Message
from polybus.partition import records, sending, storing
from polybus.partition.broker import Broker, Steps
from polybus.partition.kinds import MAIN
from polybus.partition.reading import rows_of, scan
from polybus.partition.stages import Stage
from polybus.promise import C, Reply
from polybus.rows import Get, Scan

STAGE_BYTES: Final = 16
"""A stage's id."""


def stage(
    broker: Broker,
    now: Now,
    stage_id: bytes,
    first: int,
    messages: list[Message],
    reply: Reply[C, Any],
    context: C,
) -> None:
    """Stores messages under a stage, numbered from `first`; the same numbers written twice are one."""
    if len(stage_id) != STAGE_BYTES:
        raise ArgumentError("A stage's id has 16 bytes.")
    sending.check(broker, messages)
    wall_ms = broker.wall(now)
    broker.settings.own.accessed_ms = wall_ms
    batch = broker.out()
    prefix = broker.prefix + records.STAGED + stage_id
    size = 0
    for block in _blocks(broker, messages):
        plain = all(message.ttl_ms < 0 and not message.scheduled_ms for message in block)
        value = records.staged_block([message.raw for message in block], plain)
        batch.put(records.number_key(prefix, first), value)
        first += len(block)
        size += sum(message.size for message in block)
    known = broker.stages.open.setdefault(stage_id, Stage(wall_ms, 0))
    known.touched_ms = wall_ms
    known.bytes += size
    known.unsynced += 1
    broker.size += size
    batch.put(broker.prefix + records.STAGES + stage_id, known.record())
    batch.replies.append((_staged, known, None))
    batch.replies.append((reply, context, None))


def _block_rows(broker: Broker) -> int:
    return min(STAGE_BLOCK_ROWS, broker.bounds.stage_rows)


def _blocks(broker: Broker, messages: list[Message]) -> list[list[Message]]:
    """The messages cut into runs, each small enough for one row."""
    most_rows, most_bytes = _block_rows(broker), min(STAGE_BLOCK_BYTES, broker.bounds.window_bytes)
    blocks: list[list[Message]] = []
    block: list[Message] = []
    size = 0
    for message in messages:
        if block and (len(block) >= most_rows or size + message.size > most_bytes):
            blocks.append(block)
            block, size = [], 0
        block.append(message)
        size += message.size
    if block:
        blocks.append(block)
    return blocks


def _staged(stage: Stage, result: None, error: PolybusError | None) -> None:
    del result, error
    stage.unsynced -= 1


def stages(broker: Broker) -> Steps[list[tuple[bytes, int]]]:
    """The stages of this partition and when each was last written to."""
    prefix = broker.prefix + records.STAGES
    rows = rows_of((yield Scan(prefix, records.after(prefix), 1 << 20)))
    known = broker.stages.open
    ids = [key[len(prefix) :] for key, _ in rows]
    return [(stage_id, known[stage_id].touched_ms) for stage_id in ids if stage_id in known]


def publish_chunk(broker: Broker, now: Now, stage_id: bytes, reply: Reply[C, Any] | None, context: C) -> Steps[bool]:
    """Moves the next messages of a stage into the log; True where more are left."""
    stage = broker.stages.open.get(stage_id)
    more = False
    if stage is not None:
        more = stage.busy or stage.unsynced > 0
        if not more:
            stage.busy = True
            try:
                more = yield from _publish(broker, now, stage_id, stage)
            finally:
                stage.busy = False
    if reply is not None:
        broker.out().replies.append((reply, context, more))
    return more


def _publish(broker: Broker, now: Now, stage_id: bytes, stage: Stage) -> Steps[bool]:
    prefix = broker.prefix + records.STAGED + stage_id
    end, limit = records.after(prefix), max(broker.bounds.stage_rows // _block_rows(broker), 1)
    rows, complete = yield from scan(stage.at or prefix, end, limit, broker.bounds.window_bytes)
    blocks = [records.staged_messages(value) for _, value in rows]
    if not _append_raw(broker, now, blocks):
        yield from _send(broker, now, [Message(raw, True) for raws, _ in blocks for raw in raws])
    batch = broker.out()
    for key, _ in rows:
        batch.delete(key)
    if complete:
        _end(broker, stage_id, stage)
        return False
    freed = min(sum([len(raw) for raws, _ in blocks for raw in raws]), stage.bytes)
    stage.bytes -= freed
    broker.size -= freed
    stage.at = rows[-1][0] + b"\x00"
    batch.put(broker.prefix + records.STAGES + stage_id, stage.record())
    return True


def _append_raw(broker: Broker, now: Now, blocks: list[tuple[list[bytes], bool]]) -> bool:
    """Puts the messages into the log as they are, where neither they nor the entity ask for more; else does nothing."""
    log = broker.logs[MAIN]
    if not storing.takes_raw(broker, log):
        return False
    largest = broker.bounds.separate_body_bytes
    for raws, plain in blocks:
        if not plain or max([len(raw) for raw in raws]) >= largest:
            return False
    wall_ms = broker.wall(now)
    for raws, _ in blocks:
        storing.append_raw(broker, log, raws, wall_ms)
    return True


def _send(broker: Broker, now: Now, messages: list[Message]) -> Steps[None]:
    keys = sending.rows_needed(broker, messages)
    known: dict[bytes, object] = dict(zip(keys, (yield Get(keys)) if keys else [], strict=True))
    sending.check_known(broker, messages, known)
    wall_ms = broker.wall(now)
    for message in messages:
        if not sending.is_duplicate(broker, message.message_id, wall_ms, known):
            sending.accept(broker, message, wall_ms, [])


def _end(broker: Broker, stage_id: bytes, stage: Stage) -> None:
    """Nothing is left of the stage, and nothing of what it took from the quota."""
    broker.size -= stage.bytes
    broker.out().delete(broker.prefix + records.STAGES + stage_id)
    broker.stages.open.pop(stage_id, None)


def drop(broker: Broker, stage_id: bytes, reply: Reply[C, Any] | None, context: C) -> Steps[None]:
    """Throws a stage away; one that is being written or published meanwhile stays, and expires."""
    stage = broker.stages.open.get(stage_id)
    if stage is not None and not stage.busy and not stage.unsynced:
        stage.busy = True
        size = stage.bytes
        try:
            yield from _drop_rows(broker, stage.at or broker.prefix + records.STAGED + stage_id, stage_id)
        finally:
            stage.busy = False
        if stage.bytes == size:
            _end(broker, stage_id, stage)
    if reply is not None:
        broker.out().replies.append((reply, context, None))


def _drop_rows(broker: Broker, start: bytes, stage_id: bytes) -> Steps[None]:
    end = records.after(broker.prefix + records.STAGED + stage_id)
    complete = False
    while not complete:
        rows, complete = yield from scan(start, end, broker.bounds.stage_rows, broker.bounds.window_bytes)
        batch = broker.out()
        for key, _ in rows:
            batch.delete(key)
            start = key + b"\x00"
