"""Which messages a request of the bulk API is about: states, times, and a condition in the language of rules.

A purge and a browse choose in the same words, so what was looked at is what is dealt with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polybus.errors import ArgumentError, InvalidOperation
from polybus.gateway.bulk.call import BulkCall
from polybus.gateway.durations import ms_from_date_time
from polybus.message.rendering import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED
from polybus.namespace.entities.names import Address
from polybus.namespace.jobs.choice import Choice
from polybus.rules import Filter, SqlFilter

STATES = {"active": STATE_ACTIVE, "deferred": STATE_DEFERRED, "scheduled": STATE_SCHEDULED}
DEAD = "dead-lettered"
CHOOSING = ("state", "from", "before", "due_from", "due_before", "filter")
"""The words by which messages are chosen."""


def chosen(
    request: BulkCall, given: Mapping[str, Any], default: str = "active", before_ms: int | None = None
) -> tuple[Address, Choice]:
    """The log and the choice that a request names; `before_ms` is the end where it names none."""
    address, states = _states(request, given.get("state", default))
    before = time_in(given, "before")
    return address, Choice(
        states=states,
        enqueued_from_ms=time_in(given, "from") or 0,
        enqueued_before_ms=before_ms if before is None else before,
        due_from_ms=time_in(given, "due_from") or 0,
        due_before_ms=time_in(given, "due_before"),
        condition=condition_in(given),
    )


def _states(request: BulkCall, given: object) -> tuple[Address, tuple[int, ...]]:
    address = request.address
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        raise ArgumentError("'state' must be active, deferred, scheduled or dead-lettered.")
    if names == [DEAD] and address.sub_queue is None:
        address, names = Address(address.entity, address.subscription, "dead-letter"), ["active", "deferred"]
    if any(name not in STATES for name in names):
        raise ArgumentError("'state' must be active, deferred, scheduled or dead-lettered.")
    if request.entity.is_topic and address.subscription is None and names != ["scheduled"]:
        raise InvalidOperation(f"The topic '{request.entity.name}' itself holds only scheduled messages.")
    return address, tuple(STATES[name] for name in names)


def time_in(given: Mapping[str, Any], name: str) -> int | None:
    """Milliseconds since 1970, from a number or a text."""
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15:
        return value
    if not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a time.")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 15 else ms_from_date_time(value)


def condition_in(given: Mapping[str, Any]) -> Filter | None:
    text = given.get("filter")
    if text is None:
        return None
    if not isinstance(text, str):
        raise ArgumentError("'filter' must be a condition as a subscription's rule has it.")
    return SqlFilter(text)


def check_words(given: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """A word that is not understood might have meant to spare something."""
    unknown = [name for name in given if name not in allowed]
    if unknown:
        raise ArgumentError(f"{str(unknown)[:200]} is not understood; there are {', '.join(allowed)}.")
