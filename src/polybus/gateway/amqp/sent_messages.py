"""Messages as clients send them: one or a batch, with their sections in any order that the cloud service takes.

The Python SDK writes delivery annotations last, behind the body and the footer, against AMQP 1.0 §3.2; they are put where
they belong, between header and message annotations. A batch is one transfer whose data sections each hold a whole message
(docs/protocol/amqp.md#batches). Properties are bounded, so that headers do not starve bodies
(docs/protocol/amqp.md#sizes).
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.codec import decode, encode, skip
from polybus.errors import MessageTooLarge, ProtocolError, QuotaExceeded
from polybus.limits import AMQP_BATCH_MESSAGES, AMQP_TURN_DISPOSED, PROPERTIES_BYTES, PROPERTY_BYTES
from polybus.message.message import DATA, DELIVERY_ANNOTATIONS, HEADER, Message
from polybus.message.sections import descriptor

BATCH_FORMAT: Final = 0x80013700


def client_message(raw: bytes) -> Message:
    """The message; ProtocolError where its bytes are none."""
    try:
        return Message(raw)
    except ProtocolError:
        last = _last_section(raw)
        if last < 0:
            raise
        first = _after_header(raw)
        return Message(raw[:first] + raw[last:] + raw[first:last])


def _after_header(raw: bytes) -> int:
    code, value_at = descriptor(raw, 0)
    return skip(raw, value_at) if code == HEADER else 0


def _last_section(raw: bytes) -> int:
    """Where the last section begins if it holds delivery annotations and stands behind others; else -1."""
    pos = start = code = 0
    while pos < len(raw):
        start = pos
        code, value_at = descriptor(raw, pos)
        pos = skip(raw, value_at)
    return start if start > 0 and code == DELIVERY_ANNOTATIONS else -1


def batch_messages(payload: bytes) -> list[Message]:
    """The messages inside a batch, all at once."""
    batch = Batch(payload)
    while not batch.take_apart():
        pass
    return batch.messages


class Batch:
    """A batch that is taken apart bit by bit; its own header and properties are only copies of the first message's."""

    __slots__ = ("_at", "_payload", "messages")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0
        self.messages: list[Message] = []

    def take_apart(self) -> bool:
        """Makes a few messages more; True where there are no others."""
        payload, at = self._payload, self._at
        for _ in range(AMQP_TURN_DISPOSED):
            if at >= len(payload):
                return True
            if payload[at] != 0:
                raise ProtocolError("amqp:decode-error", "a section of a batch does not begin with a descriptor")
            code, at = decode(payload, at + 1)
            if code != DATA:
                at = skip(payload, at)
                continue
            value, at = decode(payload, at)
            if not isinstance(value, bytes):
                raise ProtocolError("amqp:decode-error", "a batch holds its messages in data sections")
            if len(self.messages) == AMQP_BATCH_MESSAGES:
                raise QuotaExceeded(f"A batch may have {AMQP_BATCH_MESSAGES} messages.")
            message = client_message(value)
            check_properties(message)
            self.messages.append(message)
        self._at = at
        return False


def check_properties(message: Message) -> None:
    """Raises MessageTooLarge where a property, or all of them together, are too large."""
    size = _bytes_before_body(message)
    if size <= PROPERTY_BYTES:
        return
    if size > PROPERTIES_BYTES:
        raise MessageTooLarge(f"The message's properties take {size} bytes, and may take {PROPERTIES_BYTES}.")
    for name, value in message.application_properties().items():
        if len(encode(value)) > PROPERTY_BYTES:
            raise MessageTooLarge(
                f"The property '{name[:100]}' is larger than the {PROPERTY_BYTES} bytes that it may take."
            )


def _bytes_before_body(message: Message) -> int:
    if message.body_at:
        return message.body_at
    # Without a body everything counts; a body that comes first leaves nothing to count.
    return len(message.raw) if message.properties_at or message.application_at else message.bare_at
