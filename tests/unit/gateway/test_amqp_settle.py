"""Settling over the link: every outcome, its answer, and every way in which it can come too late."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.amqp.frames import frame
from polybus.amqp.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from polybus.amqp.traffic import Disposition
from polybus.amqp.types import AmqpArray, Described, Symbol
from polybus.errors import StoreError
from tests.unit.gateway.amqp_kit import Client, Got, SimBus, rejection, text

DEAD_LETTER = "com.microsoft:dead-letter"


@pytest.fixture(params=["q", "p"])
def name(request: pytest.FixtureRequest) -> str:
    """A plain and a partitioned queue: nobody can tell them apart."""
    return str(request.param)


@pytest.fixture
def sim(name: str) -> SimBus:
    sim = SimBus()
    sim.queue(name, enable_partitioning=name == "p", max_delivery_count=3)
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


def received(client: Client, name: str, count: int = 1, **fields: Any) -> list[Got]:
    sender = client.sender(name)
    for n in range(count):
        client.outcome(sender, text(str(n), **fields))
    client.receiver(name, 100)
    got = client.deliveries()
    assert len(got) == count
    return got


def dead_letters(client: Client, name: str) -> list[Got]:
    client.receiver(f"{name}/$DeadLetterQueue", 100)
    return client.deliveries()


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (ACCEPTED, 0x24),
        (Modified(), 0x27),
        (Modified(delivery_failed=True), 0x27),
        (Modified(undeliverable_here=True), 0x27),
        (Rejected(), 0x25),
        (Rejected(AmqpError(DEAD_LETTER, "x", {Symbol("DeadLetterReason"): "r"})), 0x25),
        (RELEASED, 0x26),
    ],
)
def test_the_answer_has_the_same_outcome_and_no_error(
    client: Client, name: str, state: DeliveryState, code: int
) -> None:
    (got,) = received(client, name)
    answer = client.settle(got.id, state)
    assert answer.descriptor == code
    if code == 0x25:
        assert answer.value == [None]


@pytest.mark.parametrize("state", [Accepted(), Modified(), Modified(undeliverable_here=True), Rejected(), Released()])
def test_a_settled_decision_is_carried_out_and_not_answered(
    sim: SimBus, client: Client, name: str, state: DeliveryState
) -> None:
    (got,) = received(client, name)
    client.dispose(got.id, state, settled=True)
    assert client.frames("disposition") == []
    counts = sim.namespace.entity(name).counts().result()
    where = {
        "Accepted": (0, 0, 0),
        "Modified": (1, 0, 0) if not getattr(state, "undeliverable_here", False) else (0, 1, 0),
        "Rejected": (0, 0, 1),
        "Released": (1, 0, 0),
    }[type(state).__name__]
    assert (counts.active, counts.deferred, counts.dead_letter) == where


def test_the_answer_comes_after_the_commit(sim: SimBus, client: Client, name: str) -> None:
    (got,) = received(client, name)
    client.endpoint.feed(frame(0, Disposition(True, got.id, None, False, ACCEPTED)), sim.now_ms())
    client.endpoint._flush()
    assert client.transport.written[client._read_to :] == b""
    assert len(client.frames("disposition")) == 1


def test_a_range_is_settled_and_answered_as_one(client: Client, name: str) -> None:
    got = received(client, name, 10)
    client.send(Disposition(True, got[0].id, got[-1].id, False, ACCEPTED))
    answered: list[int] = []
    for one in client.frames("disposition"):
        answered += range(one.fields[1], one.fields[2] + 1)
    assert sorted(answered) == [one.id for one in got]


def test_abandoning_changes_properties_and_counts(client: Client, name: str) -> None:
    (got,) = received(client, name, application={"old": 1, "gone": 2})
    changes = {Symbol("new"): "n", Symbol("old"): 5, Symbol("gone"): None}
    client.dispose(got.id, Modified(message_annotations=changes), settled=True)  # type: ignore[arg-type]
    (again,) = client.deliveries()
    assert again.delivery_count == 1
    assert again.message.application_properties() == {"old": 5, "new": "n"}


def test_a_message_that_is_abandoned_too_often_is_dead(client: Client, name: str) -> None:
    (got,) = received(client, name)
    counts = []
    for _ in range(3):
        counts.append(got.delivery_count)
        client.dispose(got.id, Modified(), settled=True)
        found = client.deliveries()
        got = found[0] if found else got
    assert counts == [0, 1, 2]
    (dead,) = dead_letters(client, name)
    properties = dead.message.application_properties()
    assert properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert properties["DeadLetterErrorDescription"] == "Message could not be consumed after 3 delivery attempts."


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            {Symbol("DeadLetterReason"): "why", Symbol("DeadLetterErrorDescription"): "how", Symbol("more"): 1},
            {"DeadLetterReason": "why", "DeadLetterErrorDescription": "how", "more": 1},
        ),
        ({"DeadLetterReason": "as strings"}, {"DeadLetterReason": "as strings"}),
        ({Symbol("DeadLetterReason"): None, Symbol("DeadLetterErrorDescription"): None}, {}),
        (None, {}),
    ],
)
def test_reason_and_description_come_from_the_errors_details(
    client: Client, name: str, info: dict[Any, Any] | None, expected: dict[str, Any]
) -> None:
    (got,) = received(client, name)
    client.settle(got.id, Rejected(AmqpError(DEAD_LETTER, "x", info)))
    (dead,) = dead_letters(client, name)
    assert dead.message.application_properties() == expected


def test_a_dead_letter_cannot_die_again(client: Client, name: str) -> None:
    (got,) = received(client, name)
    client.settle(got.id, Rejected())
    (dead,) = dead_letters(client, name)
    assert rejection(client.settle(dead.id, Rejected()))[0] == "amqp:not-allowed"


def test_a_lock_that_has_run_out_is_lost(client: Client, name: str) -> None:
    (got,) = received(client, name)
    client.run(61)
    client.frames()
    assert rejection(client.settle(got.id, ACCEPTED))[0] == "com.microsoft:message-lock-lost"


def test_a_lock_that_is_about_to_run_out_is_judged_by_the_clock(sim: SimBus, client: Client, name: str) -> None:
    (got,) = received(client, name)
    sim.clock.advance(60_001)
    assert rejection(client.settle(got.id, ACCEPTED))[0] == "com.microsoft:message-lock-lost"


def test_a_second_decision_on_the_same_delivery_is_told_that_it_comes_late(
    sim: SimBus, client: Client, name: str
) -> None:
    (got,) = received(client, name)
    client.settle(got.id, Modified(undeliverable_here=True))
    client.dispose(got.id, ACCEPTED)
    assert rejection(client.frames("disposition")[0].fields[4])[0] == "amqp:not-found"
    assert sim.namespace.entity(name).counts().result().deferred == 1


def test_a_delivery_of_another_client_cannot_be_settled(sim: SimBus, client: Client, name: str) -> None:
    (got,) = received(client, name)
    other = sim.client()
    other.receiver(name, 1)
    other.dispose(got.id, ACCEPTED)
    assert other.frames("disposition") == []
    assert sim.namespace.entity(name).counts().result().locked == 1


def test_a_store_that_fails_answers_with_a_retryable_error(sim: SimBus, client: Client, name: str) -> None:
    (got,) = received(client, name)
    for store in sim.bus.stores:
        store.fence(StoreError("gone"), None)
    assert rejection(client.settle(got.id, ACCEPTED))[0] == "com.microsoft:server-busy"


def test_a_lock_does_not_survive_its_store(sim: SimBus, client: Client, name: str) -> None:
    (got,) = received(client, name)
    for store in sim.bus.stores:
        store.fence(StoreError("gone"), None)
    client.run(10)
    (again,) = client.deliveries()
    assert again.number == got.number
    assert rejection(client.settle(got.id, ACCEPTED))[0] == "com.microsoft:message-lock-lost"
    assert client.settle(again.id, ACCEPTED).descriptor == 0x24


@pytest.mark.parametrize(
    "given",
    [
        {Symbol("p"): [1]},
        {Symbol("p"): {"a": 1}},
        {Symbol("p"): AmqpArray(0x54, [1])},
        {Symbol("p"): Described(1, 2)},
    ],
)
def test_properties_that_are_no_plain_values_are_refused(client: Client, name: str, given: dict[Any, Any]) -> None:
    (got,) = received(client, name)
    state = client.settle(got.id, Modified(message_annotations=given))
    assert rejection(state)[0] == "com.microsoft:argument-error"


def test_settlements_are_counted(sim: SimBus, client: Client, name: str) -> None:
    got = received(client, name, 4)
    states = [ACCEPTED, Modified(undeliverable_here=True), Rejected(), Modified()]
    for one, state in zip(got, states, strict=True):
        client.settle(one.id, state)
    stats = sim.gateway.stats.entity("ns", name)
    assert (stats.completed, stats.deferred, stats.dead_lettered, stats.abandoned) == (1, 1, 1, 1)
    assert sim.namespace.entity(name).settings.own.totals.dead == {"Application": 1}


def test_settled_without_an_outcome_gives_the_message_back(client: Client, name: str) -> None:
    (got,) = received(client, name)
    client.dispose(got.id, None, settled=True)
    (again,) = client.deliveries()
    assert again.delivery_count == 0
