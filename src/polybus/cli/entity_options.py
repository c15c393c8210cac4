"""The options of `queue`, `topic` and `subscription`: one for each property that a client may set.

They are made from the one table of properties, so a property that the bus learns is an option of the command line.
"""

from __future__ import annotations

import enum
import inspect
from typing import Any, Final

import typer

from polybus.cli.values import iso_duration
from polybus.namespace.entities.description import Description, EntityStatus
from polybus.namespace.entities.properties import PROPERTIES, EntityProperty, Shape


class Status(enum.StrEnum):
    """What a client may make of an entity."""

    ACTIVE = EntityStatus.ACTIVE.value
    DISABLED = EntityStatus.DISABLED.value
    SEND_DISABLED = EntityStatus.SEND_DISABLED.value
    RECEIVE_DISABLED = EntityStatus.RECEIVE_DISABLED.value


UNKNOWN_TO_SDK: Final = ("is_anonymous_accessible", "enable_subscription_partitioning")
"""The administration client has no words for these."""

_TYPES: Final[dict[Shape, Any]] = {
    Shape.DURATION: str | None,
    Shape.BOOLEAN: bool | None,
    Shape.INT32: int | None,
    Shape.INT64: int | None,
    Shape.TEXT: str | None,
    Shape.STATUS: Status | None,
}
HELP: Final = {
    "auto_delete_on_idle": "Delete when unused for so long; at least 5m.",
    "dead_lettering_on_filter_evaluation_exceptions": "Dead-letter messages for which a filter fails.",
    "dead_lettering_on_message_expiration": "Dead-letter messages that expire.",
    "default_message_time_to_live": "How long messages live that do not say: 30s, 14d, never, PT1H.",
    "duplicate_detection_history_time_window": "How long message ids are remembered: 20s to 7d.",
    "enable_batched_operations": "Kept for compatibility; the bus always batches.",
    "enable_express": "Kept for compatibility; messages are always stored.",
    "enable_partitioning": "Spread over many partitions and messaging stores.",
    "filtering_messages_before_publishing": "Kept for compatibility.",
    "forward_dead_lettered_messages_to": "Where dead letters go; empty for nowhere.",
    "forward_to": "Where all messages go; empty for nowhere.",
    "lock_duration": "How long a received message is locked: 5s to 5m.",
    "max_delivery_count": "Deliveries before a message is dead-lettered.",
    "max_message_size_in_kilobytes": "Largest message (premium only).",
    "max_size_in_megabytes": "Largest size of one partition.",
    "requires_duplicate_detection": "Drop messages whose id was seen.",
    "requires_session": "Take only messages with a session id.",
    "status": "What may be done with it.",
    "support_ordering": "Kept for compatibility.",
    "user_metadata": "Your own text about it.",
}


def sdk_name(item: EntityProperty) -> str:
    """What the SDK calls a property; ours have their unit in the name."""
    return item.attribute.removesuffix("_ms")


def settable(kind: type[Description]) -> list[EntityProperty]:
    return [item for item in PROPERTIES[kind] if sdk_name(item) not in UNKNOWN_TO_SDK]


def option_parameters(kind: type[Description], *, fixed: bool) -> list[inspect.Parameter]:
    """Parameters of a command, one for each property; those chosen at creation only where `fixed` is wanted."""
    found = []
    for item in settable(kind):
        if item.fixed and not fixed:
            continue
        option = typer.Option(None, help=HELP[sdk_name(item)], show_default=False)
        found.append(_parameter(sdk_name(item), option, _TYPES[item.shape]))
    return found


def _parameter(name: str, option: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def given_values(kind: type[Description], given: dict[str, Any]) -> dict[str, Any]:
    """The properties that were given, in the form that the SDK takes; an empty text clears one."""
    values: dict[str, Any] = {}
    for item in settable(kind):
        value = given.get(sdk_name(item))
        if value is None:
            continue
        if item.shape is Shape.DURATION:
            value = iso_duration(value)
        elif item.shape is Shape.STATUS:
            value = value.value
        values[sdk_name(item)] = value if value != "" else None
    return values
