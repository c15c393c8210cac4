"""What a simulated namespace holds: queues and topics of every kind, and what the verifier must know of them.

A *place* is where messages can be received: a queue, or a subscription. An *entrance* is where they are sent to, with
the places in which they must then be found. The seed chooses which kinds take part, so that each run is small and
together they meet everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from polybus.namespace.bus import Bus
from polybus.namespace.entities.description import (
    INFINITE_MS,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import Address
from polybus.namespace.entities.rule import (
    TRUE_FILTER,
    CorrelationFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.tiers import Tier
from polybus.testing.verifier import EntityOptions

COLOURS: Final = ("red", "green", "blue")
LOCK_MS: Final = 5_000
"""The shortest that the bus allows: a run has time for several."""
WINDOW_MS: Final = 20_000
UNORDERED: Final = 2
"""The least partitions that the verifier is told of where messages arrive over several ways, and so in any order."""
MANY: Final = 1_000
"""A maximum of deliveries that no run reaches."""


@dataclass(frozen=True)
class Place:
    """A queue or a subscription from which messages are received."""

    name: str
    options: EntityOptions
    forwards_dead_letters_to: str | None = None
    retries_later: bool = False
    """What is abandoned here rests first."""

    @property
    def address(self) -> Address:
        entity, _, subscription = self.name.partition("/Subscriptions/")
        return Address(entity, subscription or None)

    @property
    def dead_letters(self) -> Address:
        address = self.address
        return Address(address.entity, address.subscription, "dead-letter")


@dataclass(frozen=True)
class Entrance:
    """A queue or a topic to which messages are sent. `by_colour` says where each colour of a topic must be found."""

    entity: str
    partitions: int
    sessions: bool = False
    dedup: bool = False
    ttl: bool = False
    by_colour: dict[str, tuple[str, ...]] | None = None
    churning: str | None = None
    """The subscription whose rules change while messages flow."""
    forwards_to: str | None = None
    weight: int = 1

    def recorded(self, colour: str | None) -> str:
        """The name under which a send stands in the history."""
        return self.entity if self.by_colour is None else f"{self.entity}?{colour}"


@dataclass
class Plan:
    """Everything that exists from the start of one run."""

    entities: list[tuple[EntityDescription, int]] = field(default_factory=list)
    """Descriptions and how many partitions each gets, in the order in which they are created."""
    subscriptions: list[tuple[SubscriptionDescription, list[RuleDescription] | None]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    entrances: list[Entrance] = field(default_factory=list)

    def queue(
        self,
        path: str,
        partitions: int,
        options: EntityOptions,
        forward_to: str | None = None,
        dead_letters_to: str | None = None,
        own: str | None = None,
    ) -> None:
        """A queue and its place; what the bus is told follows from what the verifier is told."""
        described = QueueDescription(
            path=path,
            enable_partitioning=partitions > 1,
            requires_session=options.sessions,
            lock_duration_ms=options.lock_ms,
            max_delivery_count=options.max_delivery_count or MANY,
            requires_duplicate_detection=options.dedup_window_ms is not None,
            duplicate_detection_history_time_window_ms=options.dedup_window_ms or 600_000,
            dead_lettering_on_message_expiration=options.dead_letter_on_expiry,
            default_message_time_to_live_ms=options.ttl_ms or INFINITE_MS,
            forward_to=forward_to,
            forward_dead_lettered_messages_to=dead_letters_to,
            user_metadata=own,
        )
        self.entities.append((described, partitions))
        self.places.append(Place(path, options, dead_letters_to, own is not None and "retryDelay" in own))

    def options(self) -> dict[str, EntityOptions]:
        """The options of everything that stands in a history under a name of its own."""
        found = {place.name: place.options for place in self.places}
        for entrance in self.entrances:
            if entrance.by_colour is not None:
                window = WINDOW_MS if entrance.dedup else None
                for colour, names in entrance.by_colour.items():
                    found[entrance.recorded(colour)] = EntityOptions(
                        entrance.partitions, dedup_window_ms=window, delivers_to=names
                    )
        return found

    async def create(self, bus: Bus, namespace: str) -> None:
        management = bus.namespace(namespace).management
        for described, partitions in self.entities:
            bus.tier = Tier(partitions=partitions)
            await management.create(described)
        for subscription, rules in self.subscriptions:
            await management.create_subscription(subscription, rules)


def make_plan(rng: Random, kinds: list[str] | None = None, wishes: Random | None = None) -> Plan:
    """With `wishes` there is also a queue of the kinds that have options of ours."""
    plan = Plan()
    chosen = kinds if kinds is not None else _choose(rng)
    for kind in chosen:
        KINDS[kind](plan, rng)
    if wishes is not None:
        wishes.choice((_mortal, _patient))(plan, wishes)
    return plan


def _choose(rng: Random) -> list[str]:
    """Two to four kinds; the one where sends may go anywhere most often of all."""
    kinds = [kind for kind in KINDS if kind != "wide"]
    chosen = rng.sample(kinds, rng.choice((1, 2, 2, 3)))
    return ["wide", *chosen] if rng.random() < 0.7 else chosen


def _partitions(rng: Random) -> int:
    return rng.choice((2, 4, 16))


def _plain(plan: Plan, rng: Random) -> None:
    del rng
    plan.queue("plain", 1, EntityOptions(lock_ms=LOCK_MS, max_delivery_count=3))
    plan.entrances.append(Entrance("plain", 1))


def _wide(plan: Plan, rng: Random) -> None:
    partitions = rng.choice((4, 16))
    plan.queue("wide", partitions, EntityOptions(partitions, lock_ms=LOCK_MS))
    plan.entrances.append(Entrance("wide", partitions, weight=3))


def _unique(plan: Plan, rng: Random) -> None:
    partitions = rng.choice((1, 4))
    options = EntityOptions(partitions, lock_ms=LOCK_MS, dedup_window_ms=WINDOW_MS)
    plan.queue("unique", partitions, options)
    plan.entrances.append(Entrance("unique", partitions, dedup=True))


def _sessions(plan: Plan, rng: Random) -> None:
    partitions = rng.choice((1, 4))
    options = EntityOptions(partitions, sessions=True, lock_ms=LOCK_MS, max_delivery_count=6)
    plan.queue("steps", partitions, options)
    plan.entrances.append(Entrance("steps", partitions, sessions=True, weight=2))


def _short(plan: Plan, rng: Random) -> None:
    partitions = rng.choice((1, 2))
    dead = rng.random() < 0.5
    options = EntityOptions(partitions, lock_ms=LOCK_MS, ttl_ms=4_000, dead_letter_on_expiry=dead)
    plan.queue("short", partitions, options)
    plan.entrances.append(Entrance("short", partitions, ttl=True))


def _mortal(plan: Plan, rng: Random) -> None:
    """Dead letters live for three seconds."""
    partitions = rng.choice((1, 4))
    options = EntityOptions(partitions, lock_ms=LOCK_MS, max_delivery_count=5, dead_letter_ttl_ms=3_000)
    plan.queue("mortal", partitions, options, own='{"polybus": {"deadLetterTimeToLive": "PT3S"}}')
    plan.entrances.append(Entrance("mortal", partitions, weight=2))


def _patient(plan: Plan, rng: Random) -> None:
    """What is abandoned rests for half a second, for a second the next time, and so on."""
    partitions = rng.choice((1, 4))
    options = EntityOptions(partitions, lock_ms=LOCK_MS, max_delivery_count=5)
    retries = '{"polybus": {"retryDelay": "PT0.5S", "retryDelayGrowth": "double"}}'
    plan.queue("patient", partitions, options, own=retries)
    plan.entrances.append(Entrance("patient", partitions, weight=2))


def _chain(plan: Plan, rng: Random) -> None:
    """Messages walk from `first` over `second` to `last`."""
    for name, target in (("last", None), ("second", "last"), ("first", "second")):
        partitions = rng.choice((1, 4))
        options = EntityOptions(
            max(partitions, UNORDERED),
            lock_ms=LOCK_MS,
            max_delivery_count=MANY,
            delivers_to=("last",) if target else (),
        )
        plan.queue(name, partitions, options, forward_to=target)
    plan.entrances.append(Entrance("first", plan.entities[-1][1], forwards_to="last"))


def _graves(plan: Plan, rng: Random) -> None:
    """Dead letters of `ward` move on to `graves`."""
    del rng
    plan.queue("graves", 4, EntityOptions(4, lock_ms=LOCK_MS))
    ward = EntityOptions(1, lock_ms=LOCK_MS, max_delivery_count=MANY)
    plan.queue("ward", 1, ward, dead_letters_to="graves")
    plan.entrances.append(Entrance("ward", 1))


def _subscribe(plan: Plan, topic: str, name: str, options: EntityOptions, rules: list[RuleDescription]) -> str:
    described = SubscriptionDescription(
        topic=topic,
        name=name,
        lock_duration_ms=options.lock_ms,
        requires_session=options.sessions,
        max_delivery_count=options.max_delivery_count or MANY,
    )
    plan.subscriptions.append((described, rules))
    place = f"{topic}/Subscriptions/{name}"
    plan.places.append(Place(place, options))
    return place


def _news(plan: Plan, rng: Random) -> None:
    """A topic with rules, an action, a subscription that forwards and one whose rules change all the time."""
    partitions = rng.choice((1, 4, 16))
    plan.entities.append((TopicDescription(path="news", enable_partitioning=partitions > 1), partitions))
    plan.queue("clippings", 1, EntityOptions(UNORDERED, lock_ms=LOCK_MS))
    options = EntityOptions(partitions, lock_ms=LOCK_MS)
    red = SqlFilterDescription(expression="colour = 'red'")
    every = _subscribe(plan, "news", "every", options, [rule("$Default")])
    only = _subscribe(plan, "news", "red", options, [RuleDescription(name="red", filter=red)])
    churn = _subscribe(plan, "news", "churn", options, [rule("green", "green")])
    blue = RuleDescription(
        name="blue",
        filter=SqlFilterDescription(expression="colour IN ('blue')"),
        action=SqlActionDescription(expression="SET seen = 'yes'"),
    )
    onward = SubscriptionDescription(topic="news", name="onward", forward_to="clippings", max_delivery_count=MANY)
    plan.subscriptions.append((onward, [blue]))
    by_colour = {"red": (every, only), "green": (every,), "blue": (every, "clippings")}
    plan.entrances.append(Entrance("news", partitions, by_colour=by_colour, churning=churn, weight=2))


def _orders(plan: Plan, rng: Random) -> None:
    """A topic that detects duplicates, with a session-aware subscription and a correlation filter."""
    partitions = rng.choice((1, 4))
    described = TopicDescription(
        path="orders",
        enable_partitioning=partitions > 1,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window_ms=WINDOW_MS,
    )
    plan.entities.append((described, partitions))
    steps = EntityOptions(partitions, sessions=True, lock_ms=LOCK_MS)
    every = _subscribe(plan, "orders", "steps", steps, [rule("$Default")])
    only = _subscribe(plan, "orders", "green", EntityOptions(partitions, lock_ms=LOCK_MS), [rule("green", "green")])
    by_colour = {"red": (every,), "green": (every, only), "blue": (every,)}
    plan.entrances.append(Entrance("orders", partitions, sessions=True, dedup=True, by_colour=by_colour))


def rule(name: str, label: str | None = None) -> RuleDescription:
    """A rule that lets one colour through, or everything."""
    chosen = TRUE_FILTER if label is None else CorrelationFilterDescription(label=label)
    return RuleDescription(name=name, filter=chosen)


KINDS: Final = {
    "plain": _plain,
    "wide": _wide,
    "unique": _unique,
    "sessions": _sessions,
    "short": _short,
    "chain": _chain,
    "graves": _graves,
    "news": _news,
    "orders": _orders,
}
