"""Messages as commands show them."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import typer

from polybus.cli.output import CommandOutput, plain, when
from polybus.errors import ConfigError
from polybus.namespace.entities.names import Address, parse_address

_FIELDS = (
    "message_id",
    "session_id",
    "partition_key",
    "subject",
    "correlation_id",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
    "time_to_live",
    "enqueued_time_utc",
    "enqueued_sequence_number",
    "expires_at_utc",
    "scheduled_enqueue_time_utc",
    "delivery_count",
    "locked_until_utc",
    "dead_letter_reason",
    "dead_letter_error_description",
    "dead_letter_source",
)


def address_of(entity: str, subscription: str | None, dead_letter: bool, transfer_dead_letter: bool) -> Address:
    """What ENTITY and the options beside it name: a queue, a subscription, or the dead letters of one."""
    address = parse_address(entity)
    if subscription is not None:
        address = Address(address.entity, subscription, address.sub_queue)
    if dead_letter and transfer_dead_letter:
        raise ConfigError("dead letters and transfer dead letters are two queues; look at one")
    if dead_letter:
        return Address(address.entity, address.subscription, "dead-letter")
    return Address(address.entity, address.subscription, "transfer-dead-letter") if transfer_dead_letter else address


def body_of(message: Any) -> bytes:
    """The body's bytes; what is not bytes as JSON."""
    body = message.body
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    parts = list(body) if not isinstance(body, dict) else body
    if isinstance(parts, list) and all(isinstance(part, bytes) for part in parts):
        return b"".join(parts)
    return json.dumps(parts, default=plain).encode()


def message_data(message: Any) -> dict[str, Any]:
    """A message as JSON has it: its body as text where it is text, else in base64."""
    data: dict[str, Any] = {"sequence_number": message.sequence_number, "state": message.state.name.lower()}
    for name in _FIELDS:
        value = getattr(message, name, None)
        if value is not None:
            data[name] = plain(value)
    properties = message.application_properties
    if properties:
        data["properties"] = {str(plain(name)): plain(value) for name, value in properties.items()}
    raw = body_of(message)
    try:
        data["body"] = raw.decode()
    except UnicodeDecodeError:
        data["body_base64"] = base64.b64encode(raw).decode()
    return data


def show_message(out: CommandOutput, message: Any, body_only: bool) -> None:
    """Prints one message: its body alone, one line of JSON, or a line of facts and the body below it."""
    if body_only:
        typer.echo(body_of(message))
        return
    data = message_data(message)
    if out.as_json:
        out.line(data)
        return
    body = data.pop("body", None)
    if body is None:
        body = f"{len(base64.b64decode(data.pop('body_base64'))):,} bytes that are not text"
    properties = data.pop("properties", {})
    facts = [
        f"{_fact(name)}={_readable(message, name, value)}" for name, value in data.items() if _tells(name, value)
    ]
    facts += [f"{name}:{value!r}" for name, value in properties.items()]
    typer.echo(f"#{data['sequence_number']} {' '.join(facts)}\n{body}")


def _tells(name: str, value: Any) -> bool:
    return name != "sequence_number" and value != "" and not (name == "enqueued_sequence_number" and value == 0)


def _fact(name: str) -> str:
    return name.removesuffix("_utc").removesuffix("_time")


def _readable(message: Any, name: str, value: Any) -> Any:
    """Times as people read them; the rest as it is."""
    original = getattr(message, name, None)
    return when(original) if isinstance(original, datetime.datetime) else value
