"""Older releases of the Java SDK open management links and show the token for them afterwards."""

from __future__ import annotations

import pytest

from polybus.limits import AMQP_EARLY_LINK_MS, AMQP_EARLY_LINKS
from tests.protocol.peer import Frame, parse
from tests.unit.gateway.amqp_kit import Client, SimBus

JAVA = "azure-messaging-servicebus"
MANAGEMENT = "q/$management"


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    sim.queue("other")
    return sim


def java(sim: SimBus, product: str = JAVA) -> Client:
    client = Client(sim)
    client.sasl("ANONYMOUS").opened(product=product)
    return client


def answers(client: Client, handle: int) -> list[str]:
    """What was answered to a link: attached, or refused with a condition."""
    client.run()
    found = []
    for one in parse(bytes(client.transport.written)):
        if isinstance(one, Frame) and one.name == "attach" and one.fields[0] == f"link-{handle}":
            found.append("attached" if one.fields[6] is not None else "refused")
    return found


def test_both_links_are_answered_when_the_token_is_shown(sim: SimBus) -> None:
    client = java(sim)
    requests, replies = client.attach_sender(MANAGEMENT), client.attach_receiver(MANAGEMENT)
    assert answers(client, requests) == answers(client, replies) == []
    assert client.put_token("sb://ns.example.com/other")[0] == 202
    assert answers(client, requests) == []
    assert client.put_token("sb://ns.example.com/q")[0] == 202
    assert answers(client, requests) == answers(client, replies) == ["attached"]
    client.run(AMQP_EARLY_LINK_MS / 1000)
    assert answers(client, requests) == ["attached"], "its time is not up any more"


def test_without_a_token_they_are_refused_in_time(sim: SimBus) -> None:
    client = java(sim)
    client.attach_sender(MANAGEMENT)
    client.frames()
    client.run(AMQP_EARLY_LINK_MS / 1000)
    condition, text = client.expect_refused()
    assert condition == "amqp:unauthorized-access"
    assert "'Listen' claim(s) are required" in text


def test_a_token_is_no_entity(sim: SimBus) -> None:
    client = java(sim)
    requests = client.attach_sender("missing/$management")
    assert client.put_token("sb://ns.example.com/missing")[0] == 202
    assert answers(client, requests) == ["refused"]


def test_a_link_that_went_meanwhile_is_forgotten(sim: SimBus) -> None:
    client = java(sim)
    requests = client.attach_sender(MANAGEMENT)
    client.detach(requests)
    assert client.put_token("sb://ns.example.com/q")[0] == 202
    client.run(AMQP_EARLY_LINK_MS / 1000)
    assert "attached" not in answers(client, requests)


@pytest.mark.parametrize(("product", "address"), [("another", MANAGEMENT), (JAVA, "q")])
def test_no_other_link_waits(sim: SimBus, product: str, address: str) -> None:
    client = java(sim, product)
    client.attach_sender(address)
    assert client.expect_refused()[0] == "amqp:unauthorized-access"


def test_only_so_many_wait(sim: SimBus) -> None:
    client = java(sim)
    assert client.put_token("sb://ns.example.com/other")[0] == 202  # who has shown nothing has few links anyway
    handles = [client.attach_sender(MANAGEMENT) for _ in range(AMQP_EARLY_LINKS + 1)]
    assert [answers(client, handle) for handle in handles] == [[]] * AMQP_EARLY_LINKS + [["refused"]]
