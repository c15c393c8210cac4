"""Clients made of the official SDK that write down what they did and saw, so that the verifier can judge a bus.

Each call of the SDK is made once, without its own retries: a send that it repeats after a broken connection may be
there twice, and a history that says once would be untrue. What an error of the SDK means for the effect of a call is
decided here and nowhere else. Every client has a history of its own; `verify` merges them by time.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any, Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus import exceptions as sdk

from polybus.clock import RealClock
from polybus.testing.history import FAILED, OK, UNKNOWN, Began, History, Op, Recorder, digest

IN_DOUBT: Final = "during a commit"
"""The words of a refusal after which nobody knows whether the message is stored."""
REFUSALS: Final = (
    sdk.MessageLockLostError,
    sdk.MessageNotFoundError,
    sdk.MessageSizeExceededError,
    sdk.MessagingEntityDisabledError,
    sdk.MessagingEntityNotFoundError,
    sdk.ServiceBusAuthorizationError,
    sdk.ServiceBusQuotaExceededError,
    sdk.ServiceBusServerBusyError,
    sdk.SessionCannotBeLockedError,
    sdk.SessionLockLostError,
)
"""Errors with which the bus says that it did nothing."""
PATIENCE_S: Final = 60


def outcome_of(error: Exception) -> str:
    """What an error says about the effect of the call that it ended."""
    return FAILED if isinstance(error, REFUSALS) and IN_DOUBT not in str(error) else UNKNOWN


def connect(connection_string: str, **options: Any) -> Any:
    """A client of the SDK that makes each call once."""
    return ServiceBusClient.from_connection_string(
        connection_string, **{"retry_total": 0, "socket_timeout": PATIENCE_S, **options}
    )


def message(message_id: str, body: str | None = None, **properties: Any) -> Any:
    """A message whose body can be told from every other one's."""
    return ServiceBusMessage(body or f"body of {message_id}", message_id=message_id, **properties)


class RecordedClient:
    """One client: its senders and receivers are the SDK's, what it does is in `history`."""

    def __init__(self, name: str) -> None:
        self.history = History()
        self.recorder = Recorder(name, RealClock(), self.history)
        self.slowest_send_ms = 0
        self.failures: dict[str, int] = {}
        """How often each error of the SDK was met, by its name."""

    # Sending

    def send(self, sender: Any, entity: str, sent: Any) -> str:
        """Sends one message; gives the outcome."""
        began = self.recorder.begin()
        outcome, _ = self._attempt(lambda: sender.send_messages(sent, timeout=PATIENCE_S))
        event = self.recorder.record(Op.SEND, entity, outcome, began=began, **_sent(sent))
        if outcome == OK:
            self.slowest_send_ms = max(self.slowest_send_ms, event.ended_ms - event.began_ms)
        return outcome

    def send_batch(self, sender: Any, entity: str, batch_name: str, messages: list[Any]) -> str:
        """Sends messages that arrive together or not at all."""
        began = self.recorder.begin()
        outcome, _ = self._attempt(lambda: sender.send_messages(messages, timeout=PATIENCE_S))
        for each in messages:
            self.recorder.record(Op.BATCH_SEND, entity, outcome, began=began, batch=batch_name, **_sent(each))
        return outcome

    def schedule(self, sender: Any, entity: str, sent: Any, due: datetime.datetime) -> int | None:
        """Schedules one message; gives the number by which it can be cancelled."""
        began = self.recorder.begin()
        outcome, numbers = self._attempt(lambda: sender.schedule_messages(sent, due, timeout=PATIENCE_S))
        number = numbers[0] if numbers else None
        due_ms = int(due.timestamp() * 1000)
        self.recorder.record(Op.SCHEDULE, entity, outcome, began=began, due_ms=due_ms, number=number, **_sent(sent))
        return number

    def cancel(self, sender: Any, entity: str, number: int, message_id: str) -> str:
        began = self.recorder.begin()
        outcome, _ = self._attempt(lambda: sender.cancel_scheduled_messages(number, timeout=PATIENCE_S))
        self.recorder.record(Op.CANCEL, entity, outcome, began=began, number=number, message_id=message_id)
        return outcome

    # Receiving

    def receive(self, receiver: Any, entity: str, at_most: int, wait_s: float, lock_ms: int = 60_000) -> list[Any]:
        """Whatever comes in time, under a lock; nothing where the call fails."""
        return self.try_receive(receiver, entity, at_most, wait_s, lock_ms) or []

    def try_receive(
        self,
        receiver: Any,
        entity: str,
        at_most: int,
        wait_s: float,
        lock_ms: int = 60_000,
        since: Began | None = None,
    ) -> list[Any] | None:
        """Whatever comes in time, under a lock; None where the call fails.

        `since` is when the session was accepted, for the SDK may have had its messages before it was asked.
        """
        began = since or self.recorder.begin()
        outcome, found = self._attempt(
            lambda: receiver.receive_messages(max_message_count=at_most, max_wait_time=wait_s)
        )
        for each in found or ():
            self.note_delivery(entity, each, began, lock_ms)
        return list(found) if outcome == OK else None

    def accept(self, receiver: Any, entity: str) -> Began | None:
        """Opens a session receiver, which locks its session; gives when that began, None where there is none."""
        began = self.recorder.begin()
        outcome, _ = self._attempt(receiver.__enter__)
        if outcome != OK:
            return None
        self.recorder.record(Op.SESSION_ACCEPT, entity, began=began, session=receiver.session.session_id)
        return began

    def release(self, receiver: Any, entity: str) -> None:
        """Closes a session receiver, which gives its session back."""
        began = self.recorder.begin()
        session = receiver.session.session_id
        outcome, _ = self._attempt(receiver.close)
        self.recorder.record(Op.SESSION_RELEASE, entity, outcome, began=began, session=session)

    def note_delivery(self, entity: str, seen: Any, began: Began, lock_ms: int) -> None:
        """A delivery's lock began when the bus says so: the SDK may have had the message before it was asked."""
        until = seen.locked_until_utc
        since_ms = began.ms
        if until is not None:
            ago_ms = int(time.time() * 1000) - (int(until.timestamp() * 1000) - lock_ms)
            since_ms = min(since_ms, time.monotonic_ns() // 1_000_000 - max(ago_ms, 0))
        token = None if seen.lock_token is None else str(seen.lock_token)
        self.recorder.record(
            Op.RECEIVE, entity, began=since_ms, token=token, count=seen.delivery_count, **seen_fields(seen)
        )

    def settle(self, receiver: Any, entity: str, seen: Any, op: str = Op.COMPLETE) -> str:
        """Completes the message, or abandons, defers, dead-letters it; the SDK waits for the bus's answer."""
        calls: dict[str, Callable[[Any], None]] = {
            Op.COMPLETE: receiver.complete_message,
            Op.ABANDON: receiver.abandon_message,
            Op.DEFER: receiver.defer_message,
            Op.DEAD_LETTER: receiver.dead_letter_message,
        }
        fields = {"message_id": seen.message_id, "number": seen.sequence_number, "session": seen.session_id}
        # Once settled, the SDK no longer says what the token was.
        fields["token"] = None if seen.lock_token is None else str(seen.lock_token)
        began = self.recorder.begin()
        outcome, _ = self._attempt(lambda: calls[op](seen))
        self.recorder.record(op, entity, outcome, began=began, **fields)
        return outcome

    def _attempt(self, call: Callable[[], Any]) -> tuple[str, Any]:
        try:
            return OK, call()
        except Exception as error:
            # The SDK lets faults of a dying connection through as they are: whatever it raises, nobody knows more.
            name = type(error).__name__
            self.failures[name] = self.failures.get(name, 0) + 1
            return outcome_of(error), None


def body_of(seen: Any) -> bytes:
    return b"".join(seen.body)


def seen_fields(seen: ServiceBusReceivedMessage) -> dict[str, Any]:
    """What a history says of a message that was received or peeked at."""
    enqueued = seen.enqueued_time_utc
    return {
        "message_id": seen.message_id,
        "key": seen.partition_key,
        "session": seen.session_id,
        "number": seen.sequence_number,
        "digest": digest(body_of(seen)),
        "enqueued_ms": None if enqueued is None else int(enqueued.timestamp() * 1000),
    }


def _sent(sent: Any) -> dict[str, Any]:
    return {
        "message_id": sent.message_id,
        "key": sent.partition_key,
        "session": sent.session_id,
        "digest": digest(body_of(sent)),
    }
