"""What SQL makes of a dead letter, as an edit that the bus takes. Pure: values of rows in, letters out.

An edit names only what is different, so that everything else travels as its sender wrote it. The marks of death are
taken off: a message that lives again has no reason for its death, and the table keeps it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from polybus.pipelines.resubmitting import Letter

COLUMNS: Final = (
    "body",
    "message_id",
    "session_id",
    "subject",
    "correlation_id",
    "to",
    "reply_to",
    "reply_to_session_id",
    "content_type",
)
"""Columns of a letter that a repair may set."""
PROPERTY: Final = "properties."
"""Before the name of a property that a repair sets; its type is that of the expression."""
PROPERTIES: Final = "properties"
REDRIVES: Final = "x-redrive-count"
_MARKS: Final = {"DeadLetterReason": None, "DeadLetterErrorDescription": None}


class NotAValue(Exception):
    """What SQL gave cannot be a part of a message."""


@dataclass(frozen=True)
class Repaired:
    """One letter as SQL left it."""

    number: int
    destination: str | None
    redrives: int | None
    """How often it was redriven before; None where nobody counts."""
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    """By column, or by `properties.NAME`; `properties` as a whole where the query gives it."""


def letter_of(repaired: Repaired) -> Letter:
    """The letter with what is altered of it, or with the fault that keeps it where it is."""
    if not repaired.destination:
        return Letter(repaired.number, "", fault="it has no dead_letter_source, so its origin is not known")
    try:
        edit = _edit(repaired)
    except NotAValue as error:
        return Letter(repaired.number, repaired.destination, fault=str(error))
    return Letter(repaired.number, repaired.destination, edit)


def _edit(repaired: Repaired) -> dict[str, Any]:
    edit: dict[str, Any] = {}
    properties: dict[str, Any] = dict(_MARKS)
    for name, value in repaired.new.items():
        if name.startswith(PROPERTY):
            properties[name.removeprefix(PROPERTY)] = _plain(name, value)
        elif name == PROPERTIES:
            properties.update(_differences(repaired.old.get(name) or {}, value or {}))
        elif _comparable(value) != _comparable(repaired.old.get(name)):
            edit.update(_field(name, value))
    if repaired.redrives is not None:
        properties[REDRIVES] = repaired.redrives + 1
    return {**edit, PROPERTIES: properties}


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Properties that were set to another text, or taken away."""
    changed = {name: _plain(name, value) for name, value in new.items() if old.get(name) != value}
    return {**{name: None for name in old if name not in new}, **changed}


def _field(name: str, value: Any) -> dict[str, Any]:
    if name == "body":
        if value is None:
            raise NotAValue("the repaired body is null")
        return {"body_base64": base64.b64encode(_comparable(value)).decode()}
    if value is not None and not isinstance(value, str):
        raise NotAValue(f"'{name}' must be a string, not {type(value).__name__}: cast it")
    return {name: value}


def _comparable(value: Any) -> Any:
    """Texts and bytes in one form: a body may be either."""
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise NotAValue(f"'{name}' cannot be a {type(value).__name__}; a property is a text, a number, true or false")
