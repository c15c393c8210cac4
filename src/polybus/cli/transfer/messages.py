"""Messages taken from one place, sent to the same place on another bus, and settled at the source when they are there."""

from __future__ import annotations

import datetime
from typing import Any

from polybus.cli.client import Client, json_of
from polybus.cli.output import REFUSED, CommandFailure
from polybus.cli.transfer.journal import SENDING, SENT, SETTLED, TransferJournal
from polybus.limits import CLI_PAGE, TRANSFER_BATCH, TRANSFER_WAIT_SECONDS

HELPER = "polybus-transfer"
"""A queue at the target that messages for one subscription pass through: no SDK can send to a subscription alone."""
_PROPERTIES = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_KEPT = ("x-opt-partition-key", "x-opt-via-partition-key")


def resent(message: Any) -> Any:
    """A received message as it is sent on: all of it but what a bus adds; it lives on for as long as it has left."""
    from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

    raw = message.raw_amqp_message
    annotations = {
        key: value
        for key, value in (raw.annotations or {}).items()
        if (text := key.decode() if isinstance(key, bytes) else str(key)) in _KEPT or not text.startswith("x-opt-")
    }
    given = raw.properties
    properties = {name: getattr(given, name) for name in _PROPERTIES if given is not None}
    header = AmqpMessageHeader(time_to_live=_left(message))
    return AmqpAnnotatedMessage(
        header=header,
        properties=AmqpMessageProperties(**properties),
        annotations=annotations or None,
        application_properties=raw.application_properties,
        **_body(raw),
    )


def _body(raw: Any) -> dict[str, Any]:
    kind = raw.body_type.value
    body = raw.body
    if kind == "data":
        return {"data_body": list(body) if body is not None else b""}
    return {"sequence_body": list(body)} if kind == "sequence" else {"value_body": body}


def _left(message: Any) -> int | None:
    """Milliseconds that it has left to live."""
    expires = message.expires_at_utc
    if message.time_to_live is None or expires is None:
        return None
    return max(int((expires - datetime.datetime.now(datetime.UTC)).total_seconds() * 1000), 1)


def _key(message: Any) -> Any:
    return message.session_id or message.partition_key


class TransferPlace:
    """One queue or subscription, on both buses, and its dead letters."""

    def __init__(
        self, source: Client, target: Client, journal: TransferJournal, described: Any, topic: str | None
    ) -> None:
        self._source = source
        self._target = target
        self._journal = journal
        self._topic = topic
        self._name = described.name
        self._sessions = bool(described.requires_session)
        self.path = self._name if topic is None else f"{topic}/Subscriptions/{self._name}"
        self.moved = 0
        self.resumed = 0
        """Those that an earlier run had sent already."""

    def counts(self) -> Any:
        """What the source still has."""
        admin = self._source.admin
        if self._topic is None:
            return admin.get_queue_runtime_properties(self._name)
        return admin.get_subscription_runtime_properties(self._topic, self._name)

    # Receivers

    def _receiver(self, client: Client, **options: Any) -> Any:
        if self._topic is None:
            return client.messaging.get_queue_receiver(self._name, **options)
        return client.messaging.get_subscription_receiver(self._topic, self._name, **options)

    def _sender(self) -> Any:
        return self._target.messaging.get_queue_sender(self._name if self._topic is None else HELPER)

    # Dead letters first: they are made so at the target while nothing else is there

    def move_dead_letters(self) -> None:
        from azure.servicebus import ServiceBusSubQueue

        place = f"{self.path}/$DeadLetterQueue"
        if not self.counts().dead_letter_message_count:
            return
        with self._receiver(self._source, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            while self.counts().dead_letter_message_count and (batch := self._next(receiver)):
                for message in batch:
                    self._once(place, receiver, [message], self._bury)

    def _bury(self, messages: list[Any]) -> None:
        """Sends one message, receives it at once, and lets it die as it had."""
        (message,) = messages
        self._deliver([message])
        options = {"session_id": message.session_id} if self._sessions else {}
        with self._receiver(self._target, **options) as receiver:
            for found in receiver.receive_messages(1, max_wait_time=TRANSFER_WAIT_SECONDS):
                if found.message_id != message.message_id:
                    receiver.abandon_message(found)
                    raise CommandFailure(
                        f"'{self.path}' of the target is in use: dead letters cannot be moved there", REFUSED
                    )
                receiver.dead_letter_message(
                    found, reason=message.dead_letter_reason, error_description=message.dead_letter_error_description
                )
                return
        raise CommandFailure(f"a dead letter that was sent to '{self.path}' of the target did not come", REFUSED)

    # The rest

    def move_messages(self) -> None:
        if not self.counts().total_message_count:
            return
        if self._sessions:
            self._move_sessions()
            return
        with self._receiver(self._source) as receiver:
            if self._topic is None:
                self._move_scheduled(receiver)
            self._move_deferred(receiver)
            self._move_active(receiver)

    def _move_active(self, receiver: Any) -> None:
        while self.counts().active_message_count and (batch := self._next(receiver)):
            for run in _runs(batch):
                self._once(self.path, receiver, run, self._deliver)

    def _move_sessions(self) -> None:
        from azure.servicebus import NEXT_AVAILABLE_SESSION
        from azure.servicebus.exceptions import OperationTimeoutError

        while self.counts().active_message_count:
            options = {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": TRANSFER_WAIT_SECONDS}
            try:
                with self._receiver(self._source, **options) as receiver:
                    self._move_deferred(receiver)
                    self._move_active(receiver)
            except OperationTimeoutError:
                return

    def _next(self, receiver: Any) -> list[Any]:
        return list(receiver.receive_messages(TRANSFER_BATCH, max_wait_time=TRANSFER_WAIT_SECONDS))

    def _peeked(self, receiver: Any, state: str) -> list[Any]:
        found: list[Any] = []
        first = 1
        while page := receiver.peek_messages(CLI_PAGE, sequence_number=first):
            found += [each for each in page if each.state.name.lower() == state]
            first = page[-1].sequence_number + 1
        return found

    def _move_deferred(self, receiver: Any) -> None:
        """Deferred messages become active: the numbers by which somebody would fetch them are the source's."""
        for each in self._peeked(receiver, "deferred"):
            for message in receiver.receive_deferred_messages([each.sequence_number]):
                self._once(self.path, receiver, [message], self._deliver)

    def _move_scheduled(self, receiver: Any) -> None:
        place = f"{self.path}/scheduled"
        with self._source.messaging.get_queue_sender(self._name) as canceller, self._sender() as sender:
            for message in self._peeked(receiver, "scheduled"):
                number = message.sequence_number
                if self._journal.state(place, number) != SENT:
                    self._journal.note(place, SENDING, [number])
                    sender.schedule_messages(resent(message), message.scheduled_enqueue_time_utc)
                    self._journal.note(place, SENT, [number])
                    self.moved += 1
                else:
                    self.resumed += 1
                canceller.cancel_scheduled_messages(number)
                self._journal.note(place, SETTLED, [number])

    # Once

    def _once(self, place: str, receiver: Any, messages: list[Any], deliver: Any) -> None:
        """Delivers what was not delivered yet, and settles all of it at the source."""
        fresh = [each for each in messages if not self._was_sent(place, each)]
        numbers = [each.sequence_number for each in fresh]
        if fresh:
            self._journal.note(place, SENDING, numbers)
            deliver(fresh)
            self._journal.note(place, SENT, numbers)
        self.moved += len(fresh)
        self.resumed += len(messages) - len(fresh)
        for each in messages:
            receiver.complete_message(each)
        self._journal.note(place, SETTLED, [each.sequence_number for each in messages])

    def _was_sent(self, place: str, message: Any) -> bool:
        state = self._journal.state(place, message.sequence_number)
        return state == SENT or (state == SENDING and self._arrived(place, message))

    def _arrived(self, place: str, message: Any) -> bool:
        """Whether the target has a message with this id: whoever sent it did not live to say so."""
        from azure.servicebus import ServiceBusSubQueue

        options: dict[str, Any] = {"session_id": message.session_id} if self._sessions else {}
        if place.endswith("$DeadLetterQueue"):
            options = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
        with self._receiver(self._target, **options) as receiver:
            first = 1
            while page := receiver.peek_messages(CLI_PAGE, sequence_number=first):
                if any(each.message_id == message.message_id for each in page):
                    return True
                first = page[-1].sequence_number + 1
        return False

    # Delivery

    def _deliver(self, messages: list[Any]) -> None:
        with self._sender() as sender:
            sender.send_messages([resent(each) for each in messages])
        if self._topic is not None:
            self.pass_on()

    def pass_on(self) -> None:
        """Moves what lies in the helper queue to the subscription alone."""
        with self._target.messaging.get_queue_receiver(HELPER) as receiver:
            while page := receiver.peek_messages(CLI_PAGE, sequence_number=1):
                numbers = [each.sequence_number for each in page]
                body = {"numbers": numbers, "to": self.path}
                json_of(self._target.ask("POST", f"/$polybus/entities/{HELPER}/move", body))


def _runs(messages: list[Any]) -> list[list[Any]]:
    """Neighbours that can be sent as one batch: those that have the same key, or none."""
    runs: list[list[Any]] = []
    for message in messages:
        if runs and _key(runs[-1][-1]) == _key(message) and message.message_id is not None:
            runs[-1].append(message)
        else:
            runs.append([message])
    return runs
