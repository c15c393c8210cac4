"""Valid frames in any order, generated from the state tables, which also foretell what must happen."""

from __future__ import annotations

import random

import pytest

from polybus.amqp.connection import Connection, ConnectionConfig
from polybus.amqp.events import Attached, Closed, ProtocolEvent, SaslInit, SessionBegun, SessionEnded
from polybus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.outcomes import ACCEPTED
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open
from polybus.amqp.sasl import Init
from polybus.amqp.states import CLOSED, CONNECTION, ENDING, LINK, LOGIN, MAPPED, SESSION, START, step
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.errors import ProtocolError

SEQUENCES = 400

FRAMES = {
    "heartbeat": lambda channel, handle: EMPTY_FRAME,
    "open": lambda channel, handle: frame(0, Open("client")),
    "begin": lambda channel, handle: frame(channel, Begin(0, 100, 100)),
    "attach": lambda channel, handle: frame(channel, Attach("x", handle, bool(handle))),
    "flow": lambda channel, handle: frame(channel, Flow(None, 10, 0, 10, handle, 0, 5)),
    "disposition": lambda channel, handle: frame(channel, Disposition(True, 0, 9, False, ACCEPTED)),
    "detach": lambda channel, handle: frame(channel, Detach(handle, True)),
    "end": lambda channel, handle: frame(channel, End()),
    "close": lambda channel, handle: frame(0, Close()),
    "sasl-init": lambda channel, handle: frame(0, Init("ANONYMOUS"), SASL_FRAME),
    "amqp header": lambda channel, handle: AMQP_HEADER,
    "sasl header": lambda channel, handle: SASL_HEADER,
}


class Model:
    """The tables, played by hand."""

    def __init__(self) -> None:
        self.state = START
        self.sessions: dict[int, str] = {}
        self.ended: set[int] = set()
        self.links: dict[tuple[int, int], str] = {}

    def foretell(self, name: str, channel: int, handle: int) -> set[type]:
        """The kinds of events that must come, and the move itself."""
        try:
            return self.move(name, channel, handle)
        except ProtocolError:
            self.state = CLOSED
            ended = {SessionEnded} if MAPPED in self.sessions.values() else set()
            return {Closed} | ended

    def move(self, name: str, channel: int, handle: int) -> set[type]:
        is_header = name.endswith("header")
        if self.state == CLOSED:
            return set()
        if is_header != (self.state in (START, "logged in")):
            raise ProtocolError("", "a header is no frame")
        if not is_header and name.startswith("sasl") != (self.state == LOGIN):
            raise ProtocolError("", "the frame is of the other type")
        action, after = step(CONNECTION, self.state, name)
        if action == "to the session":
            return self.move_session(name, channel, handle)
        told: set[type] = set()
        if action == "begin":
            if channel in self.sessions:
                raise ProtocolError("", "begun already")
            self.sessions[channel] = MAPPED
            self.ended.discard(channel)
            told = {SessionBegun}
        if after == CLOSED:
            told = {Closed} | ({SessionEnded} if MAPPED in self.sessions.values() else set())
        self.state = after
        return told

    def move_session(self, name: str, channel: int, handle: int) -> set[type]:
        if name == "detach" and channel in self.ended:
            return set()
        if channel not in self.sessions:
            raise ProtocolError("", "no session")
        action, after = step(SESSION, self.sessions[channel], name)
        if name == "end":
            del self.sessions[channel]
            self.ended.add(channel)
            self.drop_links(channel)
            return {SessionEnded} if action == "answer end" else set()
        if action == "nothing" or name == "disposition":
            return set()
        key = (channel, handle)
        if (key in self.links) == (name == "attach"):
            self.sessions[channel] = ENDING
            self.drop_links(channel)
            return {SessionEnded}
        self.sessions[channel] = after
        return self.move_link(name, key)

    def move_link(self, name: str, key: tuple[int, int]) -> set[type]:
        state = self.links.get(key, "detached")
        _, after = step(LINK, state, name)
        if name == "attach":
            self.links[key] = step(LINK, after, "we accept")[1]
            return {Attached}
        if name == "detach":
            del self.links[key]
        return set()

    def drop_links(self, channel: int) -> None:
        self.links = {key: state for key, state in self.links.items() if key[0] != channel}


def accept_all(connection: Connection, events: list[ProtocolEvent]) -> list[ProtocolEvent]:
    told = list(events)
    for event in events:
        if isinstance(event, SaslInit):
            told += connection.sasl_outcome(0)
        elif isinstance(event, Attached):
            told += event.link.accept(max_message_size=100)
    return told


WATCHED = (Closed, SessionBegun, SessionEnded, Attached)
USUAL = ["begin", "attach", "attach", "flow", "disposition", "detach", "end", "heartbeat"]


def names(rng: random.Random) -> list[str]:
    """Mostly a sensible beginning, then anything."""
    start = rng.choice(([], ["amqp header", "open"], ["sasl header", "sasl-init", "amqp header", "open"]))
    rest = [rng.choice(USUAL if rng.random() < 0.9 else list(FRAMES)) for _ in range(rng.randrange(1, 25))]
    return [*start, *rest]


@pytest.mark.parametrize("seed", range(SEQUENCES // 50))
def test_frames_in_any_order(seed) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        connection = Connection(ConnectionConfig("polybus"), 0)
        model = Model()
        story = []
        for name in names(rng):
            channel, handle = rng.randrange(1, 3), rng.randrange(2)
            story.append((name, channel, handle))
            expected = model.foretell(name, channel, handle)
            if model.state == "judging":
                model.state = step(CONNECTION, model.state, "we welcome")[1]
            events = accept_all(connection, connection.feed(FRAMES[name](channel, handle), 0))
            told = {type(event) for event in events if isinstance(event, WATCHED)}
            assert told == expected, story
            assert connection.state == model.state, story


def test_transfers_take_the_short_way_only_where_the_table_allows() -> None:
    """The reader's short way for flows, transfers and dispositions is the table's own move."""
    for name in ("flow", "transfer", "disposition"):
        assert CONNECTION[("opened", name)] == ("to the session", "opened")
        assert SESSION[(MAPPED, name)][1] == MAPPED
    connection = Connection(ConnectionConfig("polybus"), 0)
    connection.feed(AMQP_HEADER + frame(1, Transfer(0, 0, b"t", 0)), 0)
    assert connection.state == CLOSED
