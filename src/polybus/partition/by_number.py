"""What bulk verbs do to messages that they name by number: delete them, defer them, make them active again.

They run beside receivers: what somebody holds is left alone and told, so asking again later is safe.
"""

from __future__ import annotations

from typing import Any

from polybus.clock import Now
from polybus.partition import events
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import Moved
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.reading import find, let_go
from polybus.partition.retrying import activate
from polybus.partition.settling import into_deferred
from polybus.partition.storing import note, remove
from polybus.promise import C, Reply


def delete(broker: Broker, log: Log, now: Now, numbers: list[int], reply: Reply[C, Any], context: C) -> Steps[None]:
    """Removes messages for good, active or deferred ones; replies with what was removed, gone before, or held."""
    wanted = list(dict.fromkeys(numbers))
    found = yield from find(broker, log, wanted)
    result = Moved([], [number for number in wanted if number not in found], [])
    broker.wall(now)
    for number, entry in found.items():
        if is_held(log, entry):
            let_go(entry)
            result.locked.append(number)
        else:
            note(broker, entry, events.DELETED, "purged")
            remove(broker, entry)
            result.moved.append(number)
    broker.out().replies.append((reply, context, result))


def undefer(broker: Broker, log: Log, now: Now, numbers: list[int], reply: Reply[C, Any], context: C) -> Steps[None]:
    """Makes deferred messages active again; replies with what was, what is not deferred, and what is held."""
    wanted = list(dict.fromkeys(numbers))
    found = yield from find(broker, log, wanted)
    result = Moved([], [number for number in wanted if number not in found], [])
    broker.wall(now)
    for number, entry in found.items():
        if not entry.deferred:
            let_go(entry)
            result.missing.append(number)
        elif entry.lock:
            let_go(entry)
            result.locked.append(number)
        else:
            activate(broker, entry, "undeferred")
            result.moved.append(number)
    broker.out().replies.append((reply, context, result))


def defer(broker: Broker, log: Log, now: Now, numbers: list[int], reply: Reply[C, Any], context: C) -> Steps[None]:
    """Defers active messages; replies with what was, what is gone or deferred already, and what is held."""
    wanted = list(dict.fromkeys(numbers))
    found = yield from find(broker, log, wanted)
    result = Moved([], [number for number in wanted if number not in found], [])
    broker.wall(now)
    for number, entry in found.items():
        if entry.deferred:
            let_go(entry)
            result.missing.append(number)
        elif is_held(log, entry):
            let_go(entry)
            result.locked.append(number)
        else:
            note(broker, entry, events.DEFERRED, "by number")
            into_deferred(broker, entry)
            result.moved.append(number)
    broker.out().replies.append((reply, context, result))


def is_held(log: Log, entry: Entry) -> bool:
    """Whether a receiver has the message, or the session that it is the next of."""
    if entry.lock:
        return True
    return log.sessions is not None and not entry.deferred and entry.session_id() in log.sessions.held
