"""A link over which nothing is received: it stands for a durable subscription, and closing it unsubscribes.

JMS looks a subscription up by attaching without a source; the answer's source says what is there. AMQP 1.0 §2.6.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.terminus import Source
from polybus.amqp.types import Symbol, UInt, symbol_array
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.amqp.on_demand import ForLink
from polybus.gateway.sas import Rights

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

_UNSETTLED_STATE: Final = 2
_NEVER: Final = "never"


class SubscriptionLink(LinkEnd):
    """Stands for one durable subscription."""

    __slots__ = ()

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode, owned: ForLink) -> None:
        super().__init__(endpoint, link, place, Rights.MANAGE)
        self.owned = owned

    def start(self) -> None:
        place = self.place
        assert place is not None, "a subscription is always of a place"
        fields: list[object] = [None] * 11
        fields[1], fields[2] = UInt(_UNSETTLED_STATE), Symbol(_NEVER)
        fields[10] = symbol_array(["topic"])
        self.endpoint.handle(self.link.accept(source=Source(place.entity.name, None, fields)))
