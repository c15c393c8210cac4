"""A delivery-id that is used twice at once: harmless on request links, which know requests by their message ids."""

from __future__ import annotations

import pytest

from tests.unit.gateway.amqp_kit import (  # type: ignore[attr-defined]
    Client,
    Frame,
    ManagementPair,
    SimBus,
    error_of,
    gather,
    message,
    text,
    transfer_frames,
)

ACCEPTED = 0x24


@pytest.fixture
def client() -> Client:
    sim = SimBus()
    sim.queue("q")
    return sim.client()


def peek(pair: ManagementPair, message_id: str, number: int) -> bytes:
    body = {"from-sequence-number": 0, "message-count": 1}
    payload = message({"operation": "com.microsoft:peek-message"}, body, message_id, pair.path)
    return transfer_frames(pair.requests, number, payload)


def answers(frames: list[Frame]) -> list[tuple[int, object]]:
    return [(one.fields[1], one.fields[4].descriptor) for one in frames if one.name == "disposition"]


def replies(frames: list[Frame]) -> list[object]:
    return [got.message.properties()[5] for got in gather([one for one in frames if one.name == "transfer"])]


def test_two_requests_with_one_id_are_both_answered(client: Client) -> None:
    pair = client.management("q")
    client.feed(peek(pair, "a", 7) + peek(pair, "b", 7))
    found = client.frames()
    assert replies(found) == ["a", "b"]
    assert answers(found) == [(7, ACCEPTED)]


@pytest.mark.parametrize("request_first", [True, False])
def test_a_send_keeps_the_id_that_a_request_shares_with_it(client: Client, request_first: bool) -> None:
    """The client takes the one answer for both, so it may not come before the send is committed."""
    pair = client.management("q")
    sender = client.sender("q")
    parts = [peek(pair, "a", 7), transfer_frames(sender, 7, text("x"))]
    client.feed(b"".join(parts if request_first else reversed(parts)))
    found = client.frames()
    assert replies(found) == ["a"]
    assert answers(found) == [(7, ACCEPTED)]
    client.feed(peek(pair, "later", 8))
    assert replies(client.frames()) == ["later"]


def test_two_sends_with_one_id_end_the_session(client: Client) -> None:
    sender = client.sender("q")
    client.feed(transfer_frames(sender, 7, text("x")) + transfer_frames(sender, 7, text("y")))
    assert error_of(client.one("end").fields[0]) == ("amqp:invalid-field", "the delivery-id is still in use")
