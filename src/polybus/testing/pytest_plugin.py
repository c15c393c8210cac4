"""Fixtures for tests that need a bus. pytest finds them by itself where Polybus is installed.

def test_an_order_is_taken(bus, connection_string): ...

@pytest.mark.polybus(queues={"orders": {"EnablePartitioning": True}}, stores=4)
def test_orders_are_taken_while_a_store_is_down(connection_string, fail_store): ...

Each test has a bus of its own, in memory and inside of its process, with a namespace of its own: its clock can be moved and
its stores can fail, and no other test notices, whether it runs before, after or beside.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from polybus import Server

STORES: Final = 4
NAMESPACE: Final = "sbemulatorns"
Entities = Mapping[str, Mapping[str, Any]] | Sequence[str]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "polybus(queues=…, topics=…, **options): entities of the test's bus, as names or as names with properties of "
        "config.json, and options of polybus.ServerOptions",
    )


class TestClock:
    """The clock of the test's bus. It goes on by itself, too."""

    __test__ = False

    def __init__(self, bus: Server) -> None:
        self._bus = bus

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Lets time pass at once: locks end, messages expire and fall due."""
        passed = datetime.timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        self._bus.advance_clock(passed // datetime.timedelta(milliseconds=1))


class FailStore:
    """`fail_store(2)` takes a messaging store away, `fail_store.heal()` brings all of them back."""

    def __init__(self, bus: Server) -> None:
        self._bus = bus

    def __call__(self, store: int) -> None:
        self._bus.switch(f"stores/{store}/down")

    def heal(self) -> None:
        self._bus.switch("heal")


@pytest.fixture
def bus(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A bus for this test: a `polybus.Server` with a clock that can be moved. The mark `polybus` says what is in it."""
    from polybus import Server

    options: dict[str, Any] = {"stores": STORES, "movable_clock": True}
    marks = list(request.node.iter_markers("polybus"))
    for mark in reversed(marks):  # the closest mark comes last, and counts
        options |= mark.kwargs
    queues, topics = options.pop("queues", ()), options.pop("topics", ())
    if queues or topics:
        if "config" in options:
            raise pytest.UsageError("the mark polybus takes queues and topics, or config")
        options["config"] = _config(queues, topics)
    with Server(**options) as server:
        yield server


def _config(queues: Entities, topics: Entities) -> dict[str, Any]:
    namespace = {
        "Name": NAMESPACE,
        "Queues": _declared(queues),
        "Topics": [_topic(each) for each in _declared(topics)],
    }
    return {"UserConfig": {"Namespaces": [namespace]}}


def _declared(entities: Entities) -> list[dict[str, Any]]:
    if isinstance(entities, str):
        raise pytest.UsageError(f"the mark polybus takes a list of names, not {entities!r}")
    named = entities if isinstance(entities, Mapping) else {name: {} for name in entities}
    return [{"Name": name, "Properties": dict(properties)} for name, properties in named.items()]


def _topic(declared: dict[str, Any]) -> dict[str, Any]:
    """`Subscriptions` stands beside a topic's properties in the file; here it may be a list of names."""
    return {**declared, "Subscriptions": _declared(declared["Properties"].pop("Subscriptions", ()))}


@pytest.fixture
def connection_string(bus: Server) -> str:
    """What the SDKs' clients take, the synchronous and the asynchronous ones."""
    return bus.connection_string


@pytest.fixture
def clock(bus: Server) -> TestClock:
    """`clock.advance(days=14)`."""
    return TestClock(bus)


@pytest.fixture
def fail_store(bus: Server) -> FailStore:
    """`fail_store(2)`: the third messaging store is gone until `fail_store.heal()`."""
    return FailStore(bus)
