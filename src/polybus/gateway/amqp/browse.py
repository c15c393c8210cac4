"""A link over which a client looks at messages: its distribution-mode is *copy*, so nothing is locked and nothing counted.

Messages are read as a peek reads them, in order of number, partition by partition, as far as the client has credit; those
that are scheduled or deferred are left out. At the end the link waits for more to arrive. AMQP 1.0 §3.5.3;
docs/protocol/amqp.md#browsing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from polybus.amqp.events import OutgoingDelivery
from polybus.amqp.outcomes import ACCEPTED, DeliveryState
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.terminus import Source
from polybus.clock import Now
from polybus.errors import PolybusError
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.amqp.selectors import in_force
from polybus.gateway.sas import Rights
from polybus.limits import AMQP_BROWSED_MESSAGES, PEEK_REPLY_BYTES
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_ACTIVE, render
from polybus.message.view import View
from polybus.namespace.delivery.source import MessageSource as MessageSource
from polybus.numbering import before_first
from polybus.promise import Promise
from polybus.rules.selectors import Selector

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

COPY: Final = "copy"
_UNSETTLED: Final = 0
_TAG: Final = struct.Struct(">QQ")


def is_browsing(source: Source | None) -> bool:
    """Whether a receiver only looks. JMS says *copy* of a topic, too, where each subscriber has copies of its own."""
    return source is not None and source.distribution_mode == COPY and "topic" not in source.capabilities


class BrowseLink(LinkEnd):
    """A look at a queue, a subscription or a dead-letter queue."""

    __slots__ = (
        "_again",
        "_at",
        "_entity_id",
        "_log_id",
        "_next",
        "_outgoing",
        "_reading",
        "_selector",
        "_settled",
        "_source",
    )

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode, selector: str | None) -> None:
        super().__init__(endpoint, link, place, Rights.LISTEN)
        self._outgoing = link
        self._entity_id = place.entity.id
        self._log_id = place.log_id()
        self._selector = None if selector is None else Selector(selector)
        self._settled = link.attach.snd_settle_mode != _UNSETTLED
        self._next = [before_first(partition.index) + 1 for partition in place.entity.partitions]
        """The next number to be looked at, by partition."""
        self._at = 0
        """The partition that is looked at."""
        self._reading = False
        self._again = False
        """Something may have arrived since the last round through the partitions began."""
        self._source: MessageSource | None = None
        if not place.entity.requires_session(place.address):
            self._source = place.entity.source(place.address)
            self._source.watchers[self] = self._arrived

    def start(self) -> None:
        source = in_force(self.link.attach.source, self._selector is not None)
        self.endpoint.handle(self.link.accept(source=source))

    def check_place(self, place: LinkNode) -> None:
        place.entity.check_receivable(place.address)

    def gone(self) -> None:
        super().gone()
        if self._source is not None:
            self._source.watchers.pop(self, None)

    # Credit

    def credit_changed(self) -> None:
        self._arrived()

    def resume(self) -> None:
        self._read()

    def _arrived(self) -> None:
        self._again = True
        self._read()

    @property
    def _room(self) -> int:
        if self.endpoint.blocked or self.endpoint.stopping or not self.link.attached:
            return 0
        return self._outgoing.sendable

    def _read(self) -> None:
        """Reads on in the partition at hand, as far as the client has room."""
        place = self.place
        assert place is not None, "one browses a place"
        room = self._room
        if self._reading or room <= 0:
            return
        partitions = place.entity.partitions
        while self._at < len(partitions) and not partitions[self._at].available:
            self._at += 1
        if self._at == len(partitions):
            self._round_ends()
            return
        self._reading = True
        count = min(room, AMQP_BROWSED_MESSAGES)
        promise = partitions[self._at].peek(self._log_id, self._next[self._at], count, PEEK_REPLY_BYTES, None)
        promise.then(self._found)

    def _round_ends(self) -> None:
        """Nothing more is there: another round where something arrived meanwhile, else who drains is told."""
        if self._again:
            self._at, self._again = 0, False
            self._read()
        elif self._outgoing.drain:
            self._outgoing.drained()
            self.endpoint.wake()

    def _found(self, promise: Promise[list[Peeked]]) -> None:
        self._reading = False
        try:
            found = promise.result()
        except PolybusError:
            found = []  # the others may still be looked at
        if not found:
            self._at += 1
        for item in found:
            if self._room <= 0:
                return
            self._next[self._at] = item.marks.sequence + 1
            self._show(item)
        self._read()

    def _show(self, item: Peeked) -> None:
        if item.marks.state != STATE_ACTIVE:
            return
        if self._selector is not None and not self._selector.wants(View(item.message, item.marks)):
            return
        tag = _TAG.pack(self._entity_id, item.marks.sequence)
        self._outgoing.send(tag, render(item.message, item.marks), self._settled)
        self.endpoint.sent(item.size)

    def disposed(self, outgoing: OutgoingDelivery, state: DeliveryState | None, settled: bool, now: Now) -> None:
        """What a client decides on a copy has no effect; it is told what it wants to hear."""
        del now
        if not settled:
            outgoing.settle(state or ACCEPTED)
            self.endpoint.wake()
