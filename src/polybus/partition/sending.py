"""Messages come in: duplicates are dropped, numbers given, a topic's rules decide the copies."""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.errors import BusError, InvalidOperation, QuotaExceeded, ServerBusy
from polybus.message.message import GROUP_ID, Message
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, RULE_NAME, Overlay
from polybus.message.rendering import Marks
from polybus.message.view import View
from polybus.partition import cursors, events, records, transfers
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.kinds import DEAD_LETTER, KINDS, MAIN
from polybus.partition.log import Log
from polybus.partition.rule_changes import lay_over
from polybus.partition.settling import HEADER_DESCRIPTION, HEADER_REASON, oversized
from polybus.partition.storing import enter, expiry_of, note
from polybus.promise import C, Reply
from polybus.rules.rule import Copy

SESSION_MISSING: Final = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session"
    " support enabled can only receive messages that have the SessionId set to a valid value."
)

SESSION_REASON: Final = "Session ID is null."
SESSION_NULL: Final = "Session enabled entity doesn't allow a message whose session identifier is null."


def rows_needed(broker: Broker, messages: list[Message]) -> list[bytes]:
    """Keys of the rows that `send` must be given: message ids that memory cannot vouch for."""
    if not broker.settings.duplicate_window_ms or broker.duplicates.whole:
        return []
    return rows_of_ids(broker, [message.message_id for message in messages])


def rows_of_ids(broker: Broker, ids: list[str | None]) -> list[bytes]:
    """Keys of the rows of those ids that memory cannot vouch for."""
    if not broker.settings.duplicate_window_ms:
        return []
    history = broker.duplicates
    return [history.id_key(each) for each in ids if each is not None and history.must_read(each)]


def check(broker: Broker, messages: list[Message]) -> None:
    """Refuses what may not be stored; nothing has been changed when it raises."""
    size = 0
    needs_session = broker.settings.own.requires_session
    for message in messages:
        if needs_session and message.session_id is None:
            raise InvalidOperation(SESSION_MISSING)
        size += message.size
    check_size(broker, size)


def check_size(broker: Broker, size: int) -> None:
    if broker.size + size > broker.settings.max_bytes:
        raise QuotaExceeded(
            f"The maximum entity size has been reached or exceeded for '{broker.settings.name}':"
            f" {broker.settings.max_bytes} bytes in each partition."
        )


def check_known(broker: Broker, messages: list[Message], rows: dict[bytes, object] | None) -> None:
    """Refuses messages whose ids can no longer be judged, because memory let go of them while others were read."""
    if broker.settings.duplicate_window_ms and not broker.duplicates.whole:
        check_ids(broker, [message.message_id for message in messages], rows)


def check_ids(broker: Broker, ids: list[str | None], rows: dict[bytes, object] | None) -> None:
    if not broker.settings.duplicate_window_ms:
        return
    for each in ids:
        if each is not None and not broker.duplicates.knows(each, rows):
            raise ServerBusy("Too many messages were sent at once to tell duplicates; try again.")


def send(
    broker: Broker,
    now: Now,
    messages: list[Message],
    rows: dict[bytes, object] | None,
    reply: Reply[C, list[int]] | None,
    context: C,
) -> list[bytes]:
    """Stores the messages, all or none; replies with their sequence numbers after the commit.

    Gives the keys of the rows that hold them, by which a send in doubt can be undone.
    """
    check(broker, messages)
    check_known(broker, messages, rows)
    wall_ms = broker.wall(now)
    broker.settings.own.accessed_ms = wall_ms
    keys: list[bytes] = []
    numbers: list[int] = []
    for message in messages:
        if not is_duplicate(broker, message.message_id, wall_ms, rows):
            numbers.append(accept(broker, message, wall_ms, keys))
        else:
            numbers.append(0)
            if broker.settings.events:
                events.write_duplicate(broker, broker.logs[MAIN], message)
    if reply is not None:
        broker.out().replies.append((reply, context, numbers))
    return keys


def is_duplicate(broker: Broker, message_id: str | None, wall_ms: int, rows: dict[bytes, object] | None) -> bool:
    """Whether the id was accepted within the window; a new id is noted in the same batch."""
    window_ms = broker.settings.duplicate_window_ms
    if not window_ms or message_id is None:
        return False
    history = broker.duplicates
    row = rows.get(history.id_key(message_id)) if rows else None
    seen_ms = history.seen_at(message_id, row)
    if seen_ms is not None and wall_ms - seen_ms < window_ms:
        broker.settings.own.totals.duplicates += 1
        return True
    history.add(broker.out(), message_id, wall_ms, seen_ms)
    return False


def accept(
    broker: Broker,
    message: Message,
    wall_ms: int,
    keys: list[bytes],
    original: int = 0,
    overlay: Overlay | None = None,
    reserved: int = 0,
) -> int:
    """Gives the message its number and its place: scheduled, in the queue, or in the subscriptions.

    A `reserved` number is for a message that waits for its time. Where that has come the number is only the
    original one: those in the queue must grow.
    """
    log = broker.logs[MAIN]
    if message.scheduled_ms > wall_ms:
        sequence = reserved or broker.next_sequence(log)
        keys.append(_schedule(broker, message, sequence, original, overlay))
        return sequence
    sequence = broker.next_sequence(log)
    if reserved:
        original = original or reserved
    if broker.settings.topic:
        _publish(broker, log, message, sequence, original or sequence, wall_ms, overlay, keys)
    else:
        entry = Entry(log, sequence, message, wall_ms, 0, original, overlay, message.size)
        keys.append(place(broker, entry, wall_ms))
    return sequence


def place(broker: Broker, entry: Entry, wall_ms: int, shared: int = 0) -> bytes:
    """Puts an entry into its main log, or on its way where the log forwards; gives the key of its row."""
    log = entry.log
    message = entry.loaded()
    entry.expires_ms = expiry_of(broker, log, message, entry.overlay, wall_ms)
    if log.settings.forward_to is not None:
        return transfers.forward(broker, log, entry, log.settings.forward_to)
    home = None if entry.overlay is None else _home(broker, entry)
    if home is not None:
        entry.own_overlay().application[transfers.MOVED] = log.settings.number
        return transfers.dispatch(broker, log, entry, home, entry.expires_ms)
    if shared:
        broker.bodies.attach(entry, shared)
    elif entry.size >= broker.bounds.separate_body_bytes:
        broker.bodies.attach(entry, broker.bodies.add(broker.out(log), message, 1))
        broker.size += entry.size
    key = enter(broker, log, entry)
    note(broker, entry, events.ENQUEUED)
    return key


def _schedule(broker: Broker, message: Message, sequence: int, original: int, overlay: Overlay | None) -> bytes:
    batch = broker.out()
    key = records.number_key(broker.prefix + records.SCHEDULED, sequence)
    due_ms = message.scheduled_ms
    marks = b"" if overlay is None else overlay.to_bytes()
    size = message.size
    value = records.message_record(sequence, 0, broker.wall_ms, due_ms, 0, original, 0, size, marks, message.raw)
    batch.put(key, value)
    batch.put(records.due_key(broker.prefix, due_ms, sequence), b"")
    broker.schedule.add(due_ms)
    broker.scheduled += 1
    broker.scheduled_bytes += size
    broker.size += size
    return key


def _publish(
    broker: Broker,
    topic_log: Log,
    message: Message,
    sequence: int,
    original: int,
    wall_ms: int,
    overlay: Overlay | None,
    keys: list[bytes],
) -> None:
    """One copy for each subscription whose rules want the message; none is no error."""
    marks = Marks(sequence, wall_ms, original, 0, 0, 0, overlay)
    entries: list[Entry] = []
    for copy in broker.settings.rules.match(View(message, marks), broker.new_id):
        entry = _copy(broker, copy, message, original, wall_ms, overlay)
        if entry is not None:
            entries.append(entry)
    shared = 0
    staying = sum(1 for entry in entries if _forwarded_to(entry.log) is None and _home(broker, entry) is None)
    if staying > 1 and message.size >= broker.bounds.shared_body_bytes:
        shared = broker.bodies.add(broker.out(), message, staying)
        broker.size += message.size
    for entry in entries:
        keys.append(place_copy(broker, entry, wall_ms, shared))
    if broker.settings.keep_topic_log:
        keys.append(cursors.keep(broker, topic_log, sequence, message, wall_ms))


def _copy(
    broker: Broker, copy: Copy, message: Message, original: int, wall_ms: int, overlay: Overlay | None
) -> Entry | None:
    """The entry for one copy, in the subscription's main log or, where its rule failed, in its dead letters."""
    settings = broker.settings.subscriptions.get(copy.subscription)
    error = copy.error
    if settings is None:
        return None
    if error is not None and not settings.dead_letter_filter_errors and not error.kept:
        return None
    own = overlay
    if copy.changes or (copy.rule_name is not None and error is None):
        own = Overlay() if overlay is None else overlay.copy()
        if copy.rule_name is not None:
            own.application[RULE_NAME] = copy.rule_name
        lay_over(own, copy.changes)
    log = broker.log(copy.subscription * KINDS)
    entry = Entry(log, broker.next_sequence(log), message, wall_ms, 0, original, own, message.size)
    if error is not None:
        mark_dead(broker, entry, error.reason, error.description)
    elif copy.changes and oversized(message, own):
        entry.overlay = overlay  # what is too large is not kept in the dead letters either
        mark_dead(broker, entry, HEADER_REASON, HEADER_DESCRIPTION)
    elif settings.requires_session and entry.session_id() is None:
        mark_dead(broker, entry, SESSION_REASON, SESSION_NULL)
    return entry


def mark_dead(broker: Broker, entry: Entry, reason: str, description: str) -> None:
    """Turns an entry that was meant for a main log into a dead letter of it."""
    settings = entry.log.settings
    settings.totals.died(reason)
    overlay = entry.own_overlay()
    overlay.application[DEAD_LETTER_REASON] = reason
    overlay.application[DEAD_LETTER_DESCRIPTION] = description
    overlay.dead_letter_source = settings.source
    entry.log = broker.log(settings.number * KINDS + DEAD_LETTER)


def _home(broker: Broker, entry: Entry) -> tuple[int, int] | None:
    """Where a copy belongs whose rule gave it a session of another partition: a session has one broker (B2)."""
    changed = entry.overlay is not None and GROUP_ID in entry.overlay.fields
    if not changed or entry.log.sessions is None or broker.settings.partitions == 1:
        return None
    try:
        home = broker.router.route(broker.settings.name, entry)
    except BusError:  # the topic is being deleted
        return None
    return None if home == (broker.entity_id, broker.index) else home


def _forwarded_to(log: Log) -> str | None:
    return log.settings.forward_to if log.kind == MAIN else log.settings.forward_dead_letters_to


def place_copy(broker: Broker, entry: Entry, wall_ms: int, shared: int = 0) -> bytes:
    """Puts an entry where it belongs: a main log, or the dead letters that it was turned into."""
    log = entry.log
    if log.kind == MAIN:
        return place(broker, entry, wall_ms, shared)
    destination = _forwarded_to(log)
    if destination is not None:
        return transfers.forward(broker, broker.log(log.settings.number * KINDS), entry, destination, dead=True)
    if shared:
        broker.bodies.attach(entry, shared)
    key = enter(broker, log, entry)
    note(broker, entry, events.ENQUEUED)
    return key
