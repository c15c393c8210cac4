"""What receivers receive from: a queue, a subscription or a dead-letter queue, over all its partitions (C1-C3).

A receiver's credit is a standing demand here. A partition that has a message and a receiver that wants one meet
at once; partitions take turns, and so do receivers. An idle receiver costs nothing, and no message waits for a
partition that is empty or gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from polybus.errors import PolybusError
from polybus.hosting.partition_client import Delivery, LogListener, PartitionClient
from polybus.promise import Promise
from polybus.rules.selectors import Selector

__all__ = ["Delivery", "MessageSource", "Receiver", "SelectingReceiver", "deliver_removed", "give_back"]


class Receiver(Protocol):
    """A receiving link, as its source sees it."""

    credit: int
    deletes: bool
    """Whether messages are removed when they are handed over."""

    def deliver(self, delivery: Delivery) -> None: ...

    def failed(self, error: PolybusError) -> None:
        """A message that was to be removed for this receiver could not be: it may come again."""


class SelectingReceiver(Receiver, Protocol):
    """One that wants only what its selector lets through."""

    selector: Selector


class MessageSource(LogListener):
    def __init__(self, name: str, log_id: int, partitions: list[PartitionClient]) -> None:
        self.name = name
        self.log_id = log_id
        self.partitions = partitions
        self._turns: deque[PartitionClient] = deque()
        self._queued: dict[int, None] = {}
        self._wanting: deque[Receiver] = deque()
        self._known: set[Receiver] = set()
        """Those in `_wanting`: a receiver says that it has credit again and again, and there may be thousands."""
        self._selecting: dict[SelectingReceiver, None] = {}
        """Those with a selector, who have credit: they look first, for others take whatever there is."""
        self.watchers: dict[object, Callable[[], None]] = {}
        """Whoever only looks, and wants to know that there may be more to look at."""
        self._searching = 0
        """Partitions that look in their stores for more."""
        self._drains: list[Promise[None]] = []
        self._pumping = False
        self._mixed = False
        """Whether a partition has been elsewhere: then what is asked for there is reckoned with."""
        self.delivered = 0
        for partition in partitions:
            partition.watch(log_id, self)

    # Partitions

    def unavailable(self, partition: PartitionClient) -> None:
        if partition.index in self._queued:
            del self._queued[partition.index]
            self._turns.remove(partition)

    def available(self, partition: PartitionClient) -> None:
        """The partition may have a message to give."""
        if self._selecting:
            self._select_from(partition)
        self._queue(partition)
        if self._wanting:
            self.pump()
        if self.watchers:
            for watcher in list(self.watchers.values()):
                watcher()

    def _queue(self, partition: PartitionClient) -> None:
        if partition.elsewhere:
            self._mixed = True
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

    def want_selected(self, receiver: SelectingReceiver) -> None:
        """The receiver has credit for what it selects."""
        self._selecting[receiver] = None
        for partition in self.partitions:
            if receiver.credit <= 0:
                break
            if partition.available:
                self._select_for(receiver, partition)

    def forget_selecting(self, receiver: SelectingReceiver) -> None:
        self._selecting.pop(receiver, None)

    def _select_from(self, partition: PartitionClient) -> None:
        for receiver in list(self._selecting):
            if receiver.credit > 0:
                self._select_for(receiver, partition)

    def _select_for(self, receiver: SelectingReceiver, partition: PartitionClient) -> None:
        selector, count = receiver.selector, receiver.credit
        if receiver.deletes:
            taken = partition.take_away_selected(self.log_id, selector, count, deliver_removed, receiver)
            receiver.credit -= taken
            self.delivered += taken
        else:
            for delivery in partition.take_selected(self.log_id, selector, count):
                receiver.credit -= 1
                self.delivered += 1
                receiver.deliver(delivery)
        if receiver.credit <= 0:
            self._selecting.pop(receiver, None)

    def drained(self) -> Promise[None]:
        """Settled when everything that was there for the wanting receivers has been handed over."""
        promise: Promise[None] = Promise()
        self.pump()
        if self._searching and (self._wanting or self._selecting):
            self._drains.append(promise)
        else:
            promise.resolve(None)
        return promise

    def pump(self) -> None:
        """Brings messages and receivers together until one of them runs out."""
        if self._pumping:
            return
        self._pumping = True
        waiting: list[PartitionClient] | None = None
        try:
            while self._wanting and self._turns:
                partition = self._turns.popleft()
                del self._queued[partition.index]
                credit = 0
                if self._mixed:
                    credit = self._credit_for(partition)
                    if credit <= 0:  # others were asked for all that is wanted: its turn comes when they lack some
                        waiting = [*(waiting or []), partition]
                        continue
                while self._hand_over(partition, credit):
                    if self._turns or not self._wanting or self._mixed:
                        self._queue(partition)
                        break  # else it is the only one to have a turn
        finally:
            self._pumping = False
            if waiting is not None:
                for partition in waiting:
                    self._queue(partition)

    def _credit_for(self, partition: PartitionClient) -> int:
        """How many may come from the partition now, where some are elsewhere: those are asked, and what they were asked
        for is theirs until they answer. So all of them together give no more than receivers want (C3), and those of this
        process, which answer at once, leave the others their share (C1)."""
        at_hand = partition.at_hand(self.log_id) if partition.elsewhere else 0
        if at_hand:
            return at_hand
        spare = 0
        for receiver in self._wanting:
            spare += receiver.credit
        for other in self.partitions:
            if other.elsewhere:
                spare -= other.asked(self.log_id) + other.at_hand(self.log_id)
        if spare <= 0 or not partition.elsewhere:
            return spare
        return partition.asked(self.log_id) + max(spare // (len(self._turns) + 1), 1)

    def _hand_over(self, partition: PartitionClient, asked: int) -> bool:
        """Gives one message of the partition to the next receiver; False where it has none at hand.

        One elsewhere is `asked` for so many.
        """
        receiver = self._wanting[0]
        credit = receiver.credit
        if receiver.deletes:
            if not partition.take_away(self.log_id, asked or credit, deliver_removed, receiver):
                return False
            self._charge(receiver, credit - 1)
        else:
            delivery = partition.take(self.log_id, asked or credit)
            if delivery is None:
                return False
            self._charge(receiver, credit - 1)
            receiver.deliver(delivery)
        self.delivered += 1
        return True

    def _charge(self, receiver: Receiver, credit: int) -> None:
        """The first in turn gets a message: it goes to the end, or leaves when its credit is used up."""
        receiver.credit = credit
        wanting = self._wanting
        if credit <= 0:
            wanting.popleft()
            self._known.remove(receiver)
        elif len(wanting) > 1:
            wanting.append(wanting.popleft())

    def searching(self, partition: PartitionClient) -> None:
        del partition
        self._searching += 1

    def searched(self, partition: PartitionClient) -> None:
        del partition
        self._searching = max(self._searching - 1, 0)  # one may have begun before this source listened
        if self._wanting and self._turns:
            self.pump()
        self._settle_drains()

    def _settle_drains(self) -> None:
        if self._searching == 0 or not (self._wanting or self._selecting):
            drains, self._drains = self._drains, []
            for promise in drains:
                promise.resolve(None)


def deliver_removed(receiver: Receiver, delivery: Delivery | None, error: PolybusError | None) -> None:
    """A receive-and-delete is on disk: now the message may leave."""
    if error is None:
        assert delivery is not None, "a removed message comes as a delivery"
        receiver.deliver(delivery)
    else:
        receiver.failed(error)


def give_back(delivery: Delivery) -> None:
    """Returns a message that was locked for a receiver but never left for it, as if never taken (C2)."""
    delivery.partition.give_back(delivery)
