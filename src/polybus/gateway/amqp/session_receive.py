"""A receiver that holds a session: its attach is answered when the session is locked for it.

A named session is there or is taken; for the next available one the answer waits, as long as the client says, and is
given up when the client goes. The session is free again as soon as the link is gone.
docs/protocol/amqp.md#session-filter, docs/protocol/amqp.md#next-session, docs/protocol/semantics.md#sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.amqp.codec import long8
from polybus.amqp.events import OutgoingDelivery
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.terminus import Source
from polybus.amqp.types import Symbol
from polybus.errors import PolybusError, SessionLockLost
from polybus.gateway.amqp.addresses import LinkNode, SessionFilter
from polybus.gateway.amqp.receive import ReceivingLink
from polybus.gateway.durations import ticks_from_ms
from polybus.limits import SESSION_WAIT_MS
from polybus.namespace.delivery.session_source import HeldSession, SessionSource
from polybus.promise import Promise, resolved, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

TIMEOUT: Final = "com.microsoft:timeout"
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"


class SessionReceiveLink(ReceivingLink):
    """A receiver of one session. A `SessionReceiver` of the namespace."""

    __slots__ = ("_filter", "_held_session", "_sessions", "_waiting")

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode, wanted: SessionFilter) -> None:
        super().__init__(endpoint, link, place)
        self._filter = wanted
        self._sessions: SessionSource = place.entity.session_source(place.address)
        self._held_session: HeldSession | None = None
        self._waiting: Promise[HeldSession] | None = None

    def start(self) -> None:
        session_id = self._filter.session_id
        if session_id is None:
            promise = self._sessions.accept_next(str(self), self._timeout_ms())
        else:
            promise = spawn(self._sessions.accept(session_id, str(self)))
        self._waiting = promise
        promise.then(self._found)

    @property
    def session_id(self) -> str | None:
        """The session that this receiver holds."""
        held = self._held_session
        return None if held is None else held.id

    def _timeout_ms(self) -> int:
        given = (self.link.attach.properties or {}).get(TIMEOUT)
        return int(given) if isinstance(given, int) and given >= 0 else SESSION_WAIT_MS

    def _found(self, promise: Promise[HeldSession]) -> None:
        self._waiting = None
        try:
            held = promise.result()
        except PolybusError as error:
            if self.link.pending:
                self.close(error)
            return
        if not self.link.pending:
            held.release()  # the client has gone meanwhile
            return
        self._held_session = held
        held.receiver = self
        self._answer(held)

    def _answer(self, held: HeldSession) -> None:
        """Names the session in the form that the client used, and when its lock ends, in .NET's ticks."""
        source = self._filter.echo(self.link.attach.source or Source(), held.id)
        until = long8(ticks_from_ms(held.locked_until_wall_ms))
        events = self.link.accept(source=source, properties={Symbol(LOCKED_UNTIL): until})
        self.endpoint.handle(events)
        self.endpoint.wake()

    def lock_lost(self) -> None:
        """The lock has run out, or the session's partition is gone."""
        held = self._held_session
        name = "" if held is None else held.id
        self.close(SessionLockLost(f"The session lock has expired on the session with id '{name}'."))

    def want(self) -> None:
        if self._held_session is not None:
            self._held_session.pump()

    def stop_wanting(self) -> None:
        """A session looks at the receiver's credit before each message."""

    def drained(self) -> Promise[None]:
        held = self._held_session
        return resolved(None) if held is None else held.drained()

    def detached(self, unsent: list[OutgoingDelivery]) -> None:
        super().detached(unsent)
        if self._waiting is not None:
            self._sessions.cancel(self._waiting)
        held, self._held_session = self._held_session, None
        if held is not None:
            held.receiver = None
            held.release()
