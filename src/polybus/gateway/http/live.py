"""Live figures, as server-sent events: what each entity holds, what came and went, how the stores are.

A page that shows them asks once and is told from then on. Figures are counted in memory, at most once for all who
watch, and less often where a namespace has so many entities that counting takes long. Whoever has some right on the
namespace may see them, as with metrics; who has a key of one entity sees that one. Addresses and errors of stores are
for managers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import BusError, ServerBusy, StoreError, Unauthorized
from polybus.gateway.figures import Figures, gather_figures
from polybus.gateway.gateway import Gateway, Grant
from polybus.gateway.http.auth import authorize_any
from polybus.gateway.http.metrics import STARTED_S
from polybus.gateway.http.partitions import entity_overview
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.gateway.stats import Stats
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import parse_address
from polybus.namespace.namespace import Namespace
from polybus.namespace.observation import Observed, observe
from polybus.namespace.pipeline.ranges import log_ends, main_log

EVENTS_TYPE = "text/event-stream"
_TOTALS = ("active", "dead_letter", "in", "out")
"""What is summed up over all; a message of a topic lies in its subscriptions."""
Frame = dict[str, Any]


class Live:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._samples: dict[tuple[str, str], _Sample] = {}
        self._streams = 0

    def stream(self, call: HttpCall, scope: str) -> Response:
        """Figures until the client goes, its token ends or the bus stops."""
        authorize_any(call, scope)
        if self._streams >= limits.LIVE_STREAMS:
            raise ServerBusy("Too many pages watch the bus. Try again.")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(call, scope), 200, headers, EVENTS_TYPE)

    async def _events(self, call: HttpCall, scope: str) -> AsyncIterator[bytes]:
        focus = call.query.get("focus", "")
        first = True
        self._streams += 1
        try:
            while not self._gateway.stopping:
                try:
                    grant = authorize_any(call, scope)
                except Unauthorized as error:
                    yield _event("refused", {"detail": error.description})
                    return
                sample = self._sample(call.namespace, scope)
                await sample.refresh()
                figures = sample.figures
                frame: Frame = {"node": _node(figures), "stores": _stores(self._gateway, grant)}
                if not scope and grant.rights & Rights.MANAGE == Rights.MANAGE:
                    frame["pipelines"] = figures.pipelines(call.namespace)
                if first:
                    frame["history"] = list(sample.history)
                if focus:
                    frame["focus"] = await _focus(call.namespace, focus, scope)
                yield _event("figures", frame, sample.text)
                first = False
                await asyncio.sleep(sample.pause_s)
        finally:
            self._streams -= 1

    def _sample(self, namespace: Namespace, scope: str) -> _Sample:
        key = (namespace.name, scope.lower())
        found = self._samples.get(key)
        if found is None:
            if len(self._samples) >= limits.LIVE_STREAMS:
                del self._samples[next(iter(self._samples))]
            found = self._samples[key] = _Sample(self._gateway, namespace, scope)
        return found


def _event(name: str, value: Frame, more: str = "") -> bytes:
    """An event with an object in JSON; `more` are further members of it, ready made."""
    own = json.dumps(value)[1:-1]
    return f"event: {name}\ndata: {{{more}{', ' if more and own else ''}{own}}}\n\n".encode()


class _Sample:
    """The figures of a namespace, or of one entity of it, as they were last counted."""

    def __init__(self, gateway: Gateway, namespace: Namespace, scope: str) -> None:
        self._gateway = gateway
        self._namespace = namespace
        self._scope = scope
        self.figures = Figures(gateway)
        self._counted_s = 0.0
        self._counting: asyncio.Task[None] | None = None
        self.text = ""
        """What all who watch are told, as members of an object in JSON: it is made once for all of them."""
        self.pause_s = limits.LIVE_SECONDS
        self.history: deque[Frame] = deque(maxlen=limits.LIVE_HISTORY)
        """Totals of the past, for whoever begins to watch now."""

    async def refresh(self) -> None:
        """Counts again, unless somebody just has or does it now."""
        if time.monotonic() - self._counted_s < self.pause_s / 2:
            return
        if self._counting is None:
            self._counting = asyncio.ensure_future(self._count())
            self._counting.add_done_callback(self._done)
        await asyncio.shield(self._counting)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._counting = None

    async def _count(self) -> None:
        self.figures = await gather_figures(self._gateway)
        started_s, busy_s = time.monotonic(), 0.0
        texts: list[str] = []
        total = dict.fromkeys(_TOTALS, 0)
        for number, entity in enumerate(self._entities(), 1):
            for figures in await self._figures(entity):
                texts.append(json.dumps(figures))
                for name in _TOTALS:
                    total[name] += figures[name]
            if number % limits.LIVE_ENTITIES_PER_TURN == 0:
                busy_s += time.monotonic() - started_s
                await asyncio.sleep(0)
                started_s = time.monotonic()
        busy_s += time.monotonic() - started_s
        self.pause_s = max(limits.LIVE_SECONDS, busy_s * limits.LIVE_IDLE_SHARE)
        time_ms = int(time.time() * 1000)
        self.text = f'{self._head(time_ms)}, "entities": [{", ".join(texts)}]'
        self.history.append({"time_ms": time_ms, **total})
        self._counted_s = time.monotonic()

    def _head(self, time_ms: int) -> str:
        namespace = self._namespace
        head = {
            "time_ms": time_ms,
            "clock_ms": namespace.bus.clock.now().wall_ms,
            "connections": self.figures.stats.active_connections,
            "rerouted": self.figures.rerouted(namespace),
            "refused": self.figures.refused(namespace),
        }
        return json.dumps(head)[1:-1]

    async def _figures(self, entity: Entity) -> list[Frame]:
        """Of one that is deleted meanwhile there are none."""
        try:
            return await _entity_figures(self.figures.stats, self._namespace, entity)
        except (BusError, StoreError):
            return []

    def _entities(self) -> list[Entity]:
        if not self._scope:
            return list(self._namespace.entities.values())
        try:
            found = self._namespace.find(parse_address(self._scope).entity)
        except BusError:
            return []
        return [] if found is None else [found]


async def _entity_figures(stats: Stats, namespace: Namespace, entity: Entity) -> list[Frame]:
    """A queue or a topic, and each subscription of the topic."""
    kind = "topic" if entity.is_topic else "queue"
    subscriptions = list(entity.subscriptions.values())
    seen = await run(observe(entity, [0, *(each.number for each in subscriptions)]))
    own = _figures(stats, namespace, entity.name, kind, seen.logs[0])
    own["partitions"] = len(entity.partitions)
    own["away"] = len(entity.missing_partitions())
    own["max_bytes"] = sum(partition.settings.max_bytes for partition in entity.partitions)
    return [
        own,
        *(
            _figures(
                stats,
                namespace,
                f"{entity.name}/Subscriptions/{each.description.name}",
                "subscription",
                seen.logs[each.number],
            )
            for each in subscriptions
        ),
    ]


def _figures(all_stats: Stats, namespace: Namespace, path: str, kind: str, seen: Observed) -> Frame:
    stats = all_stats.seen(namespace.name, path)
    return {
        "path": path,
        "kind": kind,
        **seen.counts.by_name(),
        "oldest_ms": seen.oldest_ms,
        "sessions": seen.sessions,
        "retained": seen.retained,
        "in": stats.incoming_messages,
        "out": stats.outgoing_messages,
        "completed": stats.completed,
        "errors": stats.user_errors + stats.server_errors + stats.throttled,
    }


def _node(figures: Figures) -> Frame:
    """The processes of the bus as they are."""
    return {
        "uptime_s": int(time.time() - STARTED_S),
        "cpu_s": figures.cpu_s,
        "resident_bytes": figures.resident_bytes or None,
    }


def _stores(gateway: Gateway, grant: Grant) -> list[Frame]:
    found = []
    for number, store in enumerate(gateway.bus.stores):
        shown: Frame = {
            "store": number,
            "state": store.state.value,
            "available": store.available,
            "full": store.full,
            "unsafe": store.unsafe,
            "partitions": len(store.tenants),
            "commits": store.commits,
            "commit_failures": store.commit_failures,
            "committed_bytes": store.committed_bytes,
            "free_bytes": store.free_bytes,
        }
        if grant.rights & Rights.MANAGE == Rights.MANAGE:
            shown |= {"url": store.url, "id": store.store_id.hex(), "last_error": store.last_error}
        found.append(shown)
    return found


async def _focus(namespace: Namespace, path: str, scope: str) -> Frame | None:
    """One entity, or one subscription, partition by partition; with how far each log goes, which gives its rate."""
    try:
        address = parse_address(path)
        allowed = not scope or parse_address(scope).entity.lower() == address.entity.lower()
        entity = namespace.find(address.entity) if allowed else None
        if entity is None:
            return None
        number = 0 if address.subscription is None else entity.subscription(address.subscription).number
    except BusError:
        return None
    shown = await run(entity_overview(entity, address.subscription))
    numbers = [each.number for each in entity.subscriptions.values()] if entity.is_topic and not number else [number]
    ends = [await run(log_ends(entity, main_log(each))) for each in numbers]
    stores = {store.store_id: place for place, store in enumerate(namespace.bus.stores)}
    for place, partition in enumerate(entity.partitions):
        row = shown["partitions"][place]
        known = [end[place].stable_end for end in ends if end[place].problem is None]
        row["entered"] = sum(known) if partition.available else None
        row["store_number"] = stores.get(partition.store.store_id)
        del row["store"], row["store_id"], row["problem"]
    return shown
