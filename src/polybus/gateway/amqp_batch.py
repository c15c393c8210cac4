"""The cloud's batch format: one transfer whose data sections each hold a whole message (spec/amqp.md §4.3)."""

from __future__ import annotations

from typing import Final

from polybus.errors import ProtocolError
from polybus.message.message import DATA, Message

BATCH_FORMAT: Final = 0x80013700


def batch_messages(payload: bytes) -> list[Message]:
    """The messages inside a batch; its own header and properties are only copies of the first one's."""
    messages: list[Message] = []
    for code, value in Message(payload).body():
        if code != DATA or not isinstance(value, bytes):
            raise ProtocolError("amqp:decode-error", "a batch holds its messages in data sections")
        messages.append(Message(value))
    return messages
