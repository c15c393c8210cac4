"""Whether the bus is alive, and whether a send would work: for orchestrators and people (docs/protocol/emulator.md#health).

Ready means that a commit goes through: every store that is open is given one, with nothing in it, and has to answer
in time. One store that works is enough, for the bus then takes messages (A2); what does not work is told beside it.
Nothing here tells an anonymous caller more than states: addresses and error texts are for managers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

from starlette.responses import Response

from polybus import __version__
from polybus.asyncio_bridge import from_promise
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.errors import JSON_TYPE
from polybus.limits import HEALTH_PROBE_SECONDS
from polybus.namespace.bus import Store


class Health:
    def __init__(self, gateway: Gateway, is_ready: Callable[[], bool]) -> None:
        self._gateway = gateway
        self._is_ready = is_ready
        self._started_s = time.monotonic()
        self._probing: asyncio.Task[list[bool]] | None = None

    def live(self) -> Response:
        """The process runs and its loop turns."""
        return _answer(True, "Polybus is running.", {})

    async def ready(self) -> Response:
        stores = self._gateway.bus.stores
        working = await self._probe()
        missing = self._gateway.bus.missing
        well = any(working) and self._is_ready() and not self._gateway.stopping
        details: dict[str, object] = {
            "degraded": not all(working) or bool(missing),
            "missing": len(missing),
            "unsafe": any(store.unsafe for store in stores),
            "stores": [
                {"state": store.state.value, "commits": answers, "unsafe": store.unsafe, "full": store.full}
                for store, answers in zip([*stores, *missing], [*working, *[False] * len(missing)], strict=True)
            ],
            "version": __version__,
            "uptime_s": int(time.monotonic() - self._started_s),
        }
        return _answer(well, _message(well, working, sum(len(store.tenants) for store in missing)), details)

    async def _probe(self) -> list[bool]:
        """Which stores commit. Callers that come while a probe is under way share it."""
        if self._probing is None:
            self._probing = asyncio.ensure_future(self._probe_all())
            self._probing.add_done_callback(self._probed)
        return await asyncio.shield(self._probing)

    def _probed(self, _: asyncio.Task[list[bool]]) -> None:
        self._probing = None

    async def _probe_all(self) -> list[bool]:
        return list(await asyncio.gather(*(commits(store) for store in self._gateway.bus.stores)))


async def commits(store: Store) -> bool:
    """Whether a commit comes through now. One that is full is not asked: a commit that fails would fence it."""
    if not store.available or store.full:
        return False
    answered = from_promise(store.probe())
    await asyncio.wait((answered,), timeout=HEALTH_PROBE_SECONDS)
    return answered.done() and answered.exception() is None


def _message(well: bool, working: list[bool], out_of_reach: int) -> str:
    if not well:
        return "Polybus is not ready: no messaging store takes messages."
    text = "Polybus is ready."
    if not all(working):
        text = f"Polybus is ready; {working.count(False)} of {len(working)} messaging stores do not take messages."
    if out_of_reach:
        text += (
            f" {out_of_reach} partitions lie in messaging stores that are MISSING: their messages are out of reach."
        )
    return text


def _answer(well: bool, message: str, details: dict[str, object]) -> Response:
    body = {"status": "healthy" if well else "unhealthy", "message": message, **details}
    headers = {"Cache-Control": "no-store"}
    return Response(json.dumps(body), 200 if well else 503, headers, JSON_TYPE)
