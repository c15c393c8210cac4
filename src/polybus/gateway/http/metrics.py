"""`/metrics`: what the bus holds and has done, in Prometheus's text format 0.0.4 (docs/protocol/emulator.md#metrics).

Names that the cloud's monitoring has begin with `servicebus_`, our own with `polybus_`. Everything is read from
counters that are kept anyway, entity by entity; between entities the loop gets its turn, however many there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from starlette.responses import Response

from polybus import __version__
from polybus.asyncio_bridge import run
from polybus.gateway.figures import Figures, gather_figures
from polybus.gateway.gateway import Gateway
from polybus.gateway.stats import LATENCY_BUCKETS, EntityStats, Stats
from polybus.namespace.entities.entity import Counts, Entity
from polybus.namespace.namespace import Namespace
from polybus.namespace.observation import Observed, ObservedPartition, Totals, observe

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ENTITIES_PER_TURN = 50
"""Entities looked at in one turn of the loop: a millisecond or two with sixteen partitions each."""

Labels = dict[str, str]

_GAUGES = {
    "servicebus_active_messages": "Messages that can be received, or are locked.",
    "servicebus_deferred_messages": "Messages that were deferred.",
    "servicebus_locked_messages": "Messages under a lock.",
    "servicebus_scheduled_messages": "Messages whose time has not come.",
    "servicebus_deadlettered_messages": "Messages in the dead-letter queue.",
    "servicebus_transfer_messages": "Messages on their way to another entity.",
    "servicebus_transfer_deadlettered_messages": "Messages that could not be moved on.",
    "servicebus_messages": "Messages in all states.",
    "servicebus_size_bytes": "Bytes against the entity's quota.",
    "servicebus_active_sessions": "Sessions that a receiver holds.",
    "servicebus_oldest_active_message_age_seconds": "Age of the oldest message in memory that can be received.",
    "polybus_partition_available": "1 where the partition's broker serves.",
    "polybus_partition_active_messages": "Messages of one partition that can be received, or are locked.",
    "polybus_partition_size_bytes": "Bytes of one partition.",
    "polybus_retained_messages": "Settled messages that are kept for cursors.",
    "polybus_retained_bytes": "Bytes of settled messages that are kept for cursors.",
    "servicebus_active_connections": "Open AMQP connections.",
    "servicebus_build_info": "1, with the version that runs.",
    "polybus_store_up": "1 where the messaging store is open.",
    "polybus_store_state": "1 for the state that the messaging store is in.",
    "polybus_store_unsafe": "1 where accepted does not mean synced.",
    "polybus_store_full": "1 below the reserve of free space: nothing may be sent.",
    "polybus_store_free_bytes": "Free space of the messaging store, where it is known.",
    "polybus_store_partitions": "Partitions on the messaging store.",
    "process_resident_memory_bytes": "Resident memory of the process.",
    "process_start_time_seconds": "When the process started, in seconds since 1970.",
}
_COUNTERS = {
    "servicebus_incoming_messages_total": "Messages that were accepted.",
    "servicebus_incoming_bytes_total": "Bytes of messages that were accepted.",
    "servicebus_outgoing_messages_total": "Messages that were handed to receivers.",
    "servicebus_outgoing_bytes_total": "Bytes of messages that were handed to receivers.",
    "servicebus_completed_messages_total": "Messages that receivers completed.",
    "servicebus_abandoned_messages_total": "Messages that receivers abandoned.",
    "servicebus_deferred_messages_total": "Messages that receivers deferred.",
    "servicebus_deadletter_messages_total": "Messages that were dead-lettered, by reason.",
    "servicebus_expired_messages_total": "Messages whose time to live has ended.",
    "servicebus_duplicate_messages_total": "Messages that were dropped as duplicates.",
    "servicebus_lock_lost_total": "Settlements that came after their lock had ended.",
    "servicebus_incoming_requests_total": "Send requests.",
    "servicebus_requests_total": "Requests by result.",
    "servicebus_connections_opened_total": "AMQP connections opened.",
    "servicebus_connections_closed_total": "AMQP connections closed.",
    "servicebus_forwarded_messages_total": "Messages moved from one entity to another.",
    "polybus_sends_rerouted_total": "Sends without a key that another partition took over.",
    "polybus_sends_refused_total": "Sends that no partition could take.",
    "polybus_store_commits_total": "Commits of the messaging store.",
    "polybus_store_committed_bytes_total": "Bytes that the messaging store committed.",
    "polybus_store_commit_failures_total": "Failures that fenced the messaging store.",
    "process_cpu_seconds_total": "Processor time of the process.",
}
_HISTOGRAMS = {"servicebus_server_send_latency_seconds": "Time from a send's arrival to its acceptance."}
_BOUNDS_BITS = range(6, LATENCY_BUCKETS - 1, 2)
"""Bounds of the histogram, in bits of microseconds: from 64 µs to 16 s, each four times the one before."""
STARTED_S = time.time()


class Exposition:
    """Samples gathered under their names, in the order in which the names are declared."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {name: [] for name in (*_GAUGES, *_COUNTERS, *_HISTOGRAMS)}

    def add(self, name: str, labels: Labels, value: float, suffix: str = "") -> None:
        inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        number = repr(value) if isinstance(value, float) else str(value)
        self._samples[name].append(f"{name}{suffix}{{{inside}}} {number}" if inside else f"{name}{suffix} {number}")

    def text(self) -> str:
        lines: list[str] = []
        for kind, names in (("gauge", _GAUGES), ("counter", _COUNTERS), ("histogram", _HISTOGRAMS)):
            for name, explained in names.items():
                if self._samples[name]:
                    lines += [f"# HELP {name} {explained}", f"# TYPE {name} {kind}", *self._samples[name]]
        return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def metrics(gateway: Gateway, *, per_entity: bool = True) -> Response:
    """The whole page. Without `per_entity` it stays small however many entities there are."""
    page = Exposition()
    figures = await gather_figures(gateway)
    _process(page, figures)
    _gateway(page, figures.stats)
    _stores(page, gateway)
    for namespace in gateway.bus.namespaces.values():
        _namespace(page, namespace, figures)
        if per_entity:
            await _entities(page, namespace, figures)
    if per_entity:
        for name, path, stats in figures.stats.all():
            _totals(page, {"namespace": name, "entity": path}, stats)
    return Response(page.text(), 200, {"Content-Type": METRICS_TYPE})


def _process(page: Exposition, figures: Figures) -> None:
    """Of all processes of the bus together; when they started is said by the one that was asked."""
    page.add("process_cpu_seconds_total", {}, figures.cpu_s)
    page.add("process_start_time_seconds", {}, STARTED_S)
    if figures.resident_bytes:
        page.add("process_resident_memory_bytes", {}, figures.resident_bytes)
    page.add("servicebus_build_info", {"version": __version__}, 1)


def _gateway(page: Exposition, stats: Stats) -> None:
    page.add("servicebus_active_connections", {}, stats.active_connections)
    page.add("servicebus_connections_opened_total", {}, stats.connections_opened)
    page.add("servicebus_connections_closed_total", {}, stats.connections_closed)


def _stores(page: Exposition, gateway: Gateway) -> None:
    for number, store in enumerate([*gateway.bus.stores, *gateway.bus.missing]):
        labels = {"store": str(number), "id": store.store_id.hex()}
        page.add("polybus_store_up", labels, int(store.available))
        page.add("polybus_store_state", {**labels, "state": store.state.value}, 1)
        page.add("polybus_store_unsafe", labels, int(store.unsafe))
        page.add("polybus_store_full", labels, int(store.full))
        page.add("polybus_store_partitions", labels, len(store.tenants))
        page.add("polybus_store_commits_total", labels, store.commits)
        page.add("polybus_store_committed_bytes_total", labels, store.committed_bytes)
        page.add("polybus_store_commit_failures_total", labels, store.commit_failures)
        if store.free_bytes is not None:
            page.add("polybus_store_free_bytes", labels, store.free_bytes)


def _namespace(page: Exposition, namespace: Namespace, figures: Figures) -> None:
    labels = {"namespace": namespace.name}
    page.add("polybus_sends_rerouted_total", labels, figures.rerouted(namespace))
    page.add("polybus_sends_refused_total", labels, figures.refused(namespace))
    page.add("servicebus_forwarded_messages_total", labels, figures.forwarded(namespace))


async def _entities(page: Exposition, namespace: Namespace, figures: Figures) -> None:
    for number, entity in enumerate(list(namespace.entities.values()), 1):
        await _entity(page, namespace, entity, figures)
        if number % ENTITIES_PER_TURN == 0:
            await asyncio.sleep(0)


async def _entity(page: Exposition, namespace: Namespace, entity: Entity, figures: Figures) -> None:
    kind = "topic" if entity.is_topic else "queue"
    labels = {"namespace": namespace.name, "entity": entity.name, "entity_type": kind}
    numbers = [subscription.number for subscription in entity.subscriptions.values()]
    seen = await run(observe(entity, [0, *numbers]))
    page.add("servicebus_size_bytes", labels, seen.logs[0].counts.size_bytes)
    _counts(page, labels, seen.logs[0].counts)
    now_ms = namespace.bus.clock.now().wall_ms
    _observed(page, labels, seen.logs[0], now_ms)
    totals = figures.totals(entity, 0, entity.settings.own.totals)
    _fates(page, labels, totals)
    if not entity.is_topic or entity.detects_duplicates:
        page.add("servicebus_duplicate_messages_total", labels, totals.duplicates)
    for subscription in list(entity.subscriptions.values()):
        counted = seen.logs.get(subscription.number)
        if counted is None:
            continue  # made meanwhile
        path = f"{entity.name}/Subscriptions/{subscription.description.name}"
        own = {"namespace": namespace.name, "entity": path, "entity_type": "subscription"}
        _counts(page, own, counted.counts)
        _observed(page, own, counted, now_ms)
        _fates(page, own, figures.totals(entity, subscription.number, subscription.settings.totals))
    _partitions(page, labels, seen.partitions)


def _counts(page: Exposition, labels: Labels, counts: Counts) -> None:
    page.add("servicebus_active_messages", labels, counts.active)
    page.add("servicebus_deferred_messages", labels, counts.deferred)
    page.add("servicebus_locked_messages", labels, counts.locked)
    page.add("servicebus_scheduled_messages", labels, counts.scheduled)
    page.add("servicebus_deadlettered_messages", labels, counts.dead_letter)
    page.add("servicebus_transfer_messages", labels, counts.transfer)
    page.add("servicebus_transfer_deadlettered_messages", labels, counts.transfer_dead_letter)
    page.add("servicebus_messages", labels, counts.total)


def _observed(page: Exposition, labels: Labels, seen: Observed, now_ms: int) -> None:
    age_ms = 0 if seen.oldest_ms is None else max(now_ms - seen.oldest_ms, 0)
    page.add("servicebus_active_sessions", labels, seen.sessions)
    page.add("servicebus_oldest_active_message_age_seconds", labels, age_ms / 1000)
    page.add("polybus_retained_messages", labels, seen.retained)
    page.add("polybus_retained_bytes", labels, seen.retained_bytes)


def _fates(page: Exposition, labels: Labels, totals: Totals) -> None:
    page.add("servicebus_expired_messages_total", labels, totals.expired)
    for reason, count in totals.dead.items():
        page.add("servicebus_deadletter_messages_total", {**labels, "reason": reason}, count)


def _partitions(page: Exposition, labels: Labels, partitions: list[ObservedPartition]) -> None:
    for partition in partitions:
        own = {**labels, "partition": str(partition.index)}
        page.add("polybus_partition_available", own, int(partition.available))
        if partition.available:
            page.add("polybus_partition_active_messages", own, partition.active)
            page.add("polybus_partition_size_bytes", own, partition.size_bytes)


def _totals(page: Exposition, labels: Labels, stats: EntityStats) -> None:
    for name, value in _named(stats):
        page.add(name, labels, value)
    results = (
        ("user_error", stats.user_errors),
        ("server_error", stats.server_errors),
        ("throttled", stats.throttled),
        ("success", stats.requests),
    )
    for result, value in results:
        page.add("servicebus_requests_total", {**labels, "result": result}, value)
    _latency(page, labels, stats)


def _latency(page: Exposition, labels: Labels, stats: EntityStats) -> None:
    name = "servicebus_server_send_latency_seconds"
    for bits in _BOUNDS_BITS:
        below = sum(stats.latency[: bits + 1])
        page.add(name, {**labels, "le": repr((1 << bits) / 1_000_000)}, below, "_bucket")
    page.add(name, {**labels, "le": "+Inf"}, stats.requests, "_bucket")
    page.add(name, labels, stats.send_seconds, "_sum")
    page.add(name, labels, stats.requests, "_count")


def _named(stats: EntityStats) -> Iterator[tuple[str, int]]:
    yield "servicebus_incoming_messages_total", stats.incoming_messages
    yield "servicebus_incoming_bytes_total", stats.incoming_bytes
    yield "servicebus_outgoing_messages_total", stats.outgoing_messages
    yield "servicebus_outgoing_bytes_total", stats.outgoing_bytes
    yield "servicebus_completed_messages_total", stats.completed
    yield "servicebus_abandoned_messages_total", stats.abandoned
    yield "servicebus_deferred_messages_total", stats.deferred
    yield "servicebus_lock_lost_total", stats.lock_lost
    yield "servicebus_incoming_requests_total", stats.requests
