"""What every simulated client has: a name, randomness of its own, and a recorder of the history.

A client works until the run is closing, one operation after the other. What it is told goes into the history as it
was: ok, failed (nothing was done), or unknown (the store failed in the middle, or the process died).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from polybus.errors import BugError, PolybusError
from polybus.hosting.store_host import InDoubt
from polybus.message.message import Message, build
from polybus.promise import Promise, spawn
from polybus.testing.history import FAILED, UNKNOWN, digest
from tests.support.simulation.places import COLOURS, Entrance, Plan
from tests.support.simulation.surroundings import ProcessDied, Surroundings

T = TypeVar("T")

COLOUR = "colour"
SHORT_BINARY = 0xA0
"""The constructor of binary data of less than 256 bytes (AMQP 1.0 §1.6.19)."""
SESSIONS = ("s1", "s2", "s3", "s4")
KEYS = ("k1", "k2", "k3")


def outcome_of(error: Exception) -> str:
    """What an error says about the effect. A fault of the bus itself is no outcome and ends the simulation."""
    if isinstance(error, BugError) or not isinstance(error, PolybusError):
        raise error
    return UNKNOWN if isinstance(error, (InDoubt, ProcessDied)) else FAILED


class Letter:
    """A message as its sender knows it. Its identity is in the body, for not every message has an id."""

    def __init__(self, identity: str, colour: str, padding: int) -> None:
        self.identity = identity
        self.colour = colour
        self.padding = padding
        self.message_id: str | None = None
        self.session: str | None = None
        self.key: str | None = None
        self.ttl_ms: int | None = None
        self.due_ms: int | None = None
        self._message: Message | None = None

    def message(self) -> Message:
        if self._message is None:
            self._message = build(
                f"{self.identity}|".encode() + b"." * self.padding,
                message_id=self.message_id,
                session_id=self.session,
                partition_key=self.key,
                subject=self.colour,
                ttl_ms=self.ttl_ms,
                scheduled_ms=self.due_ms,
                application={COLOUR: self.colour},
            )
        return self._message

    def fields(self) -> dict[str, Any]:
        """What the history says of it."""
        return {
            "message_id": self.identity,
            "key": self.key,
            "session": self.session,
            "ttl_ms": self.ttl_ms,
            "due_ms": self.due_ms,
            "digest": digest(self.message().raw),
        }


def identity_of(message: Message) -> str:
    """The identity that the sender wrote into the body, a data section of its own."""
    raw = message.raw
    at = message.body_at + (5 if raw[message.body_at + 3] == SHORT_BINARY else 8)
    return raw[at : raw.index(b"|", at)].decode()


class Client:
    def __init__(self, name: str, world: Surroundings, plan: Plan) -> None:
        self.name = name
        self.world = world
        self.plan = plan
        self.rng = world.rng(name)
        self.recorder = world.recorder(name)
        self.closing = False
        self._made = 0
        world.on_death.append(self.process_died)

    async def work(self) -> None:
        """Lives until the run is closing."""
        while not self.closing:
            await self.world.sleep(self.pause_ms() * self.world.pace)
            if self.world.bus is not None and not self.closing:
                await self.act()

    def pause_ms(self) -> float:
        return self.rng.choice((1, 20, 100, 300, 800))

    async def act(self) -> None:
        raise NotImplementedError

    def process_died(self) -> None:
        """Called at the moment of death, when whoever waited has heard of it."""

    def close(self) -> None:
        """The run ends: nothing new is begun."""
        self.closing = True

    def call(self, work: Coroutine[Any, Any, T]) -> Promise[T]:
        return self.world.call(spawn(work))

    def pick_entrance(self, **wanted: bool) -> Entrance | None:
        fitting = [e for e in self.plan.entrances if all(getattr(e, name) == value for name, value in wanted.items())]
        if not fitting:
            return None
        return self.rng.choices(fitting, [entrance.weight for entrance in fitting])[0]

    def letter(self, entrance: Entrance, key: str | None = None) -> Letter:
        """A new message for this entrance; without a `key` it may have one or none."""
        self._made += 1
        padding = self.rng.choice((0, 10, 300, 700)) if self.rng.random() < 0.98 else 40_000
        letter = Letter(f"{self.name}-{self._made}", self.rng.choice(COLOURS), padding)
        if entrance.sessions:
            letter.session = key or self.rng.choice(SESSIONS)
        elif key is not None or self.rng.random() < 0.3:
            letter.key = key or self.rng.choice(KEYS)
        if entrance.dedup or self.rng.random() < 0.5:
            letter.message_id = letter.identity
        if entrance.ttl and self.rng.random() < 0.3:
            letter.ttl_ms = self.rng.choice((1_500, 10_000))
        return letter
