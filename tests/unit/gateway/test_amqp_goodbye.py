"""When a stop need not wait for a client any longer: it has its answers and the close, and is only silent."""

from __future__ import annotations

import pytest

from tests.unit.gateway.amqp_kit import Client, SimBus, text, transfer_frames


@pytest.fixture
def client() -> Client:
    sim = SimBus()
    sim.queue("q")
    return sim.client()


def test_a_silent_client_was_told_as_soon_as_the_close_has_left(client: Client) -> None:
    assert not client.endpoint.told
    client.endpoint.shut_down()
    assert not client.endpoint.told, "the close is not written yet"
    assert [one.name for one in client.frames()] == ["close"]
    assert client.endpoint.told


def test_a_client_whose_send_is_not_answered_was_not_told(client: Client) -> None:
    sender = client.sender("q")
    client.endpoint.feed(transfer_frames(sender, 0, text("m")), client.sim.now_ms())
    client.endpoint.shut_down()
    assert not client.endpoint.told
    assert [one.name for one in client.frames()][-2:] == ["disposition", "close"]
    assert client.endpoint.told


def test_a_client_that_does_not_read_was_not_told(client: Client) -> None:
    client.transport.slow = True
    client.endpoint.shut_down()
    client.frames()
    assert not client.endpoint.told
    client.transport.unsent = 0
    assert client.endpoint.told
