"""The cloud's batch format: one transfer whose data sections each hold a whole message (docs/protocol/amqp.md#batches)."""

from __future__ import annotations

from typing import Final

from polybus.amqp.codec import decode, skip
from polybus.errors import ProtocolError, QuotaExceeded
from polybus.gateway.amqp.sections import client_message
from polybus.limits import AMQP_BATCH_MESSAGES
from polybus.message.message import DATA, Message

BATCH_FORMAT: Final = 0x80013700


def batch_messages(payload: bytes) -> list[Message]:
    """The messages inside a batch; its own header and properties are only copies of the first one's."""
    messages: list[Message] = []
    pos = 0
    while pos < len(payload):
        if payload[pos] != 0:
            raise ProtocolError("amqp:decode-error", "a section of a batch does not begin with a descriptor")
        code, pos = decode(payload, pos + 1)
        if code != DATA:
            pos = skip(payload, pos)
            continue
        value, pos = decode(payload, pos)
        if not isinstance(value, bytes):
            raise ProtocolError("amqp:decode-error", "a batch holds its messages in data sections")
        if len(messages) == AMQP_BATCH_MESSAGES:
            raise QuotaExceeded(f"A batch may have {AMQP_BATCH_MESSAGES} messages.")
        messages.append(client_message(value))
    return messages
