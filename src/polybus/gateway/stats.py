"""What passed through the gateway, counted by entity; `/metrics` and the logs read it."""

from __future__ import annotations

from typing import Final

from polybus.errors import BusError, PolybusError

LATENCY_BUCKETS: Final = 26
"""The last holds everything from 16 s on: a send that waits longer was given up by its client."""


class EntityStats:
    """Totals of one entity since the start. Plain attributes: they are raised on the hot path."""

    __slots__ = (
        "abandoned",
        "completed",
        "dead_lettered",
        "deferred",
        "incoming_bytes",
        "incoming_messages",
        "latency",
        "lock_lost",
        "outgoing_bytes",
        "outgoing_messages",
        "requests",
        "send_seconds",
        "server_errors",
        "throttled",
        "user_errors",
    )

    def __init__(self) -> None:
        self.incoming_messages = 0
        self.incoming_bytes = 0
        self.outgoing_messages = 0
        self.outgoing_bytes = 0
        self.completed = 0
        self.abandoned = 0
        self.deferred = 0
        self.dead_lettered = 0
        self.lock_lost = 0
        self.requests = 0
        self.user_errors = 0
        self.server_errors = 0
        self.throttled = 0
        self.send_seconds = 0.0
        """Time from a send's arrival to its acceptance, summed up."""
        self.latency = [0] * LATENCY_BUCKETS
        """Sends by the bits of that time in microseconds: the bucket n holds those below 2**n."""

    def accepted(self, messages: int, size: int, seconds: float) -> None:
        """Counts a send."""
        self.incoming_messages += messages
        self.incoming_bytes += size
        self.requests += 1
        self.send_seconds += seconds
        micros = int(seconds * 1_000_000)
        bits = 0
        while micros > 0 and bits < LATENCY_BUCKETS - 1:  # quicker than to ask for its bits
            micros >>= 1
            bits += 1
        self.latency[bits] += 1

    def refused(self, error: PolybusError) -> None:
        """Counts a refusal under whoever is to blame for it."""
        if not isinstance(error, BusError) or error.http_status >= 500:
            if isinstance(error, BusError) and error.http_status == 503:
                self.throttled += 1
            else:
                self.server_errors += 1
        else:
            self.user_errors += 1
            if error.http_status == 410:
                self.lock_lost += 1


class Stats:
    """Totals of the whole gateway."""

    def __init__(self) -> None:
        self.connections_opened = 0
        self.connections_closed = 0
        self._entities: dict[tuple[str, str], EntityStats] = {}

    @property
    def active_connections(self) -> int:
        return self.connections_opened - self.connections_closed

    def entity(self, namespace: str, path: str) -> EntityStats:
        """The totals of an entity, by its canonical path; a subscription has its own."""
        key = (namespace, path)
        found = self._entities.get(key)
        if found is None:
            found = EntityStats()
            self._entities[key] = found
        return found

    def seen(self, namespace: str, path: str) -> EntityStats:
        """The same for who only looks: an entity that nothing has passed through gets no totals of its own."""
        return self._entities.get((namespace, path)) or _NOTHING

    def all(self) -> list[tuple[str, str, EntityStats]]:
        return [(namespace, path, stats) for (namespace, path), stats in sorted(self._entities.items())]


_NOTHING = EntityStats()
