"""Our end of a link: what stands behind it and hears what happens on it.

The endpoint finds it as the link's `context`. An end looks after itself when its entity changes or its token runs
out; it never outlives its link, and takes back on `gone` whatever it has put elsewhere. Nothing of one kind of link
lives here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from polybus.amqp.events import IncomingDelivery, OutgoingDelivery
from polybus.amqp.link import Link
from polybus.amqp.outcomes import DeliveryState
from polybus.clock import Now
from polybus.errors import EntityNotFound, PolybusError, StoreError, Unauthorized
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.errors import amqp_error, condition_of, description_of, is_bug, new_tracking_id
from polybus.gateway.sas import Rights
from polybus.limits import HOLDER_CHARACTERS

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint
    from polybus.gateway.amqp.on_demand import ForLink
    from polybus.gateway.amqp.requests import ReplyLink
    from polybus.namespace.entities.entity import Entity

log = logging.getLogger(__name__)


class SessionLinks:
    """What the links of one session share: where replies go, and where its transactions begin."""

    __slots__ = ("coordinators", "first_entity", "replies")

    def __init__(self) -> None:
        self.replies: list[ReplyLink] = []
        self.coordinators = 0
        self.first_entity: Entity | None = None
        """The entity of the session's first link: the one that sends inside a transaction go through."""


class LinkEnd:
    """Base of all ends. `place` is missing only for what belongs to no entity."""

    __slots__ = ("endpoint", "link", "needs", "owned", "place", "quick")

    def __init__(self, endpoint: AmqpEndpoint, link: Link, place: LinkNode | None, needs: Rights) -> None:
        self.endpoint = endpoint
        self.link = link
        self.place = place
        self.needs = needs
        """Any one of these rights keeps the link alive."""
        self.quick = False
        """Whether a message that comes here takes little time, whatever is in it."""
        self.owned: ForLink | None = None
        """What was made for this link, and may go with it."""
        link.context = self
        if place is not None:
            place.entity.watchers[self] = self.entity_changed

    def __str__(self) -> str:
        """Whose link it is, for those who ask who holds a session."""
        peer = self.endpoint.connection.peer
        return f"{'' if peer is None else peer.container_id}/{self.link.name}"[:HOLDER_CHARACTERS]

    def note_entity(self, entity: Entity) -> None:
        """Messages travel here: the first such entity of a session is where its transactions begin."""
        if self.shared.first_entity is None:
            self.shared.first_entity = entity

    @property
    def shared(self) -> SessionLinks:
        shared = self.link.session.context
        assert isinstance(shared, SessionLinks), "every session has its links' common state"
        return shared

    # What happens on the link

    def unpacked(self, delivery: IncomingDelivery, until_s: float) -> bool:
        """Whether a batch can be handed over now; False where it takes another turn of the loop to take it apart."""
        del delivery, until_s
        return True

    def delivered(self, delivery: IncomingDelivery) -> None:
        """The peer has sent something."""
        raise NotImplementedError

    def credit_changed(self) -> None:
        """The peer wants more, less, or to be drained; or sending is possible again."""

    def disposed(self, outgoing: OutgoingDelivery, state: DeliveryState | None, settled: bool, now: Now) -> None:
        """The peer has decided on a delivery of ours."""

    def undecided(self, deliveries: list[OutgoingDelivery]) -> None:
        """The link is going, and the peer has not decided on these."""

    def detached(self, unsent: list[OutgoingDelivery]) -> None:
        """The link is gone; `unsent` never left."""
        del unsent
        self.gone()

    def gone(self) -> None:
        """Takes back what this end has put elsewhere."""
        if self.place is not None:
            self.place.entity.watchers.pop(self, None)
        if self.owned is not None:
            self.owned.link_gone(self.link)

    def pause(self) -> None:
        """Nothing more may leave here for now."""

    def resume(self) -> None:
        """What was paused may go on."""

    def tick(self) -> None:
        """Some time has passed: a look at what only time can change."""

    # What happens elsewhere

    def entity_changed(self) -> None:
        """The entity was changed or deleted: the link may go on, or not."""
        place = self.place
        assert place is not None, "only a place is watched"
        if place.deleted:
            self.close(EntityNotFound(f"The messaging entity '{place.uri}' could not be found. It was deleted."))
            return
        try:
            self.check_place(place)
        except PolybusError as error:
            self.close(error)

    def check_place(self, place: LinkNode) -> None:
        """Raises where a link of this kind may not exist on its entity as it is now."""

    def rights_lost(self, why: str) -> None:
        """Tokens have run out, or keys were changed: without rights that cover this link it ends
        (docs/protocol/sas.md#token-lifetime)."""
        for place in self.places():
            if not self.endpoint.access.rights(place.scope) & self.needs:
                self.close(Unauthorized(f"{why} Resource: '{place.uri}'."))
                return

    def places(self) -> list[LinkNode]:
        """Everything that the link is about: each of it needs the right."""
        return [] if self.place is None else [self.place]

    def close(self, error: PolybusError) -> None:
        """Detaches from our side, saying why."""
        tracking_id = new_tracking_id(self.endpoint.id)
        self.report(error, tracking_id, "a link was detached")
        unsent = self.link.detach(amqp_error(error, tracking_id))
        self.detached(unsent)
        self.endpoint.wake()

    def report(self, error: Exception, tracking_id: str, what: str, entity: str | None = None) -> None:
        """Writes a refusal down, without anything that a client wrote into a message; a bug of ours with its trace."""
        level = logging.ERROR if is_bug(error) else logging.INFO
        if not log.isEnabledFor(level):
            return
        extra = {
            "connection": self.endpoint.id,
            "link": self.link.name,
            "entity": entity if self.place is None else self.place.path,
            "tracking_id": tracking_id,
            "condition": condition_of(error),
        }
        if isinstance(error.__cause__, StoreError):
            extra["cause"] = str(error.__cause__)
        trace = error if level == logging.ERROR else None
        log.log(level, "%s: %s", what, description_of(error), extra=extra, exc_info=trace)
