"""Fault switches, under `/$polybus/faults`: what users turn on to see how their programs take it.

There only in the development profile, and only for who may manage the namespace. Stores fail through the twins that
stand before them (store/failing.py); nothing is simulated that the bus would not do by itself. Everything that is
switched here is lost with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from starlette.responses import Response

from polybus.asyncio_bridge import from_promise, run
from polybus.errors import ArgumentError, ConfigError, EntityNotFound, PartitionUnavailable
from polybus.gateway.bulk.call import BulkCall, answer
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.errors import not_allowed
from polybus.gateway.http.health import commits
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.limits import HEALTH_PROBE_SECONDS
from polybus.namespace.bus import Store
from polybus.namespace.entities.names import Address, parse_address

Kind = Literal["open", "get", "scan", "commit", "sync"]
KINDS: tuple[Kind, ...] = ("open", "get", "scan", "commit", "sync")
SLOWEST_S = 60
FURTHEST_MS = 10 * 366 * 86_400_000
"""How far one step moves the clock: ten years are enough for every duration but the infinite one."""


class StoreFaults(Protocol):
    """The switches of one messaging store; `store.failing.Faults` has them."""

    def fail_from_now(self, kind: Kind) -> None: ...

    def fail_nth(self, kind: Kind, n: int = 1) -> None: ...

    def hang(self, kind: Kind) -> None: ...

    def slow(self, kind: Kind, seconds: float) -> None: ...

    def disk_full(self, full: bool = True) -> None: ...

    def disk_low(self, low: bool = True) -> None: ...

    def heal(self) -> None: ...

    def state(self) -> dict[str, object]: ...


class FaultPanel(Protocol):
    """What the node gives into the hands of users."""

    @property
    def faults(self) -> Sequence[StoreFaults]:
        """One for each messaging store of the bus, in their order."""

    def advance_clock(self, ms: int) -> None:
        """Moves this process's clock forward; ConfigError where it cannot be moved."""

    async def move_clock(self, ms: int) -> None:
        """Moves the clock of the whole bus forward; ConfigError where it cannot be moved."""

    async def throttle(self, namespace: str, path: str, on: bool) -> None:
        """Sends to an entity are refused as busy, whichever process takes them; or no longer."""

    async def refresh_faults(self) -> None:
        """What the switches of stores say is true when this returns."""


class FaultCall:
    """A request to the panel."""

    def __init__(self, call: HttpCall, panel: FaultPanel, segments: list[str]) -> None:
        self.call = call
        self.panel = panel
        self.segments = segments
        self.bus = call.gateway.bus
        self.request = BulkCall(call, Address(""), segments)

    def store(self) -> tuple[Store, StoreFaults]:
        text = self.segments[1]
        if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) >= len(self.bus.stores):
            raise EntityNotFound(f"There are the stores 0 to {len(self.bus.stores) - 1}.")
        return self.bus.stores[int(text)], self.panel.faults[int(text)]


async def _show(fault: FaultCall) -> Response:
    await fault.panel.refresh_faults()
    stores = zip(fault.bus.stores, fault.panel.faults, strict=True)
    throttled = [entity.name for entity in fault.call.namespace.entities.values() if entity.throttled]
    return answer(
        {
            "stores": [
                {"store": number, "state": store.state.value, "faults": faults.state()}
                for number, (store, faults) in enumerate(stores)
            ],
            "throttled": throttled,
            "clock_ms": fault.bus.clock.now().wall_ms,
        }
    )


# Stores


async def _down(fault: FaultCall) -> Response:
    """The store is lost: its commits fail from now on, and it does not open again."""
    store, faults = fault.store()
    faults.fail_from_now("open")
    faults.fail_from_now("commit")
    await commits(store)
    return await _show(fault)


async def _up(fault: FaultCall) -> Response:
    store, faults = fault.store()
    await _heal(fault, store, faults)
    return await _show(fault)


async def _heal(fault: FaultCall, store: Store, faults: StoreFaults) -> None:
    """Ends the faults of a store; its partitions serve again when this returns, unless that takes long or nobody
    owns it yet."""
    faults.heal()
    store.full = False
    with contextlib.suppress(TimeoutError, PartitionUnavailable):
        async with asyncio.timeout(HEALTH_PROBE_SECONDS):
            await run(fault.bus.bring_up(store))


async def _fail(fault: FaultCall) -> Response:
    """Calls fail: the n-th from now, or all."""
    _, faults = fault.store()
    body = await fault.request.json()
    nth = body.get("nth")
    for kind in _kinds(body):
        if nth is None:
            faults.fail_from_now(kind)
        elif isinstance(nth, int) and not isinstance(nth, bool) and nth > 0:
            faults.fail_nth(kind, nth)
        else:
            raise ArgumentError("'nth' must be a number from 1 on.")
    return await _show(fault)


async def _slow(fault: FaultCall) -> Response:
    _, faults = fault.store()
    body = await fault.request.json()
    seconds = body.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= SLOWEST_S:
        raise ArgumentError(f"'seconds' must be a number from 0 to {SLOWEST_S}.")
    for kind in _kinds(body):
        faults.slow(kind, float(seconds))
    return await _show(fault)


async def _hang(fault: FaultCall) -> Response:
    _, faults = fault.store()
    for kind in _kinds(await fault.request.json()):
        faults.hang(kind)
    return await _show(fault)


async def _full(fault: FaultCall) -> Response:
    """The disk is full, or below its reserve only: then receiving and settling go on."""
    store, faults = fault.store()
    store.full = True
    if (await fault.request.json()).get("reserve_only") is True:
        faults.disk_low(True)
    else:
        faults.disk_full(True)
    return await _show(fault)


def _kinds(body: dict[str, Any]) -> list[Kind]:
    given = body.get("calls", ["commit"])
    found = [kind for kind in KINDS if isinstance(given, list) and kind in given]
    if not isinstance(given, list) or len(found) != len(given) or not found:
        raise ArgumentError(f"'calls' must be a list of {', '.join(KINDS)}.")
    return found


async def _heal_all(fault: FaultCall) -> Response:
    """Everything works again."""
    for store, faults in zip(fault.bus.stores, fault.panel.faults, strict=True):
        await _heal(fault, store, faults)
    for entity in list(fault.call.namespace.entities.values()):
        if entity.throttled:
            await fault.panel.throttle(fault.call.namespace.name, entity.name, False)
    return await _show(fault)


# Time and entities


async def _clock(fault: FaultCall) -> Response:
    """Moves the clock; what became due has been written when this answers."""
    ms = (await fault.request.json()).get("advance_ms")
    if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= FURTHEST_MS:
        raise ArgumentError(f"'advance_ms' must be a whole number from 0 to {FURTHEST_MS}.")
    try:
        await fault.panel.move_clock(ms)
    except ConfigError as error:
        raise ArgumentError(str(error)) from None
    for store in fault.bus.stores:
        await commits(store)
    return answer({"clock_ms": fault.bus.clock.now().wall_ms})


async def _throttle(fault: FaultCall) -> Response:
    """Sends to an entity are refused as busy, until that is switched off."""
    on = (await fault.request.json()).get("on", True)
    if not isinstance(on, bool):
        raise ArgumentError("'on' must be true or false.")
    entity = fault.call.namespace.addressed(_address(fault))
    await fault.panel.throttle(fault.call.namespace.name, entity.name, on)
    return await _show(fault)


async def _lose_lock(fault: FaultCall) -> Response:
    """Locks of messages and sessions end at once: one that is named, or all of the place."""
    address = _address(fault)
    entity = fault.call.namespace.addressed(address)
    body = await fault.request.json()
    number, session_id = body.get("sequence_number"), body.get("session_id")
    if isinstance(number, bool) or not isinstance(number, int | None) or not isinstance(session_id, str | None):
        raise ArgumentError("'sequence_number' must be a number, 'session_id' a string.")
    log_id = entity.log_id(address)
    lost = 0
    for partition in entity.partitions:
        if number is None:
            lost += await from_promise(partition.lose_session_locks(log_id, session_id))
        if session_id is None:
            lost += await from_promise(partition.lose_message_locks(log_id, number))
    for store in fault.bus.stores:
        await commits(store)
    return answer({"lost": lost})


def _address(fault: FaultCall) -> Address:
    return parse_address("/".join(fault.segments[1:-1]).replace("%", "%25"))


Handler = Callable[[FaultCall], Awaitable[Response]]
_STORE_SWITCHES: dict[str, Handler] = {
    "down": _down,
    "up": _up,
    "fail": _fail,
    "slow": _slow,
    "hang": _hang,
    "full": _full,
}
_ENTITY_SWITCHES: dict[str, Handler] = {"throttle": _throttle, "lose-lock": _lose_lock}
_SWITCHES: dict[str, Handler] = {"heal": _heal_all, "clock": _clock}


async def handle_faults(call: HttpCall, panel: FaultPanel, segments: list[str]) -> Response:
    """Answers a request under `/$polybus/faults`."""
    authorize(call, "", Rights.MANAGE)
    fault = FaultCall(call, panel, segments)
    if not segments and call.method == "GET":
        return await _show(fault)
    handler = _handler(segments)
    if handler is None:
        raise EntityNotFound(f"There is nothing at '{call.path[:200]}'.")
    if call.method != "POST":
        raise not_allowed(call.method)
    return await handler(fault)


def _handler(segments: list[str]) -> Handler | None:
    if len(segments) == 1:
        return _SWITCHES.get(segments[0])
    if len(segments) == 3 and segments[0] == "stores":
        return _STORE_SWITCHES.get(segments[2])
    if len(segments) >= 3 and segments[0] == "entities":
        return _ENTITY_SWITCHES.get(segments[-1])
    return None
