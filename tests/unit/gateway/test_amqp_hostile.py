"""Whatever a client sends that is well-formed AMQP, the answer is one of the bus's own, never an internal error."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polybus.amqp.outcomes import ACCEPTED, AmqpError, Modified, Rejected, Released, TransactionalState
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.types import AmqpArray, Described, Int, Symbol, Timestamp, UInt, ULong
from polybus.gateway.amqp.management import OPERATIONS
from tests.unit.gateway.amqp_kit import Client, SimBus, error_of, message, text

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    NUMBERS.map(Timestamp),
    st.integers(0, (1 << 32) - 1).map(UInt),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.integers(0, (1 << 64) - 1).map(ULong),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.text("ab", max_size=3).map(Symbol),
    st.binary(max_size=20),
    st.uuids(),
)
KEYS = st.sampled_from(
    [
        "from-sequence-number",
        "message-count",
        "session-id",
        "sequence-numbers",
        "receiver-settle-mode",
        "lock-tokens",
        "disposition-status",
        "deadletter-reason",
        "properties-to-modify",
        "messages",
        "session-state",
        "last-updated-time",
        "skip",
        "top",
        "rule-name",
        "rule-description",
        "enqueued-time-utc",
        "omit-message-body",
        "expression",
        "sql-filter",
        "correlation-filter",
        "sql-rule-action",
        "properties",
        "label",
        "message",
    ]
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        st.lists(st.uuids(), max_size=3).map(lambda items: AmqpArray(0x98, list(items))),
        st.lists(NUMBERS, max_size=3).map(lambda items: AmqpArray(0x81, list(items))),
        inner.map(lambda value: Described(ULong(0x137000000C), value)),
        st.sampled_from(
            ["completed", "abandoned", "suspended", "defered", "unlocked", "1=1", "SET a = 1", "$Default"]
        ),
    ),
    max_leaves=8,
)
BODIES = st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=6))
ADDRESSES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["q", "p", "s", "t", "t/Subscriptions/x", "$cbs", "q/$management", "p/$DeadLetterQueue", "$management"]
    ),
    st.none(),
)
STATES = st.one_of(
    st.just(ACCEPTED),
    st.builds(Released),
    st.builds(
        Modified, st.booleans(), st.booleans(), st.none() | st.dictionaries(st.text(max_size=3).map(Symbol), VALUES)
    ),
    st.builds(
        Rejected,
        st.none()
        | st.builds(
            AmqpError,
            st.just("x"),
            st.none() | st.text(max_size=5),
            st.none() | st.dictionaries(st.sampled_from(["DeadLetterReason", "p"]).map(Symbol), VALUES),
        ),
    ),
)


def bus() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    sim.queue("p", enable_partitioning=True)
    sim.queue("s", requires_session=True, enable_partitioning=True)
    sim.topic("t", "x")
    return sim


def closed_with(client: Client) -> str | None:
    for one in client.frames("close"):
        return error_of(one.fields[0])[0]
    return None


@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.sampled_from(["q", "p", "s", "t", "t/Subscriptions/x"]),
    st.lists(BODIES, max_size=4),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_management(operation: str, address: str, bodies: list[Any]) -> None:
    client = bus().client()
    management = client.management(address)
    for body in bodies:
        reply = management.ask(operation.removeprefix("com.microsoft:"), body)
        assert reply.status != 500, reply.application


@given(
    st.booleans(),
    ADDRESSES,
    ADDRESSES,
    st.none()
    | st.dictionaries(
        st.sampled_from(
            ["com.microsoft:session-filter", "com.microsoft:non-exclusive-session-filter:list", "other"]
        ).map(Symbol),
        VALUES,
        max_size=2,
    ),
    st.none()
    | st.dictionaries(
        st.sampled_from(["com.microsoft:timeout", "com.microsoft:transfer-destination-address"]).map(Symbol),
        VALUES,
        max_size=2,
    ),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_attach(
    role: bool,
    source: str | None,
    target: str | None,
    filters: dict[Any, Any] | None,
    properties: dict[Any, Any] | None,
    coordinates: bool,
) -> None:
    client = bus().client()
    end = Coordinator(Symbol("amqp:local-transactions")) if coordinates else Target(target)
    client.attach(role, Source(source, filters), end, properties=properties)
    found = client.frames()
    assert "close" not in [one.name for one in found], found
    for one in found:
        if one.name == "detach":
            assert error_of(one.fields[2])[0] != "amqp:internal-error"


@given(st.lists(STATES, min_size=1, max_size=6), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_settling(states: list[Any], settled: bool, in_transaction: bool) -> None:
    sim = bus()
    client = sim.client()
    sender = client.sender("p")
    coordinator = client.coordinator()
    txn_id = client.declare(coordinator)
    for _ in states:
        client.outcome(sender, text("m", partition_key="k"))
    client.receiver("p", len(states))
    for got, state in zip(client.deliveries(), states, strict=True):
        client.dispose(got.id, TransactionalState(txn_id, state) if in_transaction else state, settled=settled)
        for one in client.frames("disposition"):
            answer = one.fields[4]
            if answer.descriptor == 0x25 and answer.value[0] is not None:
                assert error_of(answer.value[0])[0] != "amqp:internal-error"
    client.discharge(coordinator, txn_id)
    assert closed_with(client) is None
    counts = sim.namespace.entity("p").counts().result()
    assert counts.total <= len(states)


@given(st.dictionaries(st.sampled_from(["operation", "type", "name"]), VALUES, max_size=3), VALUES, SIMPLE)
@settings(max_examples=150, deadline=None)
def test_tokens(application: dict[str, Any], body: Any, message_id: Any) -> None:
    client = Client(bus()).sasl("ANONYMOUS").opened()
    requests, _ = client.sender("$cbs"), client.receiver("$cbs", 10)
    client.transfer(requests, message(application, body, message_id))
    for got in client.deliveries():
        assert got.message.application_properties()["status-code"] in (401, 501)
    assert closed_with(client) is None
