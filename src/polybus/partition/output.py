"""What a broker's work leaves behind: rows to write, and what may leave only after they are synced.

Brokers of one store share the open `Output`. When its commit has succeeded the shell calls `release`; when it
has failed the shell throws the brokers' memory away and answers the replies with the error. So nothing that a
client sees can depend on a row that is not safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from polybus.errors import PolybusError
from polybus.partition.entry import Entry
from polybus.partition.unsynced import Unsynced
from polybus.promise import Reply
from polybus.rows import Batch

if TYPE_CHECKING:
    from polybus.partition.broker import Broker
    from polybus.partition.log import Log


class Output(Batch):
    """One batch with its consequences."""

    __slots__ = ("arrivals", "brokers", "ends", "replies", "skips", "unsynced")

    def __init__(self) -> None:
        super().__init__()
        self.brokers: list[Broker] = []
        self.arrivals: list[Entry] = []
        self.skips: list[tuple[Log, int]] = []
        """Logs that got rows which memory does not hold, and the last rank among them."""
        self.replies: list[tuple[Reply[Any, Any], object, object]] = []
        self.ends: list[tuple[Log, int, int, int]] = []
        self.unsynced: list[tuple[Unsynced, object]] = []

    def seal(self) -> None:
        """Adds the counters of every broker that wrote something. After this nothing may be added."""
        for broker in self.brokers:
            broker.seal(self)

    def release(self) -> None:
        """The batch is synced: messages become available, positions stable, replies leave."""
        for broker in self.brokers:
            broker.synced()
        for log, position, event, low in self.ends:
            log.stable_end = position
            log.stable_events = event
            log.stable_low = low
        for changes, row in self.unsynced:
            changes.synced(row)
        if self.arrivals or self.skips:
            self._arrive()
        for reply, context, result in self.replies:
            reply(context, result, None)

    def _arrive(self) -> None:
        woken: list[Log] = []
        # First: an entry of this batch with a higher rank must not join a window that lacks what lies before it.
        for log, rank in self.skips:
            log.skip(rank)
            if not log.woken:
                log.woken = True
                woken.append(log)
        for entry in self.arrivals:
            log = entry.log
            if entry.gone:
                pass  # it was on its way back and has expired or was moved; others may have waited for it
            elif log.sessions is not None:
                log.sessions.arrive(entry)
            else:
                log.arrive(entry)
            if not log.woken:
                log.woken = True
                woken.append(log)
        for log in woken:
            log.woken = False
        for log in woken:
            if log.watcher is not None:
                log.watcher.available()

    def refuse(self, error: PolybusError) -> None:
        """The commit failed: everyone who waits hears of it."""
        for reply, context, _ in self.replies:
            reply(context, None, error)


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Where brokers write: the open output of their store."""

    batch: Output

    def touch(self) -> None:
        """Something was added: the batch is to be committed soon."""
        raise NotImplementedError
