"""A client asks for a link: rights, entity and kind are checked, and an end is put behind it.

Every refusal leaves as attach and detach in one breath, with the condition and the text that the SDKs know.
docs/protocol/sas.md#missing-right, docs/protocol/amqp.md#attach, docs/protocol/amqp.md#refused-attach.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from polybus.amqp.incoming import IncomingLink
from polybus.amqp.link import Link
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.performatives import Attach
from polybus.amqp.terminus import Coordinator
from polybus.errors import (
    ArgumentError,
    EntityNotFound,
    InvalidOperation,
    NotImplementedByBus,
    PolybusError,
    QuotaExceeded,
    Unauthorized,
)
from polybus.gateway.amqp.addresses import LinkNode, address_of, parsed, session_filter, uri_of
from polybus.gateway.amqp.anonymous import AnonymousSendLink
from polybus.gateway.amqp.browse import BrowseLink, is_browsing
from polybus.gateway.amqp.cbs import CBS, TokenLink
from polybus.gateway.amqp.coordinator import CoordinatorLink
from polybus.gateway.amqp.errors import amqp_error, condition_of, description_of, new_tracking_id
from polybus.gateway.amqp.management import ManagementLink, management_key
from polybus.gateway.amqp.on_demand import ForLink, Wish, refuse_temporary
from polybus.gateway.amqp.receive import ReceiveLink, SelectingLink
from polybus.gateway.amqp.requests import ANY_RIGHT, ReplyLink
from polybus.gateway.amqp.selectors import selector_of
from polybus.gateway.amqp.send import TRANSFER_DESTINATION, SendLink
from polybus.gateway.amqp.session_receive import SessionReceiveLink
from polybus.gateway.amqp.subscription_link import SubscriptionLink
from polybus.gateway.sas import Rights, scope_of
from polybus.limits import AMQP_RECEIVERS_PER_ENTITY
from polybus.namespace.entities.names import Address
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

log = logging.getLogger(__name__)

NEEDS_SESSION: Final = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
)
NO_SESSIONS: Final = (
    "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure"
    " RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
)


def attach_link(endpoint: AmqpEndpoint, link: Link, attach: Attach) -> None:
    """Answers an attach, at once or later."""
    try:
        making = _making(endpoint, link, attach)
        if making is None:
            _attach(endpoint, link, attach)
        else:
            spawn(making).then(lambda made: _attach_to_made(endpoint, link, made))
    except PolybusError as error:
        if not _waits_for_token(endpoint, link, attach, error):
            refuse(endpoint, link, error)


def _waits_for_token(endpoint: AmqpEndpoint, link: Link, attach: Attach, error: PolybusError) -> bool:
    """Whether the token for a management link is still to come; the Java SDK shows it after it has opened the link."""
    if not isinstance(error, Unauthorized) or not endpoint.is_java_sdk:
        return False
    address = address_of(endpoint.namespace, attach)
    if not address.management or endpoint.access.rights(scope_of(address.path)):
        return False
    return endpoint.early_links.wait(link, lambda early: _attach_early(endpoint, early), _refused_at(endpoint, error))


def _attach_early(endpoint: AmqpEndpoint, link: Link) -> None:
    """A token was shown: where it is not for this link, the link waits on."""
    try:
        _attach(endpoint, link, link.attach)
    except PolybusError as error:
        address = address_of(endpoint.namespace, link.attach)
        if not isinstance(error, Unauthorized) or endpoint.access.rights(scope_of(address.path)):
            refuse(endpoint, link, error)


def _refused_at(endpoint: AmqpEndpoint, error: PolybusError) -> Callable[[Link], None]:
    return lambda link: refuse(endpoint, link, error)


def refuse(endpoint: AmqpEndpoint, link: Link, error: Exception) -> None:
    tracking_id = new_tracking_id(endpoint.id)
    extra = {
        "connection": endpoint.id,
        "link": link.name,
        "entity": _asked_for(link),
        "tracking_id": tracking_id,
        "condition": condition_of(error),
    }
    log.info("a link was refused: %s", description_of(error), extra=extra)
    link.refuse(amqp_error(error, tracking_id))
    endpoint.wake()


def _asked_for(link: Link) -> str | None:
    """The address as the client wrote it, without a query, in which tokens travel."""
    end = link.attach.source if isinstance(link, OutgoingLink) else link.attach.target
    address = None if end is None or isinstance(end, Coordinator) else end.address
    return None if address is None else address.partition("?")[0][:260]


def _attach(endpoint: AmqpEndpoint, link: Link, attach: Attach) -> None:
    if isinstance(link, IncomingLink):
        if isinstance(attach.target, Coordinator):
            _attach_coordinator(endpoint, link)
        elif attach.target is None or attach.target.address is None:
            AnonymousSendLink(endpoint, link).start()
        else:
            _attach_sender(endpoint, link, attach, address_of(endpoint.namespace, attach), None)
    elif isinstance(link, OutgoingLink):
        if attach.source is None and endpoint.gateway.on_demand:
            _attach_to_durable(endpoint, link)
        else:
            _attach_receiver(endpoint, link, attach, address_of(endpoint.namespace, attach), None)


# Made on demand


def _making(
    endpoint: AmqpEndpoint, link: Link, attach: Attach
) -> Coroutine[Any, Any, tuple[Address, ForLink | None]] | None:
    """What has to be made before the link can be attached; None where everything is there, or nothing is made."""
    end = attach.source if attach.role else attach.target
    if end is None or isinstance(end, Coordinator):
        return None
    wish = Wish(end, None)
    if wish.dynamic:
        return _making_temporary(endpoint, wish)
    if end.address is None or not endpoint.gateway.on_demand:
        return None
    address = address_of(endpoint.namespace, attach)
    if address.special is not None or address.management or address.sub_queue is not None:
        return None
    if isinstance(link, OutgoingLink):
        wish = Wish(end, selector_of(attach.source))
    return _making_named(endpoint, link, address, wish)


def _making_temporary(endpoint: AmqpEndpoint, wish: Wish) -> Coroutine[Any, Any, tuple[Address, ForLink | None]]:
    if not endpoint.gateway.on_demand:
        raise refuse_temporary()
    endpoint.access.require((), Rights.MANAGE, f"sb://{endpoint.namespace.name}/")
    return endpoint.maker.temporary(wish.topic)


def _making_named(
    endpoint: AmqpEndpoint, link: Link, address: Address, wish: Wish
) -> Coroutine[Any, Any, tuple[Address, ForLink | None]] | None:
    receives = isinstance(link, OutgoingLink) and address.subscription is None
    found = endpoint.namespace.find(address.entity)
    needed = Rights.LISTEN if isinstance(link, OutgoingLink) else Rights.SEND
    if found is None and wish.temporary:
        return None
    if found is not None and endpoint.maker.is_leaving(address.entity):
        raise EntityNotFound(f"The messaging entity '{uri_of(endpoint.namespace, address)}' could not be found.")
    if found is not None and not (receives and found.is_topic):
        return None
    uri, scope = uri_of(endpoint.namespace, address), scope_of(address.path)
    endpoint.access.require(scope, needed, uri)
    endpoint.access.require(scope, Rights.MANAGE, uri)
    return _make_named(endpoint, link, address, wish)


async def _make_named(
    endpoint: AmqpEndpoint, link: Link, address: Address, wish: Wish
) -> tuple[Address, ForLink | None]:
    entity = await endpoint.maker.entity(address.entity, wish.topic or address.subscription is not None)
    if not isinstance(link, OutgoingLink) or not entity.is_topic or address.subscription is not None:
        return address, None
    return await endpoint.maker.subscription(entity, wish, endpoint.client_id, link.name)


def _attach_to_made(endpoint: AmqpEndpoint, link: Link, made: Promise[tuple[Address, ForLink | None]]) -> None:
    try:
        address, owned = made.result()
    except PolybusError as error:
        refuse(endpoint, link, error)
        return
    if not link.pending:
        if owned is not None:
            owned.link_gone(link)
        return
    try:
        _attach_made(endpoint, link, address, owned)
    except PolybusError as error:
        if owned is not None:
            owned.link_gone(link)
        refuse(endpoint, link, error)
    endpoint.wake()


def _attach_made(endpoint: AmqpEndpoint, link: Link, address: Address, owned: ForLink | None) -> None:
    attach = link.attach
    end = attach.source if attach.role else attach.target
    if end is not None and not isinstance(end, Coordinator) and end.dynamic:
        end.address = address.path
    if isinstance(link, IncomingLink):
        _attach_sender(endpoint, link, attach, address, owned)
    elif isinstance(link, OutgoingLink):
        _attach_receiver(endpoint, link, attach, address, owned)


def _attach_to_durable(endpoint: AmqpEndpoint, link: OutgoingLink) -> None:
    """JMS looks a durable subscription up by its link's name alone, and closes the link to unsubscribe."""
    topic, name, owned = endpoint.maker.durable(endpoint.client_id, link.name)
    place = _place(endpoint, Address(topic.name, name), Rights.MANAGE)
    SubscriptionLink(endpoint, link, place, owned).start()


def _attach_coordinator(endpoint: AmqpEndpoint, link: IncomingLink) -> None:
    """No token is asked for: the Java SDK opens this link first, and a transaction opens nothing by itself."""
    if endpoint.namespace.tier.is_basic:
        raise NotImplementedByBus("The Basic tier has no transactions.")
    CoordinatorLink(endpoint, link).start()


def _place(endpoint: AmqpEndpoint, address: Address, needed: Rights) -> LinkNode:
    """The entity of an address, if the client may use it; rights are asked first."""
    namespace = endpoint.namespace
    scope = scope_of(address.path)
    if needed == ANY_RIGHT:
        if not endpoint.access.rights(scope) & needed:
            endpoint.access.require(scope, Rights.LISTEN, uri_of(namespace, address))
    else:
        endpoint.access.require(scope, needed, uri_of(namespace, address))
    return LinkNode(namespace, address)


def _attach_sender(
    endpoint: AmqpEndpoint, link: IncomingLink, attach: Attach, address: Address, owned: ForLink | None
) -> None:
    if address.special is not None:
        TokenLink(endpoint, link).start()
        return
    if address.management:
        ManagementLink(endpoint, link, _place(endpoint, address, ANY_RIGHT)).start()
        return
    place = _place(endpoint, address, Rights.SEND)
    if address.subscription is not None or address.sub_queue is not None:
        raise InvalidOperation(f"Messages cannot be sent to '{address.path}': it is part of another entity.")
    place.entity.check_sendable()
    end = SendLink(endpoint, link, place, _destination(endpoint, attach))
    end.owned = owned
    if owned is not None:
        owned.keep(place.entity)
    end.start()


def _destination(endpoint: AmqpEndpoint, attach: Attach) -> LinkNode | None:
    """Where a send-via link finally sends to (docs/protocol/transactions.md#send-via)."""
    text = (attach.properties or {}).get(TRANSFER_DESTINATION)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ArgumentError(f"The property {TRANSFER_DESTINATION} is not a string.")
    address = parsed(endpoint.namespace, text)
    if address.subscription is not None or address.sub_queue is not None or address.management:
        raise InvalidOperation(f"Messages cannot be sent to '{address.path}'.")
    return _place(endpoint, address, Rights.SEND)


def _attach_receiver(
    endpoint: AmqpEndpoint, link: OutgoingLink, attach: Attach, address: Address, owned: ForLink | None
) -> None:
    if address.special is not None:
        ReplyLink(endpoint, link, None, CBS).start()
        return
    if address.management:
        key = management_key(address)
        ReplyLink(endpoint, link, _place(endpoint, address, ANY_RIGHT), key).start()
        return
    place = _place(endpoint, address, Rights.LISTEN)
    place.entity.log_id(address)
    place.entity.check_receivable(address)
    if place.entity.receivers >= AMQP_RECEIVERS_PER_ENTITY:
        raise QuotaExceeded(f"'{place.path}' has {AMQP_RECEIVERS_PER_ENTITY} receivers, and may not have more.")
    selector = selector_of(attach.source)
    if owned is None and is_browsing(attach.source):
        BrowseLink(endpoint, link, place, selector).start()
        return
    wanted = session_filter(attach.source)
    if place.entity.requires_session(address):
        if wanted is None:
            raise InvalidOperation(NEEDS_SESSION)
        SessionReceiveLink(endpoint, link, place, wanted).start()
        return
    if wanted is not None:
        raise InvalidOperation(NO_SESSIONS)
    # A subscription that was made for the link has the selector as its rule.
    alone = selector is None or owned is not None
    end = ReceiveLink(endpoint, link, place) if alone else SelectingLink(endpoint, link, place, selector or "")
    end.owned = owned
    end.start(selector is not None)
