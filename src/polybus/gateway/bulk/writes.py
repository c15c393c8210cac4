"""Writing in bulk: rows are staged by many tasks and published by one driver; messages are moved by their numbers.

A stage is one request. Its rows are checked and written frame by frame, and it is answered when all of them are
synced; one that cannot be a message fails the whole, and nothing of it will ever be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import from_promise, run
from polybus.errors import (
    ArgumentError,
    BusError,
    InvalidOperation,
    MessageNotFound,
    MessageTooLarge,
    ProtocolError,
    ServerBusy,
)
from polybus.gateway.amqp.sent_messages import check_properties
from polybus.gateway.bulk.arrow import ARROW_TYPE, ArrowReader, load_pyarrow
from polybus.gateway.bulk.call import BulkCall, answer, generation, number_in, text_in
from polybus.gateway.bulk.edits import edit_of
from polybus.gateway.bulk.rows import WRITE_COLUMNS, check_columns, message_of
from polybus.gateway.http.properties import parse_json
from polybus.gateway.sas import Rights
from polybus.message.edit import Edit
from polybus.message.message import Message
from polybus.namespace.delivery.redrive import move_messages
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address, fold, parse_address
from polybus.namespace.pipeline.publishing import Publication, Staged
from polybus.namespace.pipeline.stage_writer import STAGE_BYTES, StageWriter

_staging: dict[object, None] = {}
"""Stage requests whose body is being read or taken apart."""

Frame = list[dict[str, Any]]
MESSAGE = "message"
"""A column that is a whole message in AMQP; then it is the only one."""


async def post_stage(request: BulkCall) -> Response:
    """Stores rows that wait to be published; gives what the driver needs to publish them."""
    entity = _whole_entity(request)
    query = request.call.query
    if "producer" in query:
        producer, named = query["producer"], query.get("query", "")
        if not 1 <= len(producer) <= 256 or not 1 <= len(named) <= 256:
            raise ArgumentError("'producer' and 'query' must have 1 to 256 characters.")
        await run(request.bus.publishing.claim(request.namespace.name, producer, named))
    if len(_staging) >= limits.BULK_STAGES:
        raise ServerBusy("Too many stages are being written. Try again.")
    writer = StageWriter(request.bus, entity)
    _staging[writer] = None
    try:
        await _write_all(request, writer)
    except BaseException:
        await run(writer.drop())
        raise
    finally:
        del _staging[writer]
    return answer(
        {
            "stage": writer.id.hex(),
            "entity": entity.name,
            "entity_id": generation(entity),
            "partitions": writer.partitions,
            "rows": writer.rows,
            "bytes": writer.bytes,
        },
        201,
    )


def _whole_entity(request: BulkCall) -> Entity:
    if request.address != Address(request.address.entity):
        raise InvalidOperation(f"Messages cannot be sent to '{request.address.path}'.")
    return request.entity


async def _write_all(request: BulkCall, writer: StageWriter) -> None:
    loose = request.call.query.get("unknown") == "properties"
    async for messages in _messages(request, loose):
        await run(writer.add(messages))
        # Where nothing has to be waited for the loop must still get its turn.
        await asyncio.sleep(0)
    await run(writer.finish())


def _checked(message: Message) -> Message:
    check_properties(message)
    return message


async def _messages(request: BulkCall, loose: bool) -> AsyncIterator[list[Message]]:
    """The messages of a stage, so many at a time as the loop can bear."""
    number = 0
    async for frame in _frames(request, loose):
        if isinstance(frame[0], bytes):
            yield [_sent(raw, place) for place, raw in enumerate(frame, number)]
        else:
            yield [_checked(message_of(row, place)) for place, row in enumerate(frame, number)]
        number += len(frame)


def _sent(raw: bytes, number: int) -> Message:
    """A message that came whole; it is looked at as one that a client sends."""
    try:
        return _checked(Message(raw))
    except MessageTooLarge as error:
        raise MessageTooLarge(f"Row {number}: {error.description}") from None
    except (BusError, ProtocolError) as error:
        raise ArgumentError(f"Row {number}: {error.description}") from None


async def _frames(request: BulkCall, loose: bool) -> AsyncIterator[list[Any]]:
    """Rows as dictionaries, or whole messages as bytes."""
    kind = request.call.headers.get("content-type", "").split(";")[0].strip().lower()
    body = await request.call.body(limits.BULK_STAGE_BYTES, seconds=limits.BULK_STAGE_SECONDS)
    if kind == ARROW_TYPE:
        await load_pyarrow()
        reader = ArrowReader(body)
        if reader.names == [MESSAGE]:
            for raws in reader.values(MESSAGE, limits.BULK_MESSAGE_FRAME_ROWS):
                yield raws
            return
        check_columns(reader.names, loose)
        for frame in reader.frames(limits.BULK_FRAME_ROWS):
            yield frame
        return
    for frame in _lines(body, loose):
        yield frame


def _lines(body: bytes, loose: bool) -> Iterator[Frame]:
    """Rows of JSON, one on each line."""
    frame: Frame = []
    for number, line in enumerate(body.splitlines()):
        if not line.strip():
            continue
        if number >= limits.BULK_STAGE_ROWS:
            raise ArgumentError(f"A stage may have {limits.BULK_STAGE_ROWS} rows.")
        row = parse_json(line, f"row {number}")
        if not isinstance(row, dict):
            raise ArgumentError(f"Row {number} must be a JSON object.")
        check_columns(list(row), loose)
        frame.append(row)
        if len(frame) >= limits.BULK_FRAME_ROWS:
            yield frame
            frame = []
    if frame:
        yield frame


async def post_publish(request: BulkCall) -> Response:
    """Makes stages visible, once for each epoch of a query (or just so, without a producer); answers when that is
    certain."""
    body = await request.json()
    stages = _stages(request, body)
    publishing = request.bus.publishing
    if "producer" not in body:
        return await _published(body, await run(publishing.publish_plain(stages)), {})
    producer, query = text_in(body, "producer"), text_in(body, "query")
    epoch = number_in(body, "epoch")
    publication = await run(publishing.publish(request.namespace.name, producer, query, epoch, stages))
    known = publishing.producer(request.namespace.name, producer)
    return await _published(body, publication, {"epoch": known.epoch if known is not None else -1})


async def _published(body: dict[str, Any], publication: Publication | None, told: dict[str, int]) -> Response:
    """Answers, at once or when all of it can be received, as the client wishes."""
    visible = True
    if publication is not None:
        moved = from_promise(publication.visible)
        await asyncio.wait((moved,), timeout=number_in(body, "wait_seconds", 0, 60))
        visible = moved.done()
    return answer({"published": publication is not None, **told, "visible": visible})


async def post_abort(request: BulkCall) -> Response:
    """Throws stages away that nobody will publish."""
    stages = _stages(request, await request.json())
    await run(request.bus.publishing.drop(stages))
    return Response(status_code=204)


def _stages(request: BulkCall, body: dict[str, Any]) -> list[Staged]:
    """The stages that a request names; the right to send is asked for on each of their entities."""
    given = body.get("stages", [])
    if not isinstance(given, list):
        raise ArgumentError("'stages' must be a list of what staging answered.")
    allowed = {fold(request.address.entity)}
    return [_stage(request, stage, allowed) for stage in given]


def _stage(request: BulkCall, stage: object, allowed: set[str]) -> Staged:
    if not isinstance(stage, dict):
        raise ArgumentError("A stage must be what staging answered.")
    name, partitions = text_in(stage, "entity"), stage.get("partitions")
    if fold(name) not in allowed:
        request.authorize(Rights.SEND, name)
        allowed.add(fold(name))
    entity = request.namespace.entity(name)
    if stage.get("entity_id") != generation(entity):
        raise ArgumentError(f"The stage was written for another entity that was called '{name[:100]}'.")
    try:
        stage_id = bytes.fromhex(text_in(stage, "stage"))
    except ValueError:
        stage_id = b""
    known = range(len(entity.partitions))
    if (
        len(stage_id) != STAGE_BYTES
        or not isinstance(partitions, list)
        or not all(type(i) is int and i in known for i in partitions)
    ):
        raise ArgumentError("A stage must be what staging answered.")
    return Staged(entity.id, stage_id, list(dict.fromkeys(partitions)))


async def get_producer(request: BulkCall) -> Response:
    """How far a producer has published, and for which query."""
    known = request.bus.publishing.producer(request.namespace.name, request.name)
    if known is None:
        raise MessageNotFound(f"There is no producer '{request.name}'.")
    return answer({"name": known.name, "query": known.query, "epoch": known.epoch})


async def post_move(request: BulkCall) -> Response:
    """Takes messages out by number and sends them elsewhere, changed or not, in one batch for each partition."""
    body = await request.json(limits.BULK_MOVE_BYTES)
    numbers = _numbers(body.get("numbers"))
    target = parse_address(text_in(body, "to", 512))
    if target.sub_queue is not None or target.management or target.special is not None:
        raise ArgumentError("Messages can be moved to a queue, a topic or a subscription.")
    request.authorize(Rights.SEND, target.path)
    destination = request.namespace.addressed(target)
    subscription = 0 if target.subscription is None else destination.subscription(target.subscription).number
    changed, edits = _alterations(body, numbers, destination.max_message_bytes)
    work = move_messages(
        request.namespace, request.entity, request.log_id, numbers, changed, edits, destination.name, subscription
    )
    report = await run(work)
    return answer(
        {
            "moved": report.moved,
            "missing": report.missing,
            "locked": report.locked,
            "unreachable": report.unreachable,
        }
    )


def _numbers(value: object) -> list[int]:
    if not isinstance(value, list) or not 1 <= len(value) <= limits.MOVE_NUMBERS:
        raise ArgumentError(f"'numbers' must be a list of 1 to {limits.MOVE_NUMBERS} sequence numbers.")
    for number in value:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
            raise ArgumentError("'numbers' must be sequence numbers.")
    return value


def _alterations(
    body: dict[str, Any], numbers: list[int], largest: int
) -> tuple[dict[int, Message], dict[int, Edit]]:
    """What is altered of messages that move: those that are given whole, and those that are given in part."""
    rows = _by_number(body, "changes", numbers)
    changed = {number: _new_message(row, place, largest) for place, (number, row) in enumerate(rows.items())}
    edits = {number: edit_of(row, number, largest) for number, row in _by_number(body, "edits", numbers).items()}
    if changed.keys() & edits.keys():
        raise ArgumentError("A message is given whole in 'changes', or in part in 'edits', not both.")
    return changed, edits


def _by_number(body: dict[str, Any], name: str, numbers: list[int]) -> dict[int, dict[str, Any]]:
    """Rows for some of the numbers that are to be moved."""
    value = body.get(name)
    if value is None:
        return {}
    wanted = set(numbers)
    found: dict[int, dict[str, Any]] = {}
    for text, row in value.items() if isinstance(value, dict) else [("", None)]:
        if not text.isascii() or not text.isdigit() or int(text[:20]) not in wanted or not isinstance(row, dict):
            raise ArgumentError(f"'{name}' must be a JSON object of sequence numbers to rows.")
        found[int(text)] = row
    return found


def _new_message(row: dict[str, Any], place: int, largest: int) -> Message:
    check_columns([name for name in row if name in WRITE_COLUMNS] or list(row), False)
    message = _checked(message_of(row, place))
    if message.size > largest:
        raise MessageTooLarge(f"Row {place} is a message of {message.size} bytes; the limit is {largest}.")
    return message
