"""What receivers receive from: a queue, a subscription or a dead-letter queue, over all its partitions (C1-C3).

A receiver's credit is a standing demand here. A partition that has a message and a receiver that wants one meet
at once; partitions take turns, and so do receivers. An idle receiver costs nothing, and no message waits for a
partition that is empty or gone.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from polybus.clock import Clock
from polybus.errors import PolybusError
from polybus.hosting.partition_host import PartitionHost
from polybus.partition import receiving, settling
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.promise import Promise


class Delivery:
    """A message handed to a receiver: under a lock, or for good where `lock` is 0."""

    __slots__ = ("entry", "lock", "log", "partition")

    def __init__(self, partition: PartitionHost, log: Log, entry: Entry, lock: int) -> None:
        self.partition = partition
        self.log = log
        self.entry = entry
        self.lock = lock

    def token(self) -> bytes:
        """The sixteen bytes by which anybody can settle this delivery."""
        return self.partition.require().token(self.lock)


class Receiver(Protocol):
    """A receiving link, as its source sees it."""

    credit: int
    deletes: bool
    """Whether messages are removed when they are handed over."""

    def deliver(self, delivery: Delivery) -> None: ...

    def failed(self, error: PolybusError) -> None:
        """A message that was to be removed for this receiver could not be: it may come again."""


class Source:
    def __init__(self, name: str, log_id: int, partitions: list[PartitionHost], clock: Clock) -> None:
        self.name = name
        self.log_id = log_id
        self.partitions = partitions
        self._clock = clock
        self._turns: deque[PartitionHost] = deque()
        self._queued: dict[int, None] = {}
        self._wanting: deque[Receiver] = deque()
        self._known: set[Receiver] = set()
        """Those in `_wanting`: a receiver says that it has credit again and again, and there may be thousands."""
        self._reading = 0
        self._drains: list[Promise[None]] = []
        self._pumping = False
        self.delivered = 0
        for partition in partitions:
            partition.sources[log_id] = self
            if partition.available:
                self.partition_opened(partition)

    # Partitions

    def partition_opened(self, partition: PartitionHost) -> None:
        log = partition.require().log(self.log_id)
        partition.watch(log, self)
        if log.active:
            self.available(partition)

    def partition_closed(self, partition: PartitionHost) -> None:
        if partition.index in self._queued:
            del self._queued[partition.index]
            self._turns.remove(partition)

    def available(self, partition: PartitionHost) -> None:
        """The partition may have a message to give."""
        self._queue(partition)
        if self._wanting:
            self.pump()

    def _queue(self, partition: PartitionHost) -> None:
        if partition.index not in self._queued:
            self._queued[partition.index] = None
            self._turns.append(partition)

    # Receivers

    def want(self, receiver: Receiver) -> None:
        """The receiver has credit."""
        if receiver.credit > 0 and receiver not in self._known:
            self._known.add(receiver)
            self._wanting.append(receiver)
        self.pump()

    def forget(self, receiver: Receiver) -> None:
        if receiver in self._known:
            self._known.remove(receiver)
            self._wanting.remove(receiver)

    def drained(self) -> Promise[None]:
        """Settled when everything that was there for the wanting receivers has been handed over."""
        promise: Promise[None] = Promise()
        self.pump()
        if self._reading and self._wanting:
            self._drains.append(promise)
        else:
            promise.resolve(None)
        return promise

    def pump(self) -> None:
        """Brings messages and receivers together until one of them runs out."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._wanting and self._turns:
                partition = self._turns.popleft()
                del self._queued[partition.index]
                if self._hand_over(partition):
                    self._queue(partition)
        finally:
            self._pumping = False

    def _hand_over(self, partition: PartitionHost) -> bool:
        """Gives one message of the partition to the next receiver; False where it has none in memory."""
        broker = partition.broker
        if broker is None:
            return False
        log = broker.log(self.log_id)
        receiver = self._wanting[0]
        now = self._clock.now()
        if receiver.deletes:
            entry = receiving.take_away(broker, log, now)
        else:
            entry = receiving.take(broker, log, now, receiver)
        if entry is not None:
            self._charge(receiver)
        if log.wants_page():
            self._load(partition, log)
        if entry is None:
            return False
        self.delivered += 1
        delivery = Delivery(partition, log, entry, entry.lock)
        if receiver.deletes:
            broker.out().replies.append((deliver_removed, (receiver, delivery), None))
        else:
            partition.locked_until(entry.locked_until_ms)
            receiver.deliver(delivery)
        return True

    def _charge(self, receiver: Receiver) -> None:
        """The first in turn gets a message: it goes to the end, or leaves when its credit is used up."""
        receiver.credit -= 1
        self._wanting.popleft()
        if receiver.credit > 0:
            self._wanting.append(receiver)
        else:
            self._known.remove(receiver)

    def _load(self, partition: PartitionHost, log: Log) -> None:
        broker = partition.require()
        self._reading += 1

        def loaded(promise: Promise[None]) -> None:
            self._reading -= 1
            try:
                promise.result()
            except PolybusError:
                partition.try_again(lambda: self.available(partition))
            else:
                if log.has_ready() or not log.whole:
                    self.available(partition)
            self._settle_drains()

        partition.run(receiving.load_page(broker, log)).then(loaded)

    def _settle_drains(self) -> None:
        if self._reading == 0 or not self._wanting:
            drains, self._drains = self._drains, []
            for promise in drains:
                promise.resolve(None)


def deliver_removed(context: object, result: object, error: PolybusError | None) -> None:
    """A receive-and-delete is on disk: now the message may leave."""
    del result
    assert isinstance(context, tuple)
    receiver, delivery = context
    if error is None:
        receiver.deliver(delivery)
    else:
        receiver.failed(error)


def give_back(delivery: Delivery, clock: Clock) -> None:
    """Returns a message that was locked for a receiver but never left for it, as if never taken (C2)."""
    broker = delivery.partition.broker
    if broker is not None and broker.locks.get(delivery.lock) is delivery.entry:
        settling.release(broker, delivery.log, delivery.lock, clock.now())
