"""What a move alters of messages, as JSON: some columns of a row, where everything else stays as its sender wrote it.

A whole row would have to say each property again, and rows know properties only as text: a number that nobody meant to
touch would come out as a word, and rules would no longer find it. So an edit names what changes and nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from polybus.amqp.codec import encode
from polybus.amqp.types import Symbol
from polybus.errors import ArgumentError, MessageTooLarge
from polybus.gateway.bulk.rows import body_in, properties_in, property_in
from polybus.limits import KEY_CHARACTERS, PROPERTIES_BYTES, PROPERTY_BYTES
from polybus.message.edit import Edit
from polybus.message.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
)

_FIELDS: Final = {
    "message_id": MESSAGE_ID,
    "session_id": GROUP_ID,
    "subject": SUBJECT,
    "correlation_id": CORRELATION_ID,
    "to": TO,
    "reply_to": REPLY_TO,
    "reply_to_session_id": REPLY_TO_GROUP_ID,
    "content_type": CONTENT_TYPE,
}
_KEYS: Final = ("message_id", "session_id", "reply_to_session_id")
EDITED: Final = (*_FIELDS, "body", "body_base64", "properties")


def edit_of(row: dict[str, Any], number: int, largest: int) -> Edit:
    """What is altered of the message with this number; ArgumentError says what cannot be.

    `largest` is how many bytes a message may have where it goes.
    """
    unknown = [name for name in row if name not in EDITED]
    if unknown:
        raise ArgumentError(f"Message {number}: {str(unknown)[:100]} cannot be altered; {', '.join(EDITED)} can.")
    edit = Edit(largest)
    try:
        if "body" in row or "body_base64" in row:
            edit.body = body_in(row)
        edit.fields = {_FIELDS[name]: _field(name, value) for name, value in row.items() if name in _FIELDS}
        edit.application = _application(row.get("properties"))
    except ArgumentError as error:
        raise ArgumentError(f"Message {number}: {error.description}") from None
    return edit


def _field(name: str, value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a string, or null where it is taken away.")
    if name in _KEYS and len(value) > KEY_CHARACTERS:
        raise ArgumentError(f"'{name}' has more than {KEY_CHARACTERS} characters.")
    if len(value.encode()) > PROPERTY_BYTES:
        raise MessageTooLarge(f"'{name}' is larger than the {PROPERTY_BYTES} bytes that it may take.")
    return Symbol(value) if name == "content_type" else value


def _application(value: object) -> dict[str, object]:
    removed: dict[str, object] = {}
    if isinstance(value, dict):
        removed = {str(name): None for name, item in value.items() if item is None}
    given = {name: property_in(name, item) for name, item in properties_in(value).items()}
    sizes = {name: len(encode(name)) + len(encode(item)) for name, item in given.items()}
    if sum(sizes.values()) > PROPERTIES_BYTES:
        raise MessageTooLarge(f"The properties take {sum(sizes.values())} bytes, and may take {PROPERTIES_BYTES}.")
    for name, size in sizes.items():
        if size > PROPERTY_BYTES:
            raise MessageTooLarge(
                f"The property '{name[:100]}' is larger than the {PROPERTY_BYTES} bytes it may take."
            )
    return {**removed, **given}
