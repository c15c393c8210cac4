"""How large the properties of one message may be: headers must not starve bodies (docs/protocol/amqp.md#sizes)."""

from __future__ import annotations

from polybus.amqp.codec import encode
from polybus.errors import MessageTooLarge
from polybus.limits import PROPERTIES_BYTES, PROPERTY_BYTES
from polybus.message.message import Message


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
