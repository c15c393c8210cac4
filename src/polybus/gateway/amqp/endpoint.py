"""One client's AMQP connection: the protocol's events are handed to the ends of its links.

Bytes come in through `feed`, time through `tick`; what is to be written is gathered over one turn of the loop and
leaves at once. The endpoint keeps what a connection as a whole has: its namespace, its rights, its transactions,
how much of its work is under way and how much its transport can take. What a link means lives in the link's end.
docs/protocol/amqp.md#transport, docs/protocol/sas.md#cbs.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from typing import Final, Protocol
from uuid import uuid4

from polybus.amqp.connection import Connection, ConnectionConfig
from polybus.amqp.events import (
    Attached,
    Closed,
    CreditChanged,
    Disposed,
    IncomingDelivery,
    LinkDetached,
    Opened,
    OutgoingDelivery,
    ProtocolEvent,
    SaslInit,
    SessionBegun,
)
from polybus.amqp.outcomes import AmqpError
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.sasl import AUTH, OK
from polybus.amqp.states import CLOSED, CLOSING
from polybus.amqp.types import Symbol
from polybus.clock import Clock
from polybus.errors import QuotaExceeded, ShuttingDown, Unauthorized
from polybus.gateway.amqp.access import Access, log_in
from polybus.gateway.amqp.attach import attach_link
from polybus.gateway.amqp.early_links import EarlyLinks
from polybus.gateway.amqp.errors import amqp_error, new_tracking_id
from polybus.gateway.amqp.link_end import LinkEnd, SessionLinks
from polybus.gateway.amqp.on_demand import Maker
from polybus.gateway.amqp.requests import ReplyLink
from polybus.gateway.amqp.sent_messages import BATCH_FORMAT
from polybus.gateway.amqp.transactions import ClientTransactions
from polybus.gateway.gateway import Gateway, Grant
from polybus.gateway.sas import Rights
from polybus.limits import (
    AMQP_CLOSE_MS,
    AMQP_CONNECTIONS,
    AMQP_TOKEN_MS,
    AMQP_TURN_BYTES,
    AMQP_TURN_DISPOSED,
    AMQP_TURN_EVENTS,
    AMQP_TURN_SECONDS,
    AMQP_UNANSWERED_BYTES,
    AMQP_UNREAD_ANSWER_BYTES,
    AMQP_UNSENT_BYTES,
    PREMIUM_MESSAGE_BYTES_MAX,
    STANDARD_MESSAGE_BYTES,
)
from polybus.namespace.namespace import Namespace

log = logging.getLogger(__name__)

_CONFIG: Final = ConnectionConfig(
    f"polybus_{uuid4().hex}",
    properties={Symbol("product"): "Polybus"},
    capabilities=["ANONYMOUS-RELAY", "DELAYED_DELIVERY"],
)
_ON_DEMAND: Final = ConnectionConfig(
    _CONFIG.container_id, properties=_CONFIG.properties, capabilities=[*_CONFIG.capabilities, "SHARED-SUBS"]
)
"""Subscriptions that several clients share are made by those who share them."""
_numbers: Final = itertools.count(1)
_QUIET: Final = ("amqp:connection:forced", "amqp:unauthorized-access", "amqp:resource-limit-exceeded")
"""Conditions with which connections end in the course of things."""


_JAVA_SDK: Final = "azure-messaging-servicebus"
"""The product that the Java SDK says it is when it opens a connection."""


class Transport(Protocol):
    """What carries the bytes: a socket, a TLS stream, a WebSocket."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Closes after everything that was written has left."""

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left."""


class AmqpEndpoint:
    """The bus's side of one connection."""

    __slots__ = (
        "_closing",
        "_deadline_ms",
        "_early_links",
        "_flush_due",
        "_named",
        "_opened",
        "_reading_paused",
        "_transactions",
        "_turn_bytes",
        "_turn_due",
        "_unanswered_bytes",
        "_under_way",
        "_unread_bytes",
        "_work",
        "_writing_paused",
        "access",
        "blocked",
        "client_host",
        "connection",
        "gateway",
        "held_reply_bytes",
        "id",
        "namespace",
        "now_ms",
        "stopping",
        "transport",
    )

    def __init__(self, gateway: Gateway, transport: Transport, now_ms: int) -> None:
        self.gateway = gateway
        self.transport = transport
        self.now_ms = now_ms
        self.id = f"c{next(_numbers)}"
        self.connection = Connection(_ON_DEMAND if gateway.on_demand else _CONFIG, now_ms)
        self.namespace: Namespace = gateway.first_namespace
        self._named = False
        """Whether it is known which namespace the client means: by host name, by login, or by its first token."""
        self.client_host: str | None = None
        """The address of the client."""
        self.access = Access()
        self._early_links: EarlyLinks | None = None
        self._transactions: ClientTransactions | None = None
        self.blocked = False
        """Receivers must wait: the transport, or this turn, has as many bytes as it can take."""
        self.stopping = False
        self._closing = False
        self._opened = False
        self._deadline_ms: int | None = None
        self._flush_due = False
        self._turn_bytes = 0
        self._writing_paused = False
        self._reading_paused = False
        self._unread_bytes = 0
        """Written since the client last kept up with what it gets."""
        self._work: deque[ProtocolEvent] = deque()
        """Events that wait for this connection's next turn."""
        self._turn_due = False
        self.held_reply_bytes = 0
        """Of replies that wait for credit, over all links."""
        self._under_way = 0
        self._unanswered_bytes = 0
        gateway.connections[self] = None

    @property
    def transactions(self) -> ClientTransactions:
        if self._transactions is None:
            self._transactions = ClientTransactions(self.namespace, not self.is_java_sdk)
        return self._transactions

    @property
    def early_links(self) -> EarlyLinks:
        if self._early_links is None:
            self._early_links = EarlyLinks(self)
        return self._early_links

    def token_shown(self) -> None:
        """The client may do more than before."""
        if self._early_links is not None:
            self._early_links.token_shown()

    @property
    def maker(self) -> Maker:
        return Maker(self.gateway.turns, self.namespace)

    @property
    def client_id(self) -> str:
        """The name that a client has for itself: JMS's client id."""
        peer = self.connection.peer
        return "" if peer is None else peer.container_id

    @property
    def is_java_sdk(self) -> bool:
        """The Java SDK reads no answers to sends in a transaction, and takes a settlement in one for the last word."""
        peer = self.connection.peer
        return peer is not None and (peer.properties or {}).get("product") == _JAVA_SDK

    @property
    def clock(self) -> Clock:
        return self.gateway.bus.clock

    # Bytes and time

    def feed(self, data: bytes, now_ms: int | None = None) -> None:
        """Takes bytes of the client; without a time the machine's own clock is read."""
        self.now_ms = _monotonic_ms() if now_ms is None else now_ms
        self._work.extend(self.connection.feed(data, self.now_ms))
        if not self._turn_due:
            self._work_on()
        self.wake()

    def _work_on(self) -> None:
        """Handles what has come, for the time of one turn; the rest waits, unread, until others had theirs."""
        work = self._work
        until_s = time.perf_counter() + AMQP_TURN_SECONDS
        unseen = 0
        while True:
            while work:
                event = work.popleft()
                self._do(event, until_s)
                unseen += 1
                if unseen >= AMQP_TURN_EVENTS or not _is_quick(event):
                    unseen = 0
                    if (work or self.connection.unread) and time.perf_counter() > until_s:
                        self._take_another_turn()
                        return
            if not self.connection.unread:
                return
            if time.perf_counter() > until_s:  # frames that make no events are work, too
                self._take_another_turn()
                return
            work.extend(self.connection.feed(b"", self.now_ms))

    def _take_another_turn(self) -> None:
        self._turn_due = True
        self._pause_reading()
        self.gateway.bus.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        self._work_on()
        self._resume_reading()
        self.wake()

    def tick(self, now_ms: int) -> None:
        """Does what time has made due."""
        self.now_ms = now_ms
        self._follow(self.connection.tick(now_ms))
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            self._deadline_ms = None
            if not self.access.granted:
                self._close(Unauthorized("No token was shown in time."))
        expiry_ms = self.access.next_expiry_ms
        expired = expiry_ms is not None and now_ms >= expiry_ms and self.access.expire(now_ms)
        for end in self._ends():
            if expired:
                end.rights_lost("The token has expired.")
            end.tick()
        self.wake()

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do; None once the connection is closed."""
        due_ms = self.connection.next_tick_ms
        if due_ms is None:
            return None
        for other_ms in (self._deadline_ms, self.access.next_expiry_ms):
            if other_ms is not None and other_ms < due_ms:
                due_ms = other_ms
        return due_ms

    def lost(self) -> None:
        """The transport is gone."""
        self._closing = True
        self._follow(self.connection.lost())
        self._forget()

    def _follow(self, events: list[ProtocolEvent]) -> None:
        """Handles events behind those that still wait."""
        self._work.extend(events)
        if not self._turn_due:
            self._work_on()

    def wake(self) -> None:
        """Something is to be written: it leaves with the rest of this turn of the loop."""
        if not self._flush_due:
            self._flush_due = True
            self.gateway.bus.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        data = self.connection.output()
        if data and not self._closing:
            self._write(data)
        self._turn_bytes = 0
        if self.connection.state == CLOSED:
            self._end()
        elif self.blocked and not self._writing_paused:
            self._unblock()

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        if self.transport.unsent > AMQP_UNSENT_BYTES and not self._writing_paused:
            self.pause_writing()
        self._unread_bytes = self._unread_bytes + len(data) if self._writing_paused else 0
        if self._unread_bytes > AMQP_UNREAD_ANSWER_BYTES + self._largest_message:
            log.info("a connection is closed: its client does not read", extra={"connection": self.id})
            self._closing = True
            self.transport.abort()

    @property
    def _largest_message(self) -> int:
        """What may be on its way besides answers."""
        if not self.connection.known:
            return 0
        return PREMIUM_MESSAGE_BYTES_MAX if self.namespace.tier.is_premium else STANDARD_MESSAGE_BYTES

    def _end(self) -> None:
        """What was written may still leave, but not for ever: a peer that does not read would keep the socket."""
        if not self._closing:
            self._closing = True
            self.transport.close()
            self.gateway.bus.loop.call_later(AMQP_CLOSE_MS / 1000, self.transport.abort)

    # How much the client can take, and how much it may bring

    def sent(self, size: int) -> bool:
        """Notes a message on its way out; true where no more may follow for now."""
        self._turn_bytes += size
        if self._turn_bytes > AMQP_TURN_BYTES:
            self.blocked = True
        self.wake()
        return self.blocked

    def pause_writing(self) -> None:
        """The transport has too many unsent bytes."""
        self._writing_paused = True
        self.blocked = True
        for end in self._ends():
            end.pause()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self.blocked and not self._flush_due:
            self._unblock()

    def _unblock(self) -> None:
        self.blocked = False
        if not self.stopping:
            for end in self._ends():
                end.resume()

    def begun(self, size: int) -> None:
        """Work of the client waits for a commit; with too many bytes of it the client is not read."""
        self._under_way += 1
        self._unanswered_bytes += size
        if self._unanswered_bytes > AMQP_UNANSWERED_BYTES:
            self._pause_reading()

    def ended(self, size: int) -> None:
        self._under_way -= 1
        self._unanswered_bytes -= size
        self._resume_reading()
        if self.stopping and self._under_way == 0:
            self._close(ShuttingDown("The bus is shutting down."))

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._closing:
            self._reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        """Reads on where the client's work is neither waiting for a turn nor too much of it for a commit."""
        if self._reading_paused and not self._turn_due and 2 * self._unanswered_bytes < AMQP_UNANSWERED_BYTES:
            self._reading_paused = False
            if not self._closing:
                self.transport.resume_reading()

    # Stopping

    def shut_down(self) -> None:
        """Takes no new work, answers what is under way, then closes with a condition that clients retry."""
        self.stopping = True
        for end in self._ends():
            end.pause()
        if self._under_way == 0:
            self._close(ShuttingDown("The bus is shutting down."))

    @property
    def told(self) -> bool:
        """Whether everything has left, the close included: only the client's own goodbye is missing."""
        state = self.connection.state
        return state in (CLOSING, CLOSED) and not self._flush_due and self.transport.unsent == 0

    def hang_up(self) -> None:
        """The bus waits no longer: the socket is closed."""
        self._end()

    def _close(self, error: Exception) -> None:
        tracking_id = new_tracking_id(self.id)
        log.info("a connection is closed: %s", error, extra={"connection": self.id, "tracking_id": tracking_id})
        self.handle(self.connection.close(amqp_error(error, tracking_id)))
        self.wake()

    def _forget(self) -> None:
        if self.gateway.connections.pop(self, self) is None and self._opened:
            self.gateway.stats.connections_closed += 1

    # Events

    def handle(self, events: list[ProtocolEvent]) -> None:
        """Hands events to whom they concern, now: what follows from something that we do."""
        for event in events:
            self._do(event, None)

    def _do(self, event: ProtocolEvent, until_s: float | None) -> None:
        """A bug of ours ends this connection and nothing else."""
        try:
            if isinstance(event, Disposed) and until_s is not None:
                self._dispose(event, until_s)
            else:
                self._handle(event, until_s)
        except Exception as error:
            log.exception("an event could not be handled", extra={"connection": self.id})
            self._close(error)

    def _dispose(self, event: Disposed, until_s: float) -> None:
        """Settles as many of the deliveries as the turn has time for; the rest stays first in line."""
        deliveries = event.deliveries
        if len(deliveries) <= AMQP_TURN_DISPOSED:
            self._disposed(deliveries, event)
            return
        done = 0
        while done < len(deliveries):
            part = deliveries[done : done + AMQP_TURN_DISPOSED]
            self._disposed(part, event)
            done += len(part)
            if time.perf_counter() > until_s and done < len(deliveries):
                self._work.appendleft(Disposed(event.session, deliveries[done:], event.state, event.settled))
                return

    def _handle(self, event: ProtocolEvent, until_s: float | None) -> None:
        if isinstance(event, IncomingDelivery):
            end = event.link.context
            if isinstance(end, LinkEnd):
                if event.message_format == BATCH_FORMAT and until_s is not None and not end.unpacked(event, until_s):
                    self._work.appendleft(event)  # it stays first in line
                else:
                    end.delivered(event)
        elif isinstance(event, Disposed):
            self._disposed(event.deliveries, event)
        elif isinstance(event, CreditChanged):
            end = event.link.context
            if isinstance(end, LinkEnd) and not self.stopping:
                end.credit_changed()
        elif isinstance(event, Attached):
            attach_link(self, event.link, event.attach)
        elif isinstance(event, LinkDetached):
            end = event.link.context
            if isinstance(end, LinkEnd):
                end.undecided(event.unsettled)
                end.detached(event.unsent)
            if self._closing:
                event.link.context = None  # a link and its end hold each other: nothing may wait for the collector
        else:
            self._handle_life(event)

    def _disposed(self, deliveries: list[OutgoingDelivery], event: Disposed) -> None:
        now = self.gateway.bus.clock.now()
        state, settled = event.state, event.settled
        for outgoing in deliveries:
            end = outgoing.link.context
            if isinstance(end, LinkEnd):
                end.disposed(outgoing, state, settled, now)

    def _handle_life(self, event: ProtocolEvent) -> None:
        if isinstance(event, SessionBegun):
            event.session.context = SessionLinks()
        elif isinstance(event, SaslInit):
            welcome = log_in(self.gateway, self.access, event)
            if self.access.logins:
                self.connection.known = True
            if not welcome:
                extra = {"connection": self.id, "tracking_id": new_tracking_id(self.id)}
                text = "a login with %.20s was refused: the mechanism, the name or the password is wrong"
                log.info(text, event.mechanism, extra=extra)
            self.handle(self.connection.sasl_outcome(OK if welcome else AUTH))
        elif isinstance(event, Opened):
            self._on_opened(event)
        elif isinstance(event, Closed):
            if event.error is not None:
                self._report_end(event.error)
            self._forget()

    def _on_opened(self, event: Opened) -> None:
        gateway = self.gateway
        if gateway.stopping:
            self._close(ShuttingDown("The bus is shutting down."))
            return
        if gateway.stats.active_connections >= AMQP_CONNECTIONS:
            self._close(QuotaExceeded(f"The bus has {AMQP_CONNECTIONS} connections, and may not have more."))
            return
        self._opened = True
        gateway.stats.connections_opened += 1
        try:
            self._enter(event.open.hostname)
        except Unauthorized as error:
            self._close(error)
        if not self.access.granted:
            self._deadline_ms = self.now_ms + AMQP_TOKEN_MS

    def _enter(self, hostname: str | None) -> None:
        """The namespace that the host name means, else the first that the login opens, else the first token's."""
        namespaces = self.gateway.bus.namespaces
        named = self.gateway.namespace_named(hostname)
        if named is None and self.access.logins:
            named = next(one for one in namespaces.values() if one.name in self.access.logins)
        if named is not None:
            self._named = True
            self.namespace = named
            self.gateway.check_address(named, self.client_host)
            self.access.enter(named.name)

    def show(self, token: str, audience: str) -> Grant:
        """What a token allows here. The first one of a client that said no name decides on its namespace."""
        namespace = self.namespace
        if not self._named:
            namespace = self.gateway.namespace_signing(token, audience)
            self.gateway.check_address(namespace, self.client_host)
        grant = self.gateway.check_token(namespace, token, audience)
        self.connection.known = True
        self._named = True
        self.namespace = namespace
        return grant

    def access_changed(self, namespace: Namespace) -> None:
        """Keys or IP rules are others now: what this client was allowed by one that is gone ends, link by link."""
        if namespace is not self.namespace:
            return
        if self._named:
            try:
                self.gateway.check_address(namespace, self.client_host)
            except Unauthorized as error:
                self._close(error)
                return
        if not self.access.recheck(self._still_shown, self._still_logged_in):
            return
        for end in self._ends():
            end.rights_lost("The key that this was allowed by was changed or removed.")
        if not self.access.granted:
            self._deadline_ms = self.now_ms + AMQP_TOKEN_MS
        self.wake()

    def _still_shown(self, token: str, audience: str) -> Rights:
        try:
            return self.gateway.check_token(self.namespace, token, audience).rights
        except Unauthorized:
            return Rights.NONE

    def _still_logged_in(self, name: str, password: str) -> Rights:
        try:
            return self.gateway.check_password(name, password).get(self.namespace.name, Rights.NONE)
        except Unauthorized:
            return Rights.NONE

    def _report_end(self, error: AmqpError) -> None:
        level = logging.WARNING if error.condition not in _QUIET else logging.INFO
        extra = {"connection": self.id, "condition": error.condition}
        log.log(level, "a connection ended: %s", error.description, extra=extra)

    # Links

    def _ends(self) -> list[LinkEnd]:
        found: list[LinkEnd] = []
        for session in list(self.connection.sessions.values()):
            for link in list(session.links.values()):
                if isinstance(link.context, LinkEnd) and (link.attached or link.pending):
                    found.append(link.context)
        return found

    def reply_links(self) -> list[ReplyLink]:
        return [end for end in self._ends() if isinstance(end, ReplyLink)]

    def receiver_named(self, name: object) -> LinkEnd | None:
        """The end of a link over which this client receives, by the link's name."""
        for end in self._ends():
            if end.link.name == name and isinstance(end.link, OutgoingLink):
                return end
        return None


def _is_quick(event: ProtocolEvent) -> bool:
    """Whether an event is sure to have taken little time: one message for a link that only stores it."""
    if not isinstance(event, IncomingDelivery) or event.message_format > 0:
        return False
    end = event.link.context
    return isinstance(end, LinkEnd) and end.quick


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
