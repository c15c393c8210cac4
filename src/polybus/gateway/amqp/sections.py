"""A client's message, also where its sections are not in the order that AMQP 1.0 §3.2 prescribes.

The Python SDK writes delivery annotations last, behind the body and the footer, and the cloud service takes that.
They are put where they belong, between header and message annotations.
"""

from __future__ import annotations

from polybus.amqp.codec import skip
from polybus.errors import ProtocolError
from polybus.message.message import DELIVERY_ANNOTATIONS, HEADER, Message
from polybus.message.sections import descriptor


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
