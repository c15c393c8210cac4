"""Entities, subscriptions and temporary nodes that links make, and senders without a target."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.amqp.performatives import Attach
from polybus.amqp.terminus import Source, Target
from polybus.amqp.types import Symbol, UInt, symbol_array
from tests.unit.gateway.amqp_kit import Client, SimBus, rejection, text


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.gateway.on_demand = True
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


def source(address: str | None, *capabilities: str, **fields: Any) -> Source:
    others: list[object] = [None] * 11
    others[1] = UInt(2) if fields.get("durable") else None
    others[4] = fields.get("dynamic", False)
    others[6] = Symbol("copy") if "topic" in capabilities else None  # as JMS writes it
    others[10] = symbol_array(list(capabilities)) if capabilities else None
    return Source(address, fields.get("filter"), others)


def target(address: str | None, *capabilities: str, dynamic: bool = False) -> Target:
    others: list[object] = [None] * 7
    others[4] = dynamic
    others[6] = symbol_array(list(capabilities)) if capabilities else None
    return Target(address, others)


def receive(client: Client, wanted: Source, credit: int = 10) -> int:
    handle = client.attach(True, wanted, Target("here"))
    client.expect_attached()
    client.flow(handle, credit)
    return handle


def active(sim: SimBus, name: str) -> int:
    return sim.namespace.entity(name).counts().result().active


def subscriptions(sim: SimBus, topic: str) -> list[str]:
    return sorted(sim.namespace.entity(topic).subscriptions)


class TestEntities:
    def test_a_queue_or_a_topic_by_its_capability(self, sim: SimBus, client: Client) -> None:
        for name, capability, topic in (("a", "queue", False), ("b", "topic", True)):
            client.attach(False, Source("here"), target(name, capability))
            client.expect_attached()
            assert sim.namespace.entity(name).is_topic is topic
        client.attach(False, Source("here"), target("c"))
        client.expect_attached()
        assert not sim.namespace.entity("c").is_topic

    def test_it_takes_the_right_to_manage(self, sim: SimBus) -> None:
        client = sim.client("sender")
        client.attach(False, Source("here"), target("a"))
        condition, text_ = client.expect_refused()
        assert condition == "amqp:unauthorized-access"
        assert "Manage" in text_
        assert sim.namespace.find("a") is None

    def test_nothing_is_made_where_the_bus_does_not(self, sim: SimBus, client: Client) -> None:
        sim.gateway.on_demand = False
        client.attach(False, Source("here"), target("a"))
        assert client.expect_refused()[0] == "amqp:not-found"

    def test_quotas_count(self, sim: SimBus, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(sim.namespace.tier), "entities_max", 1)
        client.attach(False, Source("here"), target("a"))
        client.expect_attached()
        client.attach(False, Source("here"), target("b"))
        assert client.expect_refused()[0] == "amqp:resource-limit-exceeded"

    def test_a_name_that_cannot_be_one_is_refused(self, client: Client) -> None:
        client.attach(False, Source("here"), target("a b"))
        assert client.expect_refused()[0] == "amqp:not-found"


class TestTemporaryNodes:
    @pytest.mark.parametrize("role", [True, False])
    def test_one_lives_as_long_as_its_link(self, sim: SimBus, client: Client, role: bool) -> None:
        handle = client.attach(role, source(None, dynamic=role), target(None, dynamic=not role))
        answer = client.expect_attached()
        described = answer.fields[5] if role else answer.fields[6]
        name = described.value[0]
        assert sim.namespace.find(name) is not None
        client.detach(handle)
        client.run(1)
        assert sim.namespace.find(name) is None

    def test_it_goes_with_the_connection(self, sim: SimBus, client: Client) -> None:
        client.attach(False, Source("here"), target(None, "temporary-topic", dynamic=True))
        name = client.expect_attached().fields[6].value[0]
        assert sim.namespace.entity(name).is_topic
        client.endpoint.lost()
        sim.loop.run_for(1)
        assert sim.namespace.find(name) is None

    def test_it_is_in_use_as_long_as_its_link_is_there(self, sim: SimBus, client: Client) -> None:
        client.attach(False, Source("here"), target(None, dynamic=True))
        name = client.expect_attached().fields[6].value[0]
        for _ in range(20):
            client.feed(bytes.fromhex("0000000802000000"))  # the client is alive
            client.run(60)
            sim.bus.delete_idle()
        assert sim.namespace.find(name) is not None

    def test_one_that_is_gone_is_not_made_again(self, client: Client) -> None:
        client.attach(False, Source("here"), target("temporary-queue-1", "temporary-queue"))
        assert client.expect_refused()[0] == "amqp:not-found"

    def test_it_takes_the_right_to_manage(self, sim: SimBus) -> None:
        client = sim.client("sender")
        client.attach(False, Source("here"), target(None, dynamic=True))
        assert client.expect_refused()[0] == "amqp:unauthorized-access"


class TestSubscriptions:
    def test_one_of_a_link_goes_with_it(self, sim: SimBus, client: Client) -> None:
        sim.topic("t")
        handle = receive(client, source("t"))
        assert len(subscriptions(sim, "t")) == 1
        sender = client.sender("t")
        client.transfer(sender, text("x"))
        assert [got.body for got in client.deliveries()] == [b"x"]
        client.detach(handle)
        client.run(1)
        assert subscriptions(sim, "t") == []

    def test_a_shared_one_divides_its_messages(self, sim: SimBus, client: Client) -> None:
        sim.topic("t")
        for handle in (101, 102):
            shared = source("t", "topic", "shared", "global", durable=True)
            client.send(Attach(f"name|global{handle}", handle, True, shared, Target("here")))
            client.expect_attached()
            client.flow(handle, 10)
        assert subscriptions(sim, "t") == ["name"]
        sender = client.sender("t")
        for _ in range(4):
            client.transfer(sender, text("x"))
        assert sorted(got.handle for got in client.deliveries()) == [101, 101, 102, 102]

    def test_many_go_at_once_when_their_connection_does(self, sim: SimBus, client: Client) -> None:
        sim.topic("t")
        for _ in range(5):
            receive(client, source("t"))
        assert len(subscriptions(sim, "t")) == 5
        client.endpoint.lost()
        sim.loop.run_for(1)
        assert subscriptions(sim, "t") == []

    def test_a_durable_one_stays_when_its_client_leaves(self, sim: SimBus, client: Client) -> None:
        sim.topic("t")
        receive(client, source("t", "topic", durable=True))
        (name,) = subscriptions(sim, "t")
        assert name == "client.link-0"
        client.endpoint.lost()
        sim.loop.run_for(1)
        assert subscriptions(sim, "t") == [name]

    def test_a_name_that_no_subscription_may_have_is_shortened(self, sim: SimBus, client: Client) -> None:
        sim.topic("t")
        for handle, link in enumerate(("x" * 60, "x" * 61, "a b")):
            client.send(Attach(link, handle, True, source("t", durable=True), Target("here")))
            client.expect_attached()
        names = subscriptions(sim, "t")
        assert len(names) == 3
        assert all(len(name) <= 50 for name in names)


class TestAnonymousSenders:
    def test_each_message_says_where_it_goes(self, sim: SimBus, client: Client) -> None:
        sim.queue("a")
        sim.queue("b")
        handle = client.attach(False, Source("here"), Target(None))
        client.expect_attached()
        for name in ("a", "b", "a"):
            assert client.outcome(handle, text("x", to=name)).descriptor == 0x24
        assert [active(sim, name) for name in ("a", "b")] == [2, 1]

    def test_what_says_nothing_or_names_a_part_is_refused(self, sim: SimBus, client: Client) -> None:
        sim.queue("a")
        handle = client.attach(False, Source("here"), Target(None))
        client.expect_attached()
        assert rejection(client.outcome(handle, text("x")))[0] == "com.microsoft:argument-error"
        assert rejection(client.outcome(handle, text("x", to="a/$DeadLetterQueue")))[0] == "amqp:not-allowed"

    def test_rights_are_asked_for_each(self, sim: SimBus) -> None:
        sim.queue("a")
        client = sim.client("listener")
        handle = client.attach(False, Source("here"), Target(None))
        client.expect_attached()
        assert rejection(client.outcome(handle, text("x", to="a")))[0] == "amqp:unauthorized-access"

    def test_a_queue_is_made_for_a_message(self, sim: SimBus, client: Client) -> None:
        handle = client.attach(False, Source("here"), Target(None))
        client.expect_attached()
        assert client.outcome(handle, text("x", to="new")).descriptor == 0x24
        assert active(sim, "new") == 1

    def test_without_on_demand_it_is_not_found(self, sim: SimBus, client: Client) -> None:
        sim.gateway.on_demand = False
        handle = client.attach(False, Source("here"), Target(None))
        client.expect_attached()
        assert rejection(client.outcome(handle, text("x", to="new")))[0] == "amqp:not-found"

    def test_one_who_has_shown_nothing_is_refused(self, sim: SimBus) -> None:
        client = Client(sim).sasl("ANONYMOUS").opened()
        client.attach(False, Source("here"), Target(None))
        assert client.expect_refused()[0] == "amqp:unauthorized-access"
