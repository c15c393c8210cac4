"""`<entity>/$management`: one request, one reply, with exactly the types that the SDKs unpack.

Each operation is a coroutine in one of the files beside this one; here is the envelope: which right it needs, how
long it may take, and how its result or its error goes back. docs/protocol/management.md#envelope,
docs/protocol/management.md#operations, docs/protocol/management.md#timeouts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from polybus.amqp.incoming import IncomingLink
from polybus.amqp.types import Int, Symbol
from polybus.errors import BusError, NotImplementedByBus, OperationTimeout, PolybusError, ProtocolError, ServerBusy
from polybus.gateway.amqp import management_messages as messages
from polybus.gateway.amqp import management_sessions as sessions
from polybus.gateway.amqp import rules
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.call import ManagementCall, ManagementReply
from polybus.gateway.amqp.errors import condition_of, description_of, new_tracking_id
from polybus.gateway.amqp.requests import NodeKey, Request, RequestLink
from polybus.gateway.sas import Rights
from polybus.limits import AMQP_MANAGEMENT_MS, AMQP_REQUESTS_UNDER_WAY, KEY_CHARACTERS
from polybus.namespace.entities.names import Address
from polybus.promise import Promise, TimerHandle, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

Operation = Callable[[ManagementCall], Coroutine[Any, Any, ManagementReply]]

_TRACKING: Final = "com.microsoft:tracking-id"
_TIMEOUTS: Final = ("com.microsoft:server-timeout", "server-timeout")
_LISTEN: Final = Rights.LISTEN
_SEND: Final = Rights.SEND

OPERATIONS: Final[dict[str, tuple[Rights, Operation]]] = {
    "com.microsoft:peek-message": (_LISTEN, messages.peek),
    "com.microsoft:receive-by-sequence-number": (_LISTEN, messages.receive_deferred),
    "com.microsoft:renew-lock": (_LISTEN, messages.renew_locks),
    "com.microsoft:update-disposition": (_LISTEN, messages.update_disposition),
    "com.microsoft:schedule-message": (_SEND, messages.schedule),
    "com.microsoft:cancel-scheduled-message": (_SEND, messages.cancel_scheduled),
    "com.microsoft:batch-delete-messages": (_LISTEN, messages.batch_delete),
    "com.microsoft:renew-session-lock": (_LISTEN, sessions.renew_lock),
    "com.microsoft:set-session-state": (_LISTEN, sessions.set_state),
    "com.microsoft:get-session-state": (_LISTEN, sessions.get_state),
    "com.microsoft:get-message-sessions": (_LISTEN, sessions.list_sessions),
    "com.microsoft:add-rule": (_LISTEN, rules.add),
    "com.microsoft:remove-rule": (_LISTEN, rules.remove),
    "com.microsoft:enumerate-rules": (_LISTEN, rules.enumerate_rules),
}
"""What each operation needs. Rules want Manage or Listen, and Manage has Listen in it."""


def management_key(address: Address) -> NodeKey:
    """What the two links of one entity's management have in common."""
    return ("$management", *address.folded)


class ManagementLink(RequestLink):
    """The request link of an entity's management."""

    __slots__ = ("under_way",)

    def __init__(self, endpoint: AmqpEndpoint, link: IncomingLink, place: LinkNode) -> None:
        super().__init__(endpoint, link, place, management_key(place.address))
        self.under_way = 0

    def serve(self, request: Request) -> None:
        place = self.place
        assert place is not None, "management is always of a place"
        self.endpoint.gateway.stats.entity(place.namespace.name, place.stats_path()).requests += 1
        pending = Pending(self, request)
        try:
            work = self._operation(request, place)
        except BusError as error:
            pending.refuse(error)
            return
        self.under_way += 1
        self.endpoint.begun(0)
        pending.follow(spawn(work))

    def _operation(self, request: Request, place: LinkNode) -> Coroutine[Any, Any, ManagementReply]:
        found = OPERATIONS.get(request.operation)
        if found is None:
            raise NotImplementedByBus(f"Invalid command '{request.operation[:100]}'.")
        if self.endpoint.stopping or self.under_way >= AMQP_REQUESTS_UNDER_WAY:
            raise ServerBusy("The bus cannot take this request now; try again.")
        needed, operation = found
        self.endpoint.access.require(place.scope, needed, place.uri)
        return operation(ManagementCall(self.endpoint, self.shared, place, request))


class Pending:
    """A request whose answer is on its way; it is given once, in time."""

    __slots__ = ("_done", "_link", "_request", "_timer")

    def __init__(self, link: ManagementLink, request: Request) -> None:
        self._link = link
        self._request = request
        self._done = False
        self._timer: TimerHandle | None = None

    def follow(self, promise: Promise[ManagementReply]) -> None:
        if not promise.settled:
            loop = self._link.endpoint.gateway.bus.loop
            self._timer = loop.call_later(_timeout_ms(self._request) / 1000, self._timed_out)
        promise.then(self._answered)

    def _answered(self, promise: Promise[ManagementReply]) -> None:
        self._link.under_way -= 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            answer = promise.result()
            self._reply(answer.status, "OK", None, answer.body)
        except Exception as error:
            self.refuse(error)
        self._link.endpoint.ended(0)

    def _timed_out(self) -> None:
        self.refuse(OperationTimeout("The operation did not complete within the allotted time."))

    def refuse(self, error: Exception) -> None:
        tracking_id = new_tracking_id(self._link.endpoint.id)
        self._link.report(error, tracking_id, f"the operation {self._request.operation[:100]!a} was refused")
        place = self._link.place
        if place is not None and isinstance(error, PolybusError):
            stats = self._link.endpoint.gateway.stats.entity(place.namespace.name, place.stats_path())
            stats.refused(error)
        self._reply(_status_of(error), f"{description_of(error)} TrackingId:{tracking_id}", condition_of(error), {})

    def _reply(self, status: int, description: str, condition: str | None, body: dict[str, object]) -> None:
        if self._done:
            return
        self._done = True
        application: dict[str, object] = {"statusCode": Int(status), "statusDescription": description}
        if condition is not None:
            application["errorCondition"] = Symbol(condition)
        tracking = self._request.application.get(_TRACKING)
        if isinstance(tracking, str) and len(tracking) <= KEY_CHARACTERS:
            application[_TRACKING] = tracking
        self._request.reply(application, body)


def _status_of(error: Exception) -> int:
    if isinstance(error, BusError):
        return error.http_status
    return 400 if isinstance(error, ProtocolError) else 500


def _timeout_ms(request: Request) -> int:
    """The client's patience; 0 is legal and means that it did not say (docs/protocol/management.md#server-timeout)."""
    for name in _TIMEOUTS:
        given = request.application.get(name)
        if isinstance(given, int) and given > 0:
            return int(given)
    return AMQP_MANAGEMENT_MS
