"""What happened to each message, gathered from all histories and from the final contents.

The ledger states facts and draws no conclusion: how often a message was sent and with what outcome, under
which sequence numbers it was seen (each number is a *copy*), what was consumed, what was found at the end.
Members of a transaction appear with the outcome that the transaction gave them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from polybus.testing.history import (
    DEAD_LETTER_QUEUE,
    DELIVERIES,
    FAILED,
    OK,
    SENDS,
    SETTLEMENTS,
    UNKNOWN,
    Event,
    Op,
)
from polybus.testing.verifier.contents import SCHEDULED, EntityContents, FinalState, StoredMessage
from polybus.testing.verifier.timeline import INFINITY, Span

_SESSION_ENDS: Final = frozenset({Op.SESSION_RELEASE, Op.SESSION_LOST, Op.LINK_CLOSED})


class RecordedTransaction:
    """The members of one transaction, how it was discharged, and what that means for them."""

    __slots__ = ("discharge", "members", "outcome")

    def __init__(self) -> None:
        self.members: list[Span] = []
        self.discharge: Span | None = None
        self.outcome = FAILED  # one that is never discharged is rolled back

    def finish(self, span: Span) -> None:
        self.discharge = span
        self.outcome = span.event.outcome if span.event.op == Op.COMMIT else FAILED


class RecordedCopy:
    """One sequence number under which a message was seen."""

    __slots__ = ("consumed", "deliveries", "doubted", "key", "number", "session", "stored", "taken_away")

    def __init__(self, number: int) -> None:
        self.number = number
        self.key: str | None = None
        self.session: str | None = None
        self.deliveries: list[Span] = []
        self.consumed: list[Span] = []  # acknowledged completions, and deliveries that deleted it
        self.doubted: list[Span] = []  # the same with unknown outcome
        self.taken_away: list[Span] = []  # what may have removed it from among the active messages
        self.stored: StoredMessage | None = None

    @property
    def accounted(self) -> bool:
        return self.stored is not None or bool(self.consumed or self.doubted)


class Send:
    """One send with the outcome that counts: its own, or its transaction's."""

    __slots__ = ("outcome", "span")

    def __init__(self, span: Span, outcome: str) -> None:
        self.span = span
        self.outcome = outcome


class MessageRecord:
    """Everything known of one message id in one entity."""

    __slots__ = ("cancelled", "copies", "deaths", "maybe_cancelled", "message_id", "reschedules", "sends", "waiting")

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.sends: list[Send] = []
        self.reschedules: list[Span] = []  # with another time to be delivered at, or perhaps
        self.deaths: list[Span] = []  # dead-lettered by a receiver, or perhaps
        self.copies: dict[int, RecordedCopy] = {}
        self.waiting: list[StoredMessage] = []  # scheduled at the end
        self.cancelled = 0
        self.maybe_cancelled = 0

    def copy(self, number: int) -> RecordedCopy:
        copy = self.copies.get(number)
        if copy is None:
            copy = self.copies[number] = RecordedCopy(number)
        return copy

    @property
    def only_send(self) -> Send | None:
        """The send of a message that was sent exactly once; None where it cannot be told which one it was."""
        return self.sends[0] if len(self.sends) == 1 else None

    @property
    def seen(self) -> int:
        return len(self.copies) + len(self.waiting)


class EntityLedger:
    """The messages of one queue or subscription, its dead-letter queue included."""

    def __init__(self, name: str, contents: EntityContents) -> None:
        self.name = name
        self.options = contents.options
        self.contents = contents
        self.dedup_window_ms = contents.options.dedup_window_ms
        self.messages: dict[str, MessageRecord] = {}
        self.scheduled: dict[int, str] = {}
        self.vanishing: list[Span] = []  # unknown receive-and-deletes that do not know what they took

    def record(self, message_id: str) -> MessageRecord:
        record = self.messages.get(message_id)
        if record is None:
            record = self.messages[message_id] = MessageRecord(message_id)
        return record


class Ledger:
    """All entities of a run, the transactions, and when each lock token was given back."""

    def __init__(self, spans: Iterable[Span], final: FinalState) -> None:
        self.final = final
        self.entities = {name: EntityLedger(name, contents) for name, contents in final.entities.items()}
        self.transactions: dict[str, RecordedTransaction] = {}
        self.released: dict[str, int] = {}  # from when a token may have been given back
        self.session_ends: dict[tuple[str, str, str | None], list[int]] = {}
        self._undeferrals: dict[tuple[str, int], list[Span]] = {}
        self._tokens: dict[str, tuple[str | None, int | None]] = {}
        self._places: dict[str, tuple[EntityLedger, bool]] = {}
        self._inherit_windows()
        spans = list(spans)
        for span in spans:
            self._note_transaction(span)
        for span in spans:
            self._note(span)
        for entity in self.entities.values():
            self._note_contents(entity)

    def place(self, name: str) -> tuple[EntityLedger, bool]:
        """The entity that is meant, and whether it is the dead-letter queue of it."""
        place = self._places.get(name)
        if place is None:
            dead = name.lower().endswith(DEAD_LETTER_QUEUE)
            base = name[: -len(DEAD_LETTER_QUEUE)] if dead else name
            if base not in self.entities:
                raise ValueError(f"the final state does not hold the entity {base!r} of the history")
            place = self._places[name] = (self.entities[base], dead)
        return place

    def destinations(self, name: str) -> tuple[EntityLedger, ...]:
        """Where a message that is sent to this entity is to be found."""
        entity, _ = self.place(name)
        if not entity.options.delivers_to:
            return (entity,)
        return tuple(self.place(destination)[0] for destination in entity.options.delivers_to)

    def outcome(self, event: Event) -> str:
        """The outcome that counts: inside a transaction, that of the transaction."""
        if event.transaction is None or event.outcome == FAILED:
            return event.outcome
        transaction = self.transactions[event.transaction]
        if transaction.outcome == FAILED:
            return FAILED
        return UNKNOWN if UNKNOWN in (event.outcome, transaction.outcome) else OK

    def identify(self, event: Event) -> tuple[str | None, int | None]:
        """Message id and number of an operation that may only name a lock token."""
        if event.message_id is not None and event.number is not None:
            return event.message_id, event.number
        if event.token is not None and event.token in self._tokens:
            return self._tokens[event.token]
        return event.message_id, event.number

    def was_given(self, token: str) -> bool:
        """Whether anybody ever received this lock token."""
        return token in self._tokens

    def may_be_undeferred(self, entity: str, number: int, since: int, until: int) -> bool:
        """Whether a message that was deferred at one stamp may be active again at another, without a receiver."""
        name = self.place(entity)[0].name
        return any(span.ended >= since and span.began <= until for span in self._undeferrals.get((name, number), ()))

    def records(self) -> Iterator[tuple[EntityLedger, MessageRecord]]:
        for entity in self.entities.values():
            for record in entity.messages.values():
                yield entity, record

    def _inherit_windows(self) -> None:
        for source in self.entities.values():
            window = source.options.dedup_window_ms
            for name in source.options.delivers_to if window is not None else ():
                entity, _ = self.place(name)
                entity.dedup_window_ms = max(window or 0, entity.dedup_window_ms or 0)

    def _note_transaction(self, span: Span) -> None:
        name = span.event.transaction
        if name is None:
            return
        transaction = self.transactions.setdefault(name, RecordedTransaction())
        if span.event.op in (Op.COMMIT, Op.ROLLBACK):
            transaction.finish(span)
        elif span.event.op != Op.DECLARE and span.event.outcome != FAILED:
            transaction.members.append(span)

    def _note(self, span: Span) -> None:
        op = span.event.op
        if op in SENDS:
            self._note_send(span)
        elif op in DELIVERIES:
            self._note_delivery(span)
        elif op in SETTLEMENTS:
            self._note_settlement(span)
        elif op == Op.PURGE:
            self._note_purge(span)
        elif op == Op.CANCEL:
            self._note_cancel(span)
        elif op == Op.UNDEFER:
            self._note_undeferral(span)
        elif op == Op.RESCHEDULE:
            self._note_reschedule(span)
        elif op in _SESSION_ENDS:
            self._note_session_end(span)

    def _note_send(self, span: Span) -> None:
        event = span.event
        assert event.message_id is not None, "a send is recorded with its message id"
        send = Send(span, self.outcome(event))
        for entity in self.destinations(event.entity):
            entity.record(event.message_id).sends.append(send)
        if event.op == Op.SCHEDULE and event.number is not None:
            self.place(event.entity)[0].scheduled[event.number] = event.message_id

    def _note_delivery(self, span: Span) -> None:
        event = span.event
        entity, _ = self.place(event.entity)
        deletes = event.op == Op.RECEIVE_AND_DELETE or (event.op == Op.RECEIVE_DEFERRED and event.token is None)
        if event.message_id is None or event.number is None:
            if deletes and event.outcome == UNKNOWN:
                entity.vanishing.append(span)
            return
        if event.outcome == FAILED:
            return
        copy = entity.record(event.message_id).copy(event.number)
        if event.outcome == OK:
            copy.deliveries.append(span)
            copy.key, copy.session = event.key, event.session
        if event.token is not None:
            self._tokens[event.token] = (event.message_id, event.number)
        if deletes:
            self._consume(copy, span, event.outcome)

    def _note_settlement(self, span: Span) -> None:
        event = span.event
        outcome = self.outcome(event)
        if outcome == FAILED:
            return
        if event.token is not None:
            began = self._released_at(span)
            self.released[event.token] = min(began, self.released.get(event.token, INFINITY))
        message_id, number = self.identify(event)
        if message_id is None or number is None or event.op in (Op.ABANDON, Op.RELEASE):
            return
        record = self.place(event.entity)[0].record(message_id)
        copy = record.copy(number)
        copy.taken_away.append(span)
        if event.op == Op.DEAD_LETTER:
            record.deaths.append(span)
        if event.op == Op.COMPLETE:
            self._consume(copy, span, outcome)

    def _note_purge(self, span: Span) -> None:
        """Whoever purges names what it has peeked at; where it is not told what came of it, it may be gone."""
        event = span.event
        if event.outcome == FAILED or event.message_id is None or event.number is None:
            return
        copy = self.place(event.entity)[0].record(event.message_id).copy(event.number)
        copy.taken_away.append(span)
        self._consume(copy, span, event.outcome)

    def _note_undeferral(self, span: Span) -> None:
        event = span.event
        if event.outcome != FAILED and event.number is not None:
            where = (self.place(event.entity)[0].name, event.number)
            self._undeferrals.setdefault(where, []).append(span)

    def _note_reschedule(self, span: Span) -> None:
        event = span.event
        if event.outcome != FAILED and event.message_id is not None:
            for entity in self.destinations(event.entity):
                entity.record(event.message_id).reschedules.append(span)

    def _released_at(self, span: Span) -> int:
        """A settlement in a transaction keeps the lock until the transaction is discharged."""
        if span.event.transaction is None:
            return span.began
        discharge = self.transactions[span.event.transaction].discharge
        return INFINITY if discharge is None else discharge.began

    @staticmethod
    def _consume(copy: RecordedCopy, span: Span, outcome: str) -> None:
        (copy.consumed if outcome == OK else copy.doubted).append(span)

    def _note_session_end(self, span: Span) -> None:
        event = span.event
        if event.outcome != FAILED:
            key = (event.client, event.entity, event.session)
            self.session_ends.setdefault(key, []).append(span.began)

    def _note_cancel(self, span: Span) -> None:
        event = span.event
        outcome = self.outcome(event)
        source, _ = self.place(event.entity)
        message_id = event.message_id
        if message_id is None and event.number is not None:
            message_id = source.scheduled.get(event.number)
        if outcome == FAILED or message_id is None:
            return
        for entity in self.destinations(event.entity):
            record = entity.record(message_id)
            record.cancelled += outcome == OK
            record.maybe_cancelled += outcome == UNKNOWN

    def _note_contents(self, entity: EntityLedger) -> None:
        for message in entity.contents.messages:
            holders: tuple[EntityLedger, ...] = (entity,)
            if message.state == SCHEDULED:  # on a topic they wait in the topic
                holders = self.destinations(entity.name)
            for holder in holders:
                self._note_stored(holder.record(message.message_id), message)

    @staticmethod
    def _note_stored(record: MessageRecord, message: StoredMessage) -> None:
        if message.state == SCHEDULED:
            record.waiting.append(message)
            return
        copy = record.copy(message.number)
        copy.stored = message
        copy.key = message.key if copy.key is None else copy.key
        copy.session = message.session if copy.session is None else copy.session
