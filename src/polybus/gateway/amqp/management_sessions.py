"""Management of sessions: their locks, their state, and the list of them. docs/protocol/management.md#sessions."""

from __future__ import annotations

from typing import Final

from polybus.amqp.types import AmqpArray, Int, Timestamp
from polybus.errors import ArgumentError, ArgumentOutOfRange, InvalidOperation, MessageTooLarge, SessionNotFound
from polybus.gateway.amqp.call import ManagementCall, ManagementReply
from polybus.limits import AMQP_SESSIONS_LISTED
from polybus.namespace.delivery import entity_verbs

_STRING: Final = 0xB1
_ANY_TIME_MS: Final = 253_402_300_799_000
"""From the last second of year 9999 on, a `last-updated-time` asks for all sessions."""


async def renew_lock(call: ManagementCall) -> ManagementReply:
    return ManagementReply({"expiration": Timestamp(await call.held_session().renew())})


async def set_state(call: ManagementCall) -> ManagementReply:
    state = call.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise ArgumentError("The field 'session-state' is neither binary nor null.")
    most = call.namespace.max_message_bytes(call.entity)
    if state is not None and len(state) > most:
        raise MessageTooLarge(f"The session's state has {len(state)} bytes, and may have {most}.")
    await entity_verbs.set_session_state(call.namespace, call.held_session(), state)
    return ManagementReply()


async def get_state(call: ManagementCall) -> ManagementReply:
    state = await entity_verbs.get_session_state(call.namespace, call.held_session())
    return ManagementReply({"session-state": state})


async def list_sessions(call: ManagementCall) -> ManagementReply:
    if not call.entity.requires_session(call.place.address):
        raise InvalidOperation("The entity does not require sessions, so it has none to list.")
    skip, top = call.number("skip", 0), call.number("top", AMQP_SESSIONS_LISTED)
    if skip < 0 or top < 1:
        raise ArgumentOutOfRange("The fields 'skip' and 'top' must not be negative, and 'top' not 0.")
    updated_ms = call.number("last-updated-time", _ANY_TIME_MS)
    after_ms = None if updated_ms >= _ANY_TIME_MS else updated_ms
    top = min(top, AMQP_SESSIONS_LISTED)
    found = await entity_verbs.list_sessions(call.namespace, call.entity, call.place.log_id(), skip, top, after_ms)
    if not found:
        raise SessionNotFound("There are no (more) sessions.")
    return ManagementReply({"skip": Int(skip + len(found)), "sessions-ids": AmqpArray(_STRING, list(found))})
