"""What all processes of the bus have counted, added up: for metrics and for pages that show the bus as one.

A bus alone reads its own counters and copies nothing. One of several asks the others, and adds.
"""

from __future__ import annotations

import resource
from typing import Any

from polybus.asyncio_bridge import from_promise
from polybus.gateway.gateway import Gateway
from polybus.gateway.stats import EntityStats, Stats
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.namespace.observation import Totals
from polybus.promise import resolved

FIGURES = "figures"
_SUMMED = (
    "abandoned",
    "completed",
    "dead_lettered",
    "deferred",
    "incoming_bytes",
    "incoming_messages",
    "lock_lost",
    "outgoing_bytes",
    "outgoing_messages",
    "requests",
    "send_seconds",
    "server_errors",
    "throttled",
    "user_errors",
)


class Figures:
    """The counters of the whole bus."""

    def __init__(self, gateway: Gateway) -> None:
        self.stats = gateway.stats
        self.cpu_s = cpu_seconds()
        self.resident_bytes = resident_bytes() or 0
        self._namespaces: dict[str, list[int]] = {}
        self._totals: dict[tuple[int, int], Totals] = {}
        self._pipelines: dict[str, list[dict[str, Any]]] = {}
        self._gateway = gateway

    def rerouted(self, namespace: Namespace) -> int:
        return namespace.sender.rerouted + self._of(namespace)[0]

    def refused(self, namespace: Namespace) -> int:
        return namespace.sender.refused + self._of(namespace)[1]

    def forwarded(self, namespace: Namespace) -> int:
        return namespace.forwarder.forwarded + self._of(namespace)[2]

    def _of(self, namespace: Namespace) -> list[int]:
        return self._namespaces.get(namespace.name, [0, 0, 0])

    def totals(self, entity: Entity, number: int, own: Totals) -> Totals:
        """What became of messages of a queue or topic (0), or of a subscription; `own` is this process's part."""
        others = self._totals.get((entity.id, number))
        if others is None:
            return own
        whole = Totals()
        _add_totals(whole, own.expired, own.duplicates, own.dead)
        _add_totals(whole, others.expired, others.duplicates, others.dead)
        return whole

    def pipelines(self, namespace: Namespace) -> list[dict[str, Any]]:
        """What runners have told; only one process keeps it."""
        own = [told.short() for told in self._gateway.pipelines.of(namespace)]
        return own + self._pipelines.get(namespace.name, [])

    def add(self, told: dict[str, Any]) -> None:
        """Adds what `own_figures` gave in another process."""
        if self.stats is self._gateway.stats:
            self.stats = Stats()
            _add_stats(self.stats, stats_values(self._gateway.stats))
        _add_stats(self.stats, told["stats"])
        self.cpu_s += told["cpu_s"]
        self.resident_bytes += told["resident_bytes"]
        for name, counts in told["namespaces"].items():
            known = self._namespaces.get(name, [0, 0, 0])
            self._namespaces[name] = [mine + theirs for mine, theirs in zip(known, counts, strict=True)]
        for entity_id, number, expired, duplicates, dead in told["totals"]:
            _add_totals(self._totals.setdefault((entity_id, number), Totals()), expired, duplicates, dead)
        for name, pipelines in told["pipelines"].items():
            self._pipelines[name] = [*self._pipelines.get(name, []), *pipelines]


def share_figures(gateway: Gateway) -> None:
    """Lets the other processes of the bus ask for what this one has counted."""
    members = gateway.bus.members
    if members is not None:
        members.serve(FIGURES, lambda _: resolved(own_figures(gateway)))


async def gather_figures(gateway: Gateway) -> Figures:
    figures = Figures(gateway)
    members = gateway.bus.members
    if members is not None:
        for told in (await from_promise(members.ask_others(FIGURES, None))).values():
            figures.add(told)
    return figures


def own_figures(gateway: Gateway) -> dict[str, Any]:
    """What this process has counted, as plain values."""
    namespaces = list(gateway.bus.namespaces.values())
    return {
        "stats": stats_values(gateway.stats),
        "cpu_s": cpu_seconds(),
        "resident_bytes": resident_bytes() or 0,
        "namespaces": {
            each.name: [each.sender.rerouted, each.sender.refused, each.forwarder.forwarded] for each in namespaces
        },
        "totals": [
            [entity.id, log.number, log.totals.expired, log.totals.duplicates, dict(log.totals.dead)]
            for entity in gateway.bus.entities.values()
            for log in (entity.settings.own, *entity.settings.subscriptions.values())
            if log.totals.expired or log.totals.duplicates or log.totals.dead
        ],
        "pipelines": {
            each.name: [told.short() for told in gateway.pipelines.of(each)]
            for each in namespaces
            if gateway.pipelines.of(each)
        },
    }


def stats_values(stats: Stats) -> list[Any]:
    entities = [
        [namespace, path, [getattr(each, name) for name in _SUMMED], list(each.latency)]
        for namespace, path, each in stats.all()
    ]
    return [stats.connections_opened, stats.connections_closed, entities]


def _add_stats(stats: Stats, values: list[Any]) -> None:
    opened, closed, entities = values
    stats.connections_opened += opened
    stats.connections_closed += closed
    for namespace, path, numbers, latency in entities:
        entity: EntityStats = stats.entity(namespace, path)
        for name, number in zip(_SUMMED, numbers, strict=True):
            setattr(entity, name, getattr(entity, name) + number)
        entity.latency = [mine + theirs for mine, theirs in zip(entity.latency, latency, strict=True)]


def _add_totals(totals: Totals, expired: int, duplicates: int, dead: dict[str, int]) -> None:
    totals.expired += expired
    totals.duplicates += duplicates
    for reason, count in dead.items():
        totals.dead[reason] = totals.dead.get(reason, 0) + count


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return None
