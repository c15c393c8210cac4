"""Sessions: filters and their echo, waiting, locks, state, and when a session is free again."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.amqp.outcomes import ACCEPTED, Modified
from polybus.amqp.types import Described, Symbol, UInt, ULong
from polybus.gateway.durations import ticks_from_ms
from polybus.namespace.entities.description import SubscriptionDescription
from tests.unit.gateway.amqp_kit import Client, Got, SimBus, error_of, rejection, text

FILTER = Symbol("com.microsoft:session-filter")


@pytest.fixture(params=["s", "ps"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sim(name: str) -> SimBus:
    sim = SimBus()
    sim.queue(name, requires_session=True, enable_partitioning=name == "ps", max_delivery_count=5)
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


def send(sim: SimBus, name: str, *pairs: tuple[str, str]) -> None:
    client = sim.client()
    sender = client.sender(name)
    for session, body in pairs:
        assert client.outcome(sender, text(body, session_id=session)).descriptor == 0x24
    client.close()


def accept(client: Client, name: str, session: object, credit: int = 0, **options: Any) -> int:
    return client.receiver(name, credit, filter={FILTER: session}, **options)


def bodies(got: list[Got]) -> list[str]:
    return [one.body.decode() for one in got]  # type: ignore[union-attr, attr-defined]


@pytest.mark.parametrize("session", ["one", ""])
def test_a_named_session_is_locked_even_when_it_is_empty(
    sim: SimBus, client: Client, name: str, session: str
) -> None:
    client.attach_receiver(f"amqps://h/{name}", filter={FILTER: session})
    fields = client.expect_attached().fields
    assert fields[5].value[0] == f"amqps://h/{name}"
    assert fields[5].value[7] == {FILTER: session}
    until = fields[13]["com.microsoft:locked-until-utc"]
    assert until == ticks_from_ms(sim.clock.now().wall_ms + 60_000)
    send(sim, name, (session, "m"))
    client.flow(0, 1)
    assert bodies(client.deliveries()) == ["m"]


def test_the_end_of_the_lock_is_a_long_of_eight_bytes(client: Client, name: str) -> None:
    client.attach_receiver(name, filter={FILTER: "one"})
    (attached,) = client.frames("attach")
    place = attached.raw.index(b"com.microsoft:locked-until-utc") + len(b"com.microsoft:locked-until-utc")
    assert attached.raw[place] == 0x81


@pytest.mark.parametrize("descriptor", [ULong(0x137000000C), Symbol("com.microsoft:session-filter")])
def test_a_described_filter_is_echoed_described(sim: SimBus, client: Client, name: str, descriptor: object) -> None:
    client.attach_receiver(name, filter={FILTER: Described(descriptor, "one")})
    assert client.expect_attached().fields[5].value[7] == {FILTER: Described(descriptor, "one")}
    send(sim, name, ("two", "m"))
    client.attach_receiver(name, filter={FILTER: Described(descriptor, None)})
    assert client.expect_attached().fields[5].value[7] == {FILTER: Described(descriptor, "two")}


def test_an_id_that_no_session_can_have_is_refused(client: Client, name: str) -> None:
    client.attach_receiver(name, filter={FILTER: "x" * 129})
    assert client.expect_refused()[0] == "com.microsoft:argument-out-of-range"
    management = client.management(name)
    for operation in ("peek-message", "set-session-state", "renew-session-lock"):
        reply = management.ask(operation, {"message-count": 1, "session-id": "x" * 129})
        assert (reply.status, reply.condition) == (400, "com.microsoft:argument-out-of-range")


def test_the_next_session_is_one_that_has_messages(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, ("a", "1"), ("b", "2"))
    found = set()
    for _ in range(2):
        client.attach_receiver(name, filter={FILTER: None})
        found.add(client.expect_attached().fields[5].value[7][FILTER])
    assert found == {"a", "b"}


def test_the_answer_waits_until_a_session_has_a_message(sim: SimBus, client: Client, name: str) -> None:
    client.attach_receiver(name, filter={FILTER: None})
    client.run(5)
    assert client.frames() == []
    send(sim, name, ("late", "m"))
    assert client.expect_attached().fields[5].value[7] == {FILTER: "late"}


@pytest.mark.parametrize(("given", "seconds"), [({"com.microsoft:timeout": 3000}, 3), ({}, 65), (None, 65)])
def test_waiting_ends_when_the_client_said(
    client: Client, name: str, given: dict[str, int] | None, seconds: int
) -> None:
    properties = None if given is None else {Symbol(key): value for key, value in given.items()}
    client.attach_receiver(name, filter={FILTER: None}, properties=properties)
    client.run(seconds - 1)
    assert client.frames() == []
    client.run(2)
    condition, description = client.expect_refused()
    assert condition == "com.microsoft:timeout"
    assert description.startswith("The operation did not complete within the allotted timeout of 00:0")


@pytest.mark.parametrize("how", ["detach", "end", "lost"])
def test_waiting_ends_when_the_client_goes(sim: SimBus, client: Client, name: str, how: str) -> None:
    handle = client.attach_receiver(name, filter={FILTER: None})
    client.frames()
    if how == "detach":
        client.detach(handle)
        assert [one.name for one in client.frames()] == ["attach", "detach"]
    elif how == "end":
        client.end()
        assert [one.name for one in client.frames()] == ["end"]
    else:
        client.endpoint.lost()
    send(sim, name, ("x", "m"))
    if how != "lost":
        assert client.frames() == []
    assert sim.namespace.entity(name).receivers == 0
    other = sim.client()
    accept(other, name, None)


def test_a_session_has_one_holder(sim: SimBus, client: Client, name: str) -> None:
    accept(client, name, "one")
    other = sim.client()
    other.attach_receiver(name, filter={FILTER: "one"})
    condition, description = other.expect_refused()
    assert condition == "com.microsoft:session-cannot-be-locked"
    assert "The requested session 'one' cannot be accepted." in description


@pytest.mark.parametrize("how", ["detach", "end", "close", "lost"])
def test_a_session_is_free_as_soon_as_its_link_is_gone(sim: SimBus, client: Client, name: str, how: str) -> None:
    send(sim, name, ("one", "1"), ("one", "2"))
    handle = accept(client, name, "one", 1)
    assert len(client.deliveries()) == 1
    if how == "lost":
        client.endpoint.lost()
    else:
        {"detach": lambda: client.detach(handle), "end": client.end, "close": client.close}[how]()
    other = sim.client()
    accept(other, name, "one", 5)
    got = other.deliveries()
    assert bodies(got) == ["1", "2"]
    assert [one.delivery_count for one in got] == [1, 0]


def test_order_is_kept_within_a_session(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, *[("a", f"a{n}") for n in range(5)], *[("b", f"b{n}") for n in range(5)])
    accept(client, name, "a", 100)
    assert bodies(client.deliveries()) == [f"a{n}" for n in range(5)]


def test_an_abandoned_message_comes_before_later_ones(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, *[("a", str(n)) for n in range(4)])
    handle = accept(client, name, "a", 2)
    first, _ = client.deliveries()
    client.settle(first.id, Modified())
    client.flow(handle, 10, delivery_count=2)
    assert bodies(client.deliveries()) == ["0", "2", "3"]


def test_messages_carry_the_end_of_the_sessions_lock(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, ("a", "m"))
    handle = accept(client, name, "a")
    until = sim.clock.now().wall_ms + 60_000
    client.run(10)
    client.flow(handle, 1)
    (got,) = client.deliveries()
    assert got.annotations["x-opt-locked-until"] == until
    assert client.settle(got.id, ACCEPTED).descriptor == 0x24


def test_a_lock_that_runs_out_detaches_the_link(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, ("a", "m"))
    handle = accept(client, name, "a", 1)
    (got,) = client.deliveries()
    client.run(61)
    detached = client.one("detach")
    assert detached.fields[:2] == [handle, True]
    condition, description = error_of(detached.fields[2])
    assert condition == "com.microsoft:session-lock-lost"
    assert "The session lock has expired on the session with id 'a'." in description
    client.detach(handle)
    other = sim.client()
    accept(other, name, "a", 1)
    (again,) = other.deliveries()
    assert (again.number, again.delivery_count) == (got.number, 1)


def test_settling_after_the_lock_is_lost_fails(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, ("a", "m"))
    accept(client, name, "a", 1)
    (got,) = client.deliveries()
    sim.clock.advance(60_001)
    assert rejection(client.settle(got.id, ACCEPTED))[0] == "com.microsoft:session-lock-lost"


def test_receive_and_delete_is_legal(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, ("a", "1"), ("a", "2"))
    handle = accept(client, name, "a", deletes=True)
    client.flow(handle, 5, drain=True)
    found = client.frames()
    assert [one.name for one in found] == ["transfer", "transfer", "flow"]
    assert sim.namespace.entity(name).counts().result().active == 0


def test_drain_is_answered(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, ("a", "1"))
    handle = accept(client, name, "a")
    client.flow(handle, 3, drain=True)
    found = client.frames()
    assert [one.name for one in found] == ["transfer", "flow"]
    assert found[-1].fields[4:9] == [handle, 3, 0, None, True]


def test_a_slow_client_is_not_given_more_than_it_takes(sim: SimBus, client: Client, name: str) -> None:
    send(sim, name, *[("a", "x" * 20_000) for _ in range(40)])
    client.transport.slow = True
    accept(client, name, "a", 100)
    taken = sim.namespace.entity(name).counts().result().locked
    assert taken < 40
    client.transport.slow = False
    client.transport.unsent = 0
    client.endpoint.resume_writing()
    assert len(client.deliveries()) == 40


class TestManagement:
    def test_a_lock_can_be_renewed(self, sim: SimBus, client: Client, name: str) -> None:
        accept(client, name, "a")
        management = client.management(name)
        client.run(50)
        reply = management.ask("renew-session-lock", {"session-id": "a"})
        assert reply.status == 200
        assert reply.body["expiration"] == sim.clock.now().wall_ms + 60_000
        client.run(50)
        assert client.frames("detach") == []

    def test_only_its_holder_can_renew_it(self, sim: SimBus, client: Client, name: str) -> None:
        accept(client, name, "a")
        other = sim.client().management(name)
        for session in ("a", "nobody holds this"):
            reply = other.ask("renew-session-lock", {"session-id": session})
            assert (reply.status, reply.condition) == (410, "com.microsoft:session-lock-lost")

    def test_state_is_set_read_and_cleared(self, sim: SimBus, client: Client, name: str) -> None:
        handle = accept(client, name, "a")
        management = client.management(name)
        asked = {"session-id": "a"}
        empty = management.ask("get-session-state", asked)
        assert empty.body == {"session-state": None}
        assert management.ask("set-session-state", {**asked, "session-state": b"state"}).status == 200
        assert management.ask("get-session-state", asked).body == {"session-state": b"state"}
        client.detach(handle)
        client.frames()
        accept(client, name, "a")
        assert management.ask("get-session-state", asked).body == {"session-state": b"state"}
        assert management.ask("set-session-state", {**asked, "session-state": None}).status == 200
        assert management.ask("get-session-state", asked).body == {"session-state": None}

    @pytest.mark.parametrize("operation", ["get-session-state", "set-session-state"])
    def test_state_belongs_to_the_holder(self, sim: SimBus, client: Client, name: str, operation: str) -> None:
        management = client.management(name)
        reply = management.ask(operation, {"session-id": "a", "session-state": b"x"})
        assert (reply.status, reply.condition) == (410, "com.microsoft:session-lock-lost")

    def test_state_that_is_too_large_is_refused(self, client: Client, name: str) -> None:
        accept(client, name, "a")
        management = client.management(name)
        body = {"session-id": "a", "session-state": b"x" * 262_145}
        reply = management.ask("set-session-state", body)
        assert (reply.status, reply.condition) == (403, "amqp:link:message-size-exceeded")

    def test_sessions_are_listed_in_pages(self, sim: SimBus, client: Client, name: str) -> None:
        send(sim, name, *[(f"s{n}", "m") for n in range(7)])
        management = client.management(name)
        found: list[str] = []
        skip = 0
        while True:
            asked = {"last-updated-time": 253_402_300_800_000, "skip": skip, "top": 3}
            reply = management.ask("get-message-sessions", asked)
            if reply.status == 204:
                assert reply.condition == "com.microsoft:session-not-found"
                break
            page = reply.body["sessions-ids"]
            assert page.constructor == 0xB1
            found += page.items
            skip = reply.body["skip"]
        assert sorted(found) == [f"s{n}" for n in range(7)]
        assert len(found) == 7

    def test_sessions_by_the_time_of_their_state(self, sim: SimBus, client: Client, name: str) -> None:
        send(sim, name, ("without state", "m"))
        accept(client, name, "with state")
        management = client.management(name)
        management.ask("set-session-state", {"session-id": "with state", "session-state": b"x"})
        before = sim.clock.now().wall_ms - 1000
        reply = management.ask("get-message-sessions", {"last-updated-time": before, "skip": 0, "top": 10})
        assert reply.body["sessions-ids"].items == ["with state"]
        after = sim.clock.now().wall_ms + 1000
        reply = management.ask("get-message-sessions", {"last-updated-time": after, "skip": 0, "top": 10})
        assert reply.status == 204

    def test_a_deferred_message_of_a_session(self, sim: SimBus, client: Client, name: str) -> None:
        send(sim, name, ("a", "m"))
        accept(client, name, "a", 1)
        (got,) = client.deliveries()
        client.settle(got.id, Modified(undeliverable_here=True))
        management = client.management(name)
        asked = {"sequence-numbers": [got.number], "receiver-settle-mode": 1, "session-id": "a"}
        other = sim.client().management(name)
        reply = other.ask("receive-by-sequence-number", asked)
        assert (reply.status, reply.condition) == (410, "com.microsoft:session-lock-lost")
        reply = management.ask("receive-by-sequence-number", asked)
        (found,) = reply.body["messages"]
        tokens = {"lock-tokens": [found["lock-token"]], "session-id": "a"}
        reply = management.ask("update-disposition", {"disposition-status": "completed", **tokens})
        assert reply.status == 200
        assert sim.namespace.entity(name).counts().result().total == 0

    def test_peek_looks_into_one_session_or_all(self, sim: SimBus, client: Client, name: str) -> None:
        send(sim, name, ("a", "1"), ("b", "2"), ("a", "3"))
        management = client.management(name)
        everything = management.ask("peek-message", {"from-sequence-number": 0, "message-count": 10})
        assert len(everything.body["messages"]) == 3
        one = management.ask("peek-message", {"from-sequence-number": 0, "message-count": 10, "session-id": "a"})
        assert len(one.body["messages"]) == 2

    def test_message_locks_cannot_be_renewed(self, sim: SimBus, client: Client, name: str) -> None:
        send(sim, name, ("a", "m"))
        accept(client, name, "a", 1)
        (got,) = client.deliveries()
        reply = client.management(name).ask("renew-lock", {"lock-tokens": [got.token]})
        assert (reply.status, reply.condition) == (400, "amqp:not-allowed")


def test_a_plain_queue_has_no_sessions_to_list() -> None:
    sim = SimBus()
    sim.queue("q")
    reply = sim.client().management("q").ask("get-message-sessions", {"skip": 0, "top": 1})
    assert (reply.status, reply.condition) == (400, "amqp:not-allowed")


def test_a_subscription_has_sessions_too() -> None:
    sim = SimBus()
    sim.topic("t", enable_partitioning=True)
    described = SubscriptionDescription(topic="t", name="s", requires_session=True)
    sim.wait(sim.namespace.management.create_subscription(described))
    client = sim.client()
    client.outcome(client.sender("t"), text("m", session_id="x"))
    accept(client, "t/Subscriptions/s", None, 1)
    (got,) = client.deliveries()
    assert got.message.session_id == "x"


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("credit", [0, 1])
def test_a_lock_that_ends_when_the_wait_does_has_ended(partitioned: bool, credit: int) -> None:
    """On plain and on partitioned entities, and whether its holder has a message or not."""
    sim = SimBus()
    sim.queue("tie", requires_session=True, enable_partitioning=partitioned, lock_duration_ms=5_000)
    sender = sim.client()
    sender.outcome(sender.sender("tie"), text("m", session_id="x"))
    next_one = {Symbol("com.microsoft:session-filter"): None}
    holder = sim.client()
    holder.receiver("tie", credit, filter=dict(next_one))
    waiting = sim.client()
    wait = {Symbol("com.microsoft:timeout"): UInt(5_000)}
    waiting.attach_receiver("tie", filter=dict(next_one), properties=wait)
    waiting.run(5.5)
    assert [frame.name for frame in waiting.frames()] == ["attach"]
