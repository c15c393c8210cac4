"""The work of one transaction at the partition that commits it: sends, settlements and transfers in one batch.

Until the commit the work is only a list; what it settles stays locked and marked. So a crash or a rollback
leaves nothing, and the commit is one batch that is there wholly or not at all.
"""

from __future__ import annotations

from typing import Any

from polybus.clock import Now
from polybus.errors import MessageLockLost, SessionLockLost
from polybus.message.message import Message
from polybus.message.outcome import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from polybus.message.overlay import Overlay
from polybus.partition import records, sending, settling, transfers
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry
from polybus.partition.kinds import MAIN
from polybus.partition.log import Log
from polybus.promise import C, Reply
from polybus.rows import Get


class Settlement:
    """A settlement that waits for its transaction."""

    def __init__(
        self,
        entry: Entry,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
    ) -> None:
        self.entry = entry
        self.lock = entry.lock
        self.outcome = outcome
        self.reason = reason
        self.description = description
        self.properties = properties


class Work:
    """What a transaction will do at one partition."""

    def __init__(self) -> None:
        self.sends: list[Message] = []
        self.settlements: list[Settlement] = []
        self.transfers: list[tuple[str, Message]] = []
        self.reserved: dict[Message, int] = {}
        """The numbers of scheduled messages, which their sender knows before the commit."""
        self.intent = b""
        """What has to be done elsewhere once the commit is there: written with it, and removed when it is applied."""


def hold(
    broker: Broker,
    work: Work,
    log: Log,
    lock: int,
    now: Now,
    outcome: str,
    reason: str | None = None,
    description: str | None = None,
    properties: dict[str, object] | None = None,
) -> None:
    """Adds a settlement to the work; nobody else can settle the message meanwhile."""
    entry = settling.held(broker, log, lock, now)
    if outcome == DEAD_LETTER:
        settling.check_can_dead_letter(log)
    if outcome == ABANDON:
        settling.check_abandon(broker, entry, now, properties)
    settling.check_properties(entry, properties)
    entry.transaction = work
    work.settlements.append(Settlement(entry, outcome, reason, description, properties))


def roll_back(work: Work) -> None:
    """The messages keep what is left of their locks."""
    for settlement in work.settlements:
        if settlement.entry.transaction is work:
            settlement.entry.transaction = None


def reserve(broker: Broker, count: int, reply: Reply[C, Any], context: C) -> None:
    """Replies, after the commit, with numbers that nobody else will get, whatever becomes of the transaction."""
    log = broker.logs[MAIN]
    numbers = [broker.next_sequence(log) for _ in range(count)]
    broker.out(log).replies.append((reply, context, numbers))


def intent(broker: Broker) -> Steps[bytes]:
    """What the last transaction still has to do elsewhere; empty where everything is applied."""
    answer = yield Get([broker.prefix + records.INTENT])
    value = answer[0]
    return records.unsealed(value, "a transaction's intent") if isinstance(value, bytes) else b""


def remove_intent(broker: Broker) -> None:
    """What the last transaction intended elsewhere is applied."""
    broker.out().delete(broker.prefix + records.INTENT)


def commit(
    broker: Broker, work: Work, now: Now, rows: dict[bytes, object] | None, reply: Reply[C, Any], context: C
) -> None:
    """Does everything in the open output, or raises and has done nothing."""
    for settlement in work.settlements:
        _check_lock(broker, settlement, now)
    sending.check(broker, work.sends)
    sending.check_known(broker, work.sends, rows)
    messages = work.sends + [message for _, message in work.transfers]
    sending.check_size(broker, sum(message.size for message in messages))
    wall_ms = broker.wall(now)
    broker.settings.own.accessed_ms = wall_ms
    for settlement in work.settlements:
        settlement.entry.transaction = None
        _settle(broker, settlement, now)
    for message in work.sends:
        if not sending.is_duplicate(broker, message.message_id, wall_ms, rows):
            sending.accept(broker, message, wall_ms, [], reserved=work.reserved.get(message, 0))
    log = broker.logs[MAIN]
    for destination, message in work.transfers:
        overlay: Overlay | None = None
        if message in work.reserved:
            overlay = Overlay()
            overlay.application[transfers.RESERVED] = work.reserved[message]
        entry = Entry(log, broker.next_sequence(log), message, wall_ms, 0, 0, overlay, message.size)
        transfers.forward(broker, log, entry, destination)
    if work.intent:
        broker.out().put(broker.prefix + records.INTENT, records.sealed(work.intent))
    broker.out(log).replies.append((reply, context, None))


def _check_lock(broker: Broker, settlement: Settlement, now: Now) -> None:
    entry = settlement.entry
    if broker.locks.get(settlement.lock) is not entry or entry.locked_until_ms <= now.mono_ms:
        if entry.log.sessions is not None:
            raise SessionLockLost("A session's lock was lost before the transaction was committed.")
        raise MessageLockLost("The lock of a message was lost before the transaction was committed.")


def _settle(broker: Broker, settlement: Settlement, now: Now) -> None:
    entry = settlement.entry
    if settlement.outcome == COMPLETE:
        settling.settle_complete(broker, entry, now)
    elif settlement.outcome == ABANDON:
        settling.settle_abandon(broker, entry, now, settlement.properties)
    elif settlement.outcome == DEFER:
        settling.settle_defer(broker, entry, now, settlement.properties)
    else:
        broker.wall(now)
        settling.dead_letter_by_receiver(
            broker, entry, settlement.reason, settlement.description, settlement.properties
        )
