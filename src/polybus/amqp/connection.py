"""A connection, from the first byte to the last: bytes in, events out, and what to answer.

Frames come from the reader and go through `states.CONNECTION`. Whatever the peer breaks ends in one close
frame and one `Closed` event: `feed` does not raise for the peer's faults. Times are arguments; there is no
socket, no clock and no bus in here. AMQP 1.0 §2.4, §5.3; docs/protocol/amqp.md#transport.
"""

from __future__ import annotations

from polybus.amqp.events import Closed, Opened, ProtocolEvent, SaslInit, SessionBegun
from polybus.amqp.fields import invalid
from polybus.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_FRAME,
    SASL_HEADER,
    SMALLEST_MAX_FRAME_SIZE,
    frame,
)
from polybus.amqp.outcomes import AmqpError
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open
from polybus.amqp.reader import Frame, FrameReader, framing_error
from polybus.amqp.sasl import AUTH, MECHANISMS, OK, Init, Mechanisms, SaslOutcome
from polybus.amqp.session import AmqpSession
from polybus.amqp.states import (
    CLOSED,
    CLOSING,
    CONNECTION,
    GREETED,
    JUDGING,
    LOGIN,
    OPENED,
    SESSION,
    START,
    step,
)
from polybus.amqp.traffic import frame_fields
from polybus.amqp.writer import SessionWriter
from polybus.errors import ProtocolError
from polybus.limits import (
    AMQP_CHANNEL_MAX,
    AMQP_CLOSE_MS,
    AMQP_FRAME_BYTES,
    AMQP_HANDSHAKE_MS,
    AMQP_IDLE_TIMEOUT_MS,
    AMQP_LINKS_PER_CONNECTION,
    AMQP_OUTGOING_FRAME_BYTES,
    AMQP_PARTIAL_BYTES,
    AMQP_PERFORMATIVE_BYTES,
    AMQP_SHORTEST_IDLE_TIMEOUT_MS,
    AMQP_STRANGER_BYTES,
    AMQP_STRANGER_LINKS,
)


class ConnectionConfig:
    """What we say of ourselves, and whether a peer may come without a login."""

    def __init__(
        self,
        container_id: str,
        *,
        mechanisms: list[str] | None = None,
        login_required: bool = False,
        idle_timeout_ms: int = AMQP_IDLE_TIMEOUT_MS,
        properties: dict[object, object] | None = None,
        capabilities: list[str] | None = None,
    ) -> None:
        self.capabilities = capabilities or []
        """What is offered to peers that ask for it."""
        self.container_id = container_id
        self.mechanisms = list(MECHANISMS) if mechanisms is None else mechanisms
        self.login_required = login_required
        self.idle_timeout_ms = idle_timeout_ms
        self.properties = properties


class Connection(FrameReader):
    """The server's side of one connection. `context` is the owner's."""

    def __init__(self, config: ConnectionConfig, now_ms: int) -> None:
        super().__init__(now_ms)
        self.config = config
        self.context: object = None
        self.mechanism: str | None = None
        self.peer: Open | None = None
        self.known = False
        """Whether the peer has shown who it is; the owner says so. Until then it may make us hold little."""
        self.link_count = 0
        self._ended: dict[int, None] = {}
        """Channels on which a session has ended and no other has begun."""
        self.frame_limit = SMALLEST_MAX_FRAME_SIZE
        self.out: list[bytes] = []
        self.dirty: list[SessionWriter] = []
        self._held_bytes = 0
        self._sent_ms = now_ms
        self._deadline_ms = now_ms + AMQP_HANDSHAKE_MS
        self._heartbeat_ms = 0

    def output(self) -> bytes:
        """Everything to be written since the last call."""
        if self.dirty:
            self._flush()
        if not self.out:
            return b""
        data = b"".join(self.out)
        self.out.clear()
        self._sent_ms = self.now_ms
        return data

    def sasl_outcome(self, code: int) -> list[ProtocolEvent]:
        """Answers `SaslInit`; gives the events for what the peer has sent ahead."""
        events: list[ProtocolEvent] = []
        if self.state != JUDGING:
            return events
        self.out.append(frame(0, SaslOutcome(code), SASL_FRAME))
        self.state = step(CONNECTION, self.state, "we welcome" if code == OK else "we refuse")[1]
        if code == OK:
            self.read_ahead(events)
        else:
            events.append(Closed(AmqpError("amqp:unauthorized-access", "the login was refused")))
        return events

    def close(self, error: AmqpError | None = None) -> list[ProtocolEvent]:
        """Closes from our side; `Closed` follows when the peer has answered, or has not in time."""
        events: list[ProtocolEvent] = []
        if self.state == OPENED:
            self._flush()
            self.out.append(frame(0, Close(error)))
            self.state = step(CONNECTION, self.state, "we close")[1]
            self._deadline_ms = self.now_ms + AMQP_CLOSE_MS
            self._abandon(error, events)
        elif self.state != CLOSING and self.state != CLOSED:
            self.on_violation(error or AmqpError("amqp:connection:forced"), events)
        return events

    def lost(self) -> list[ProtocolEvent]:
        """The transport is gone: reports everything that was on it."""
        events: list[ProtocolEvent] = []
        if self.state != CLOSED:
            self._finish(None, events)
        return events

    def tick(self, now_ms: int) -> list[ProtocolEvent]:
        """Does what is due by time: heartbeats, and the end of peers that are silent. AMQP 1.0 §2.4.5."""
        self.now_ms = now_ms
        events: list[ProtocolEvent] = []
        if self.state == OPENED:
            if now_ms - self.heard_ms >= self.config.idle_timeout_ms:
                self.on_violation(AmqpError("amqp:connection:forced", "nothing was heard for too long"), events)
            elif self._heartbeat_ms and now_ms - self._sent_ms >= self._heartbeat_ms:
                self.out.append(EMPTY_FRAME)
        elif self.state != CLOSED and now_ms >= self._deadline_ms:
            self.on_violation(AmqpError("amqp:connection:forced", "the peer was too slow"), events)
        return events

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do; None once the connection is closed."""
        if self.state == CLOSED:
            return None
        if self.state != OPENED:
            return self._deadline_ms
        silent_ms = self.heard_ms + self.config.idle_timeout_ms
        return min(silent_ms, self._sent_ms + self._heartbeat_ms) if self._heartbeat_ms else silent_ms

    def hold(self, size: int) -> None:
        """Counts the bytes that the peer makes us keep: of unfinished deliveries, and of what it said of its links."""
        self._held_bytes += size
        if size > 0 and self._held_bytes > (AMQP_PARTIAL_BYTES if self.known else AMQP_STRANGER_BYTES):
            raise ProtocolError("amqp:resource-limit-exceeded", "too many bytes of links and unfinished deliveries")

    def room_for_link(self) -> bool:
        if self.link_count >= (AMQP_LINKS_PER_CONNECTION if self.known else AMQP_STRANGER_LINKS):
            return False
        self.link_count += 1
        return True

    def forget_session(self, session: AmqpSession) -> None:
        del self.sessions[session.channel]
        self._ended[session.channel] = None

    def on_header(self, name: str, events: list[ProtocolEvent]) -> None:
        """Answers a protocol header; one that we do not speak gets ours, and the end. AMQP 1.0 §2.2."""
        if name == "amqp header" and self.state == START and self.config.login_required:
            name = "other header"
        action, self.state = step(CONNECTION, self.state, name)
        if action == "offer mechanisms":
            self.out.append(SASL_HEADER)
            self.out.append(frame(0, Mechanisms(self.config.mechanisms), SASL_FRAME))
        elif action == "name our header":
            self.out.append(SASL_HEADER)
            events.append(Closed(AmqpError("amqp:connection:framing-error", "the protocol is not supported")))
        else:
            self.out.append(AMQP_HEADER)
            if action == "greet anonymous":
                self.mechanism = "ANONYMOUS"

    def on_frame(self, given: Frame, events: list[ProtocolEvent]) -> None:
        action, state = step(CONNECTION, self.state, given.name)
        if action == "nothing":
            return
        if action == "to the session":
            self._to_session(given, events)
            return
        fields = self._fields(given)
        if action == "begin":
            self._on_begin(given.channel, Begin.from_fields(fields), events)
        elif action == "open":
            self._on_open(given.channel, Open.from_fields(fields), state, events)
        elif action == "ask the caller":
            self._on_sasl_init(Init.from_fields(fields), state, events)
        else:
            self._on_close(action, Close.from_fields(fields), events)

    def _on_sasl_init(self, init: Init, state: str, events: list[ProtocolEvent]) -> None:
        if init.mechanism not in self.config.mechanisms:
            raise ProtocolError("amqp:not-implemented", "the mechanism was not offered")
        self.state = state
        self.mechanism = init.mechanism
        events.append(SaslInit(init.mechanism, init.initial_response, init.hostname))

    def _on_open(self, channel: int, opened: Open, state: str, events: list[ProtocolEvent]) -> None:
        idle_ms = opened.idle_time_out or 0
        if channel != 0:
            raise framing_error("open belongs on channel 0")
        if opened.max_frame_size < SMALLEST_MAX_FRAME_SIZE:
            raise invalid("max-frame-size is below 512")
        if 0 < idle_ms < AMQP_SHORTEST_IDLE_TIMEOUT_MS:
            raise invalid("idle-time-out is too short")
        self.peer = opened
        self.state = state
        self.frame_limit = min(opened.max_frame_size, AMQP_OUTGOING_FRAME_BYTES)
        self._heartbeat_ms = idle_ms // 2
        self._write_open()
        events.append(Opened(opened))

    def _write_open(self) -> None:
        config = self.config
        ours = Open(
            config.container_id,
            max_frame_size=AMQP_FRAME_BYTES,
            channel_max=AMQP_CHANNEL_MAX,
            idle_time_out=config.idle_timeout_ms,
            properties=config.properties,
            offered=self._offered(),
        )
        self.out.append(frame(0, ours))

    def _offered(self) -> list[str]:
        """What of the peer's wishes we can do. AMQP 1.0 §2.7.1."""
        desired = [] if self.peer is None else self.peer.desired
        return [name for name in self.config.capabilities if name in desired]

    def _on_begin(self, channel: int, begin: Begin, events: list[ProtocolEvent]) -> None:
        assert self.peer is not None
        if channel > AMQP_CHANNEL_MAX:
            raise framing_error("the channel is beyond our channel-max")
        if channel > self.peer.channel_max:
            raise ProtocolError("amqp:not-allowed", "the channel is beyond the peer's own channel-max")
        if channel in self.sessions or begin.remote_channel is not None:
            raise ProtocolError("amqp:illegal-state", f"channel {channel} has a session already")
        if not self.known and len(self.sessions) >= AMQP_STRANGER_LINKS:
            raise ProtocolError("amqp:resource-limit-exceeded", "too many sessions before a token was shown")
        session = AmqpSession(self, channel, begin)
        self.sessions[channel] = session
        self._ended.pop(channel, None)
        session.answer_begin()
        events.append(SessionBegun(session))

    def _to_session(self, given: Frame, events: list[ProtocolEvent]) -> None:
        session = self.sessions.get(given.channel)
        if session is None and given.name == "detach" and given.channel in self._ended:
            return  # the Python SDK ends a session and then detaches its links
        if session is None:
            raise ProtocolError("amqp:illegal-state", f"channel {given.channel} has no session")
        action = step(SESSION, session.state, given.name)[0]
        if action == "nothing":
            return
        if action == "transfer":
            session.on_transfer(given.data, given.pos, given.stop, events)
            return
        if action == "dispose":
            session.on_disposition(given.data, given.pos, given.stop, events)
            return
        fields = self._fields(given)
        if action == "flow":
            session.on_flow(fields, events)
        elif action == "attach":
            session.on_attach(Attach.from_fields(fields), given.stop - given.pos, events)
        elif action == "detach":
            session.on_detach(Detach.from_fields(fields), events)
        else:
            session.on_end(End.from_fields(fields), events)

    def _fields(self, given: Frame) -> list[object]:
        """The fields of a frame that carries no message; a long one is refused before it is taken apart."""
        if given.stop - given.pos > AMQP_PERFORMATIVE_BYTES:
            raise ProtocolError("amqp:resource-limit-exceeded", f"the {given.name} is too long")
        return frame_fields(given.data, given.pos, given.stop)

    def _on_close(self, action: str, close: Close, events: list[ProtocolEvent]) -> None:
        if action == "answer close":
            self.out.append(frame(0, Close()))
        self._finish(close.error, events)

    def on_violation(self, error: AmqpError, events: list[ProtocolEvent]) -> None:
        """Ends the connection with one error, in whatever words its state allows. AMQP 1.0 §2.4.3."""
        if self.state == LOGIN or self.state == JUDGING:
            self.out.append(frame(0, SaslOutcome(AUTH), SASL_FRAME))
        elif self.state == GREETED:
            self._write_open()
            self.out.append(frame(0, Close(error)))
        elif self.state == OPENED:
            self._flush()
            self.out.append(frame(0, Close(error)))
        self._finish(error, events)

    def _finish(self, error: AmqpError | None, events: list[ProtocolEvent]) -> None:
        self.state = CLOSED
        self._abandon(error, events)
        events.append(Closed(error))

    def _abandon(self, error: AmqpError | None, events: list[ProtocolEvent]) -> None:
        """Reports all sessions as ended; nothing is written for them any more."""
        sessions = list(self.sessions.values())
        self.sessions.clear()
        self.dirty.clear()
        for session in sessions:
            session.gone(error, events)

    def _flush(self) -> None:
        dirty = self.dirty.copy()
        self.dirty.clear()
        for session in dirty:
            session.flush()
