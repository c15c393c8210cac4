"""Attaching links: addresses, rights, what is echoed, what is refused and how."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.types import Described, Symbol, ULong
from polybus.namespace.entities.description import EntityStatus, QueueDescription, SubscriptionDescription
from polybus.namespace.entities.tiers import BASIC, PREMIUM
from tests.unit.gateway.amqp_kit import SimBus, error_of


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    sim.queue("a/b/c", enable_partitioning=True)
    sim.queue("s", requires_session=True)
    sim.topic("t", "one")
    return sim


@pytest.mark.parametrize(
    "address",
    ["q", "/q", "Q", "q/", "sb://h/q", "amqp://h:5672/q", "amqps://h/Q", "%71", "q/$deadletterqueue"],
)
def test_a_queue_is_found_in_every_spelling(sim: SimBus, address: str) -> None:
    client = sim.client()
    client.attach_receiver(address)
    attached = client.expect_attached()
    assert attached.fields[5].value[0] == address, "the client's spelling is echoed"


@pytest.mark.parametrize(
    "address",
    [
        "a/b/c",
        "t/Subscriptions/one",
        "t/subscriptions/ONE",
        "t/Subscriptions/one/$DeadLetterQueue",
        "t/Subscriptions/one/$Transfer/$DeadLetterQueue",
        "q/$Transfer/$DeadLetterQueue",
        "s/$DeadLetterQueue",
    ],
)
def test_what_can_be_received_from(sim: SimBus, address: str) -> None:
    client = sim.client()
    client.receiver(address)


@pytest.mark.parametrize("address", ["a/b/c", "t", "s"])
def test_what_can_be_sent_to(sim: SimBus, address: str) -> None:
    client = sim.client()
    client.sender(address)


def test_the_answer_to_a_receiver_has_everything_that_the_sdks_look_at(sim: SimBus) -> None:
    client = sim.client()
    handle = client.attach(
        True,
        Source("amqps://h/q", others=["amqps://h/q", Symbol("none"), None, None, True]),
        Target("receiver-link-1"),
        snd_settle_mode=0,
        rcv_settle_mode=1,
        properties={Symbol("com.microsoft:receiver-name"): "me"},
    )
    fields = client.expect_attached().fields
    assert len(fields) == 14
    assert fields[0] == f"link-{handle}"
    assert fields[2] is False
    assert (fields[3], fields[4]) == (0, 1)
    assert fields[5].descriptor == 0x28
    assert len(fields[5].value) == 11
    assert fields[5].value[:5] == ["amqps://h/q", "none", None, None, True]
    assert fields[6].value[0] == "receiver-link-1"
    assert fields[9] == 0, "initial-delivery-count: Python gives up on a receiver without it"
    assert isinstance(fields[13], dict)


def test_null_settle_modes_are_echoed_as_null(sim: SimBus) -> None:
    client = sim.client()
    client.attach(True, Source("q"), Target("x"))
    fields = client.expect_attached().fields
    assert fields[3] is None
    assert fields[4] is None


def test_a_sender_hears_the_largest_size_and_gets_credit_after_its_attach(sim: SimBus) -> None:
    client = sim.client()
    handle = client.attach_sender("q")
    attached, flow = client.frames()
    assert (attached.name, flow.name) == ("attach", "flow")
    assert attached.fields[10] == 262_144
    assert attached.fields[9] is None
    assert attached.fields[13]["com.microsoft:max-message-batch-size"] == 262_144
    assert flow.fields[4] == handle
    assert flow.fields[5] == 0
    assert flow.fields[6] == 1000


def test_premium_takes_larger_messages() -> None:
    sim = SimBus(PREMIUM)
    sim.queue("q")
    sim.queue("large", max_message_size_in_kilobytes=102_400)
    client = sim.client()
    sizes = []
    for name in ("q", "large"):
        client.attach_sender(name)
        sizes.append(client.expect_attached().fields[10])
    assert sizes == [1_048_576, 104_857_600]


@pytest.mark.parametrize("address", ["$cbs", "q/$management"])
def test_token_and_management_links_have_no_limit_and_a_hundred_credits(sim: SimBus, address: str) -> None:
    client = sim.client()
    client.attach_sender(address)
    attached, flow = client.frames()
    assert attached.fields[10] == (1 << 64) - 1
    assert flow.fields[6] == 100


@pytest.mark.parametrize(
    ("role", "address", "condition", "says"),
    [
        ("receive", "nowhere", "amqp:not-found", "The messaging entity 'sb://ns/nowhere' could not be found."),
        ("send", "nowhere", "amqp:not-found", "The messaging entity 'sb://ns/nowhere' could not be found."),
        ("receive", "t/Subscriptions/none", "amqp:not-found", "could not be found"),
        ("receive", "no way?", "amqp:not-found", "The messaging entity 'sb://ns/no way?' could not be found."),
        ("receive", "q/$management/$management", "amqp:not-found", "could not be found"),
        ("receive", "none/$management", "amqp:not-found", "could not be found"),
        ("receive", "t", "amqp:not-allowed", "topic"),
        ("receive", "t/$DeadLetterQueue", "amqp:not-allowed", "no dead-letter queue"),
        ("send", "t/Subscriptions/one", "amqp:not-allowed", "cannot be sent"),
        ("send", "q/$DeadLetterQueue", "amqp:not-allowed", "cannot be sent"),
        (
            "receive",
            "s",
            "amqp:not-allowed",
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        ),
    ],
)
def test_refusals(sim: SimBus, role: str, address: str, condition: str, says: str) -> None:
    client = sim.client()
    if role == "send":
        client.attach_sender(address)
    else:
        client.attach_receiver(address)
    got = client.expect_refused()
    assert got[0] == condition
    assert says in got[1]


def test_a_receiver_without_an_address_is_told_that_it_needs_one(sim: SimBus) -> None:
    client = sim.client()
    client.attach(True, Source(None), Target(None))
    condition, text = client.expect_refused()
    assert condition == "amqp:not-allowed"
    assert text.startswith("The address of the link's source says where it receives from; it has none.")


@pytest.mark.parametrize("role", [True, False])
def test_a_temporary_node_is_refused_for_its_true_reason(sim: SimBus, role: bool) -> None:
    client = sim.client()
    dynamic = [None, None, None, None, True]
    client.attach(role, Source(None, others=list(dynamic)), Target(None, others=list(dynamic)))
    condition, text = client.expect_refused()
    assert condition == "amqp:not-implemented"
    assert "--on-demand-entities" in text


def test_a_refused_receiver_still_gets_its_initial_delivery_count(sim: SimBus) -> None:
    client = sim.client()
    client.attach_receiver("nowhere")
    assert client.frames("attach")[0].fields[9] == 0


def test_a_session_receiver_needs_an_entity_with_sessions(sim: SimBus) -> None:
    client = sim.client()
    for address in ("q", "s/$DeadLetterQueue"):
        client.attach_receiver(address, filter={Symbol("com.microsoft:session-filter"): "x"})
        condition, description = client.expect_refused()
        assert condition == "amqp:not-allowed"
        assert description.startswith("A sessionful message receiver cannot be created on an entity")


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ({Symbol("com.microsoft:non-exclusive-session-filter:list"): None}, "amqp:not-implemented"),
        ({Symbol("com.microsoft:session-filter"): 5}, "com.microsoft:argument-error"),
        ({Symbol("com.microsoft:session-filter"): Described(ULong(0x137000000E), "x")}, "amqp:not-implemented"),
    ],
)
def test_filters_that_cannot_be_are_refused(sim: SimBus, filters: dict[Any, Any], condition: str) -> None:
    client = sim.client()
    client.attach_receiver("s", filter=filters)
    assert client.expect_refused()[0] == condition


@pytest.mark.parametrize(
    ("key", "role", "address", "claim"),
    [
        ("sender", "receive", "q", "Listen"),
        ("listener", "send", "q", "Send"),
        ("sender", "receive", "t/Subscriptions/one", "Listen"),
        ("sender", "receive", "nowhere", "Listen"),
    ],
)
def test_a_missing_right_is_named_before_the_entity_is(
    sim: SimBus, key: str, role: str, address: str, claim: str
) -> None:
    client = sim.client(key)
    if role == "send":
        client.attach_sender(address)
    else:
        client.attach_receiver(address)
    condition, description = client.expect_refused()
    assert condition == "amqp:unauthorized-access"
    assert f"'{claim}' claim(s) are required" in description
    assert f"Resource: 'sb://ns/{address}'" in description


def update(sim: SimBus, **fields: Any) -> None:
    sim.wait(sim.namespace.management.update(QueueDescription(path="q", **fields)))


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_disabled_entity_refuses_new_links_and_ends_old_ones(
    sim: SimBus, status: EntityStatus, sends: bool, receives: bool
) -> None:
    client = sim.client()
    sender, receiver = client.sender("q"), client.receiver("q")
    update(sim, status=status)
    ended = {one.fields[0]: error_of(one.fields[2])[0] for one in client.frames("detach")}
    expected = {handle for handle, alive in ((sender, sends), (receiver, receives)) if not alive}
    assert ended == dict.fromkeys(expected, "com.microsoft:entity-disabled")
    client.attach_sender("q")
    assert [one.name for one in client.frames()][:2] == (["attach", "flow"] if sends else ["attach", "detach"])
    client.attach_receiver("q")
    assert [one.name for one in client.frames()][:2] == (["attach"] if receives else ["attach", "detach"])


def test_an_unrelated_change_leaves_links_alone(sim: SimBus) -> None:
    client = sim.client()
    client.sender("q")
    client.receiver("q")
    update(sim, lock_duration_ms=30_000)
    assert client.frames() == []


def test_a_deleted_queue_ends_its_links_with_not_found(sim: SimBus) -> None:
    client = sim.client()
    client.sender("q")
    client.receiver("q", 10)
    client.management("q")
    sim.wait(sim.namespace.management.delete("q"))
    detached = client.frames("detach")
    assert len(detached) == 4
    for one in detached:
        condition, description = error_of(one.fields[2])
        assert condition == "amqp:not-found"
        assert "The messaging entity 'sb://ns/q" in description
    client.attach_receiver("q")
    assert client.expect_refused()[0] == "amqp:not-found"


def test_a_deleted_subscription_ends_its_receivers_only(sim: SimBus) -> None:
    sim.wait(sim.namespace.management.create_subscription(SubscriptionDescription(topic="t", name="two")))
    client = sim.client()
    one = client.receiver("t/Subscriptions/one")
    client.receiver("t/Subscriptions/two")
    client.sender("t")
    sim.wait(sim.namespace.management.delete_subscription("t", "one"))
    (detached,) = client.frames("detach")
    assert detached.fields[0] == one
    assert error_of(detached.fields[2])[0] == "amqp:not-found"


def test_a_queue_that_forwards_has_no_receivers(sim: SimBus) -> None:
    sim.queue("f", forward_to="q")
    client = sim.client()
    client.attach_receiver("f")
    condition, description = client.expect_refused()
    assert condition == "amqp:not-allowed"
    assert "forward" in description


def test_receivers_are_counted_while_they_are_there(sim: SimBus) -> None:
    topic = sim.namespace.entity("t")
    subscription = topic.subscription("one")
    client = sim.client()
    first, _ = client.receiver("t/Subscriptions/one"), client.receiver("t/Subscriptions/one")
    assert (topic.receivers, subscription.receivers) == (2, 2)
    client.detach(first)
    assert (topic.receivers, subscription.receivers) == (1, 1)
    client.end()
    assert (topic.receivers, subscription.receivers) == (0, 0)


def test_an_entity_has_a_most_of_receivers(sim: SimBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybus.gateway.amqp.attach.AMQP_RECEIVERS_PER_ENTITY", 2)
    client = sim.client()
    first, _ = client.receiver("q"), client.receiver("q/$DeadLetterQueue")
    client.attach_receiver("q")
    assert client.expect_refused()[0] == "amqp:resource-limit-exceeded"
    client.detach(first)
    client.frames()
    client.receiver("q")


def test_the_basic_tier_has_no_transactions() -> None:
    sim = SimBus(BASIC)
    client = sim.client()
    client.attach(False, Source("x"), Coordinator())
    assert client.expect_refused()[0] == "amqp:not-implemented"


def test_detaching_is_answered_on_the_same_handle(sim: SimBus) -> None:
    client = sim.client()
    handle = client.receiver("q")
    client.detach(handle)
    answer = client.one("detach")
    assert answer.fields == [handle, True, None]
