"""Sending: formats, batches, refusals, and what a send may not do to its neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus import limits
from polybus.amqp.codec import encode
from polybus.amqp.frames import frame
from polybus.amqp.traffic import Transfer
from polybus.amqp.types import Symbol, Timestamp
from polybus.errors import MessageTooLarge, PolybusError, StoreError
from polybus.gateway.amqp.sent_messages import BATCH_FORMAT, batch_messages, check_properties
from polybus.message.message import Message, build
from tests.support.sim_loop import SimClock
from tests.unit.gateway.amqp_kit import Client, SimBus, rejection, text, transfer_frames, value, with_id

ACCEPTED = 0x24


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    sim.queue("p", enable_partitioning=True)
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


def batch(*messages: bytes) -> bytes:
    return b"".join(b"\x00\x53\x75" + encode(one) for one in messages)


def active(sim: SimBus, name: str = "q") -> int:
    return sim.namespace.entity(name).counts().result().active


@pytest.mark.parametrize("entity", ["q", "p"])
def test_a_message_is_accepted_when_it_is_stored(sim: SimBus, client: Client, entity: str) -> None:
    sender = client.sender(entity)
    client.endpoint.feed(frame(0, Transfer(sender, 0, b"t", 0), payload=text("m")), sim.now_ms())
    assert client.transport.written[client._read_to :] == b"", "nothing is said before the commit"
    (answer,) = client.frames("disposition")
    assert answer.fields[4].descriptor == ACCEPTED
    assert active(sim, entity) == 1


def test_a_null_message_format_counts_as_zero(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    client.send(Transfer(sender, 0, b"t", None), payload=text("m"))
    assert client.one("disposition").fields[4].descriptor == ACCEPTED


def test_an_unknown_message_format_is_not_implemented(client: Client) -> None:
    state = client.outcome(client.sender("q"), text("m"), message_format=0x80013701)
    assert rejection(state)[0] == "amqp:not-implemented"


def test_a_settled_send_is_stored_and_not_answered(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    client.transfer(sender, text("m"), settled=True)
    assert client.frames("disposition") == []
    assert active(sim) == 1


@pytest.mark.parametrize("entity", ["q", "p"])
def test_a_batch_is_taken_apart_and_answered_once(sim: SimBus, client: Client, entity: str) -> None:
    inner = [text(f"m{n}", message_id=str(n)) for n in range(5)]
    envelope = b"\x00\x53\x73" + encode([None] * 13)
    state = client.outcome(client.sender(entity), envelope + batch(*inner), message_format=BATCH_FORMAT)
    assert state.descriptor == ACCEPTED
    client.receiver(entity, 100)
    assert [got.body for got in client.deliveries()] == [f"m{n}".encode() for n in range(5)]


def test_an_empty_batch_is_accepted_and_stores_nothing(sim: SimBus, client: Client) -> None:
    envelope = b"\x00\x53\x73" + encode([None] * 13)
    for payload in (envelope, b""):
        assert client.outcome(client.sender("q"), payload, message_format=BATCH_FORMAT).descriptor == ACCEPTED
    assert active(sim) == 0


def test_a_batch_with_one_bad_message_is_refused_whole(sim: SimBus, client: Client) -> None:
    payload = batch(text("good"), with_id("x" * 129))
    state = client.outcome(client.sender("q"), payload, message_format=BATCH_FORMAT)
    assert rejection(state)[0] == "com.microsoft:argument-out-of-range"
    assert active(sim) == 0


def test_a_batch_of_many_small_messages_is_fine_and_of_too_many_is_not(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    # A message without an id and with an empty body takes five bytes; the cloud service takes 4,500 of them.
    small = b"\x00\x53\x75\xa0\x00"
    assert client.outcome(sender, batch(*[small] * 4500), message_format=BATCH_FORMAT).descriptor == ACCEPTED
    assert active(sim) == 4500
    too_many = batch(*[small] * (limits.AMQP_BATCH_MESSAGES + 1))
    state = client.outcome(sender, too_many, message_format=BATCH_FORMAT)
    assert rejection(state)[0] == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"partition_key": "a"}, {"partition_key": "b"}, "distinct SessionId or PartitionKey"),
        ({"session_id": "a"}, {"session_id": "b"}, "distinct SessionId or PartitionKey"),
        ({"partition_key": "a"}, {}, "distinct SessionId or PartitionKey"),
    ],
)
def test_a_batch_with_several_keys_is_refused_on_a_partitioned_entity_only(
    sim: SimBus, client: Client, first: dict[str, str], second: dict[str, str], says: str
) -> None:
    payload = batch(text("1", **first), text("2", **second))
    state = client.outcome(client.sender("p"), payload, message_format=BATCH_FORMAT)
    condition, description = rejection(state)
    assert condition == "amqp:not-allowed"
    assert says in description
    assert active(sim, "p") == 0
    assert client.outcome(client.sender("q"), payload, message_format=BATCH_FORMAT).descriptor == ACCEPTED


def test_keys_that_contradict_each_other_are_refused(client: Client) -> None:
    payload = text("m", session_id="a", partition_key="b")
    for entity in ("p", "q"):
        assert rejection(client.outcome(client.sender(entity), payload))[0] == "amqp:not-allowed"


def test_an_oversized_message_is_refused_and_the_link_lives(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    condition, description = rejection(client.outcome(sender, text("x" * 300_000)))
    assert condition == "amqp:link:message-size-exceeded"
    assert "262144" in description
    assert client.outcome(sender, text("small")).descriptor == ACCEPTED
    assert active(sim) == 1


def test_a_message_of_many_frames_arrives_whole(client: Client) -> None:
    assert client.outcome(client.sender("q"), text("y" * 200_000)).descriptor == ACCEPTED
    client.receiver("q", 1)
    (got,) = client.deliveries()
    assert got.body == b"y" * 200_000


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\x00\x53\x75",
        b"garbage",
        b"\x00\x53\x99\x40",
        b"\x00\x53\x75\xa0\xff",
        text("m") + b"\x00\x53\x70\x45",
    ],
)
def test_a_message_that_is_none_is_refused_with_a_full_error(sim: SimBus, client: Client, payload: bytes) -> None:
    state = client.outcome(client.sender("q"), payload)
    assert rejection(state)[0] == "amqp:decode-error"
    assert active(sim) == 0


@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT])
def test_delivery_annotations_behind_the_body_arrive(client: Client, message_format: int) -> None:
    """The Python SDK writes them there, against AMQP 1.0 §3.2."""
    payload = text("m") + b"\x00\x53\x71" + encode({Symbol("x"): 1})
    sender = client.sender("q")
    state = client.outcome(sender, payload if message_format == 0 else batch(payload), message_format=message_format)
    assert state.descriptor == ACCEPTED
    client.receiver("q", 1)
    (got,) = client.deliveries()
    assert got.body == b"m"
    assert got.delivery_annotations["x"] == 1


@pytest.mark.parametrize("body", [b"", value(None), b"\x00\x53\x75\xa0\x00"])
def test_every_kind_of_nothing_is_a_message(sim: SimBus, client: Client, body: bytes) -> None:
    assert client.outcome(client.sender("q"), body).descriptor == ACCEPTED
    client.receiver("q", 1)
    (got,) = client.deliveries()
    assert got.message.raw.endswith(body)


def test_a_session_entity_wants_a_session_id(sim: SimBus, client: Client) -> None:
    sim.queue("s", requires_session=True)
    sender = client.sender("s")
    condition, description = rejection(client.outcome(sender, text("m")))
    assert condition == "amqp:not-allowed"
    assert description.startswith("The SessionId was not set on a message, and it cannot be sent to the entity.")
    assert client.outcome(sender, text("m", session_id="")).descriptor == ACCEPTED


def test_a_duplicate_is_accepted_and_dropped(sim: SimBus, client: Client) -> None:
    sim.queue("d", requires_duplicate_detection=True)
    sender = client.sender("d")
    for _ in range(3):
        assert client.outcome(sender, text("m", message_id="same")).descriptor == ACCEPTED
    assert active(sim, "d") == 1


def test_a_topic_without_a_matching_subscription_accepts(sim: SimBus, client: Client) -> None:
    sim.topic("t")
    assert client.outcome(client.sender("t"), text("m")).descriptor == ACCEPTED


def test_a_message_scheduled_by_its_annotation_waits(sim: SimBus, client: Client) -> None:
    later = sim.clock.now().wall_ms + 10_000
    client.outcome(client.sender("q"), text("m", scheduled_ms=later))
    client.receiver("q", 1)
    client.run(9)
    assert client.deliveries() == []
    client.run(2)
    (got,) = client.deliveries()
    assert got.annotations["x-opt-scheduled-enqueue-time"] == later


def test_marks_of_the_broker_in_a_sent_message_are_replaced(sim: SimBus, client: Client) -> None:
    annotations = {
        Symbol("x-opt-sequence-number"): 999,
        Symbol("x-opt-enqueued-time"): Timestamp(5),
        Symbol("x-opt-mine"): "kept",
    }
    payload = b"\x00\x53\x72" + encode(annotations) + text("m")
    client.outcome(client.sender("q"), payload)
    client.receiver("q", 1)
    (got,) = client.deliveries()
    assert got.annotations["x-opt-sequence-number"] == 1
    assert got.annotations["x-opt-enqueued-time"] == sim.clock.now().wall_ms
    assert got.annotations["x-opt-mine"] == "kept"


def test_a_full_entity_refuses_with_the_quota_condition(sim: SimBus, client: Client) -> None:
    entity = sim.namespace.entity("q")
    entity.settings.max_bytes = 100
    state = client.outcome(client.sender("q"), text("x" * 200))
    assert rejection(state)[0] == "amqp:resource-limit-exceeded"


def test_a_keyed_send_to_a_store_that_is_down_is_refused_for_now_and_an_unkeyed_one_is_not(
    sim: SimBus, client: Client
) -> None:
    sender = client.sender("p")
    down = sim.bus.stores[1]
    down.fence(StoreError("gone"), None)
    refused = 0
    for n in range(40):
        state = client.outcome(sender, text("m", partition_key=str(n)))
        if state.descriptor != ACCEPTED:
            assert rejection(state)[0] == "com.microsoft:server-busy"
            refused += 1
    assert 0 < refused < 40
    for _ in range(20):
        assert client.outcome(sender, text("m")).descriptor == ACCEPTED


def test_a_bug_in_a_send_rejects_that_message_and_nothing_else(
    sim: SimBus, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = client.sender("q")

    def broken(*args: object) -> None:
        raise ZeroDivisionError("inside")

    with monkeypatch.context() as patched:
        patched.setattr(SimClock, "now", broken)  # asked on the way into the partition
        condition, description = rejection(client.outcome(sender, text("m")))
    assert condition == "amqp:internal-error"
    assert "inside" not in description
    assert "TrackingId:" in description
    assert client.outcome(sender, text("m")).descriptor == ACCEPTED
    assert client.endpoint._under_way == 0


def test_credit_is_renewed_for_ever(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    granted, sent = 1000, 0
    for _ in range(5):
        for _ in range(500):
            client.endpoint.feed(frame(0, Transfer(sender, sent, b"t", 0, True), payload=text("m")), sim.now_ms())
            sent += 1
        for one in client.frames("flow"):
            if one.fields[4] == sender:
                granted = one.fields[5] + one.fields[6]
        assert granted >= sent + 500


def test_a_client_that_sends_faster_than_the_store_is_not_read_for_a_while(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    payload = text("x" * 200_000)
    number = 0
    while client.transport.reading:
        assert number < 100
        client.endpoint.feed(transfer_frames(sender, number, payload), sim.now_ms())
        number += 1
    assert number * 200_000 >= limits.AMQP_UNANSWERED_BYTES
    client.run()
    assert client.transport.reading
    assert active(sim) == number


def test_traffic_is_counted(sim: SimBus, client: Client) -> None:
    sender = client.sender("q")
    payload = text("m")
    client.outcome(sender, payload)
    client.outcome(sender, batch(payload, payload), message_format=BATCH_FORMAT)
    client.outcome(sender, with_id("x" * 200))
    stats = sim.gateway.stats.entity("ns", "q")
    assert stats.incoming_messages == 3
    assert stats.requests == 2
    assert stats.user_errors == 1
    assert stats.send_seconds > 0


class TestProperties:
    def test_all_properties_together_have_a_limit(self, client: Client) -> None:
        many = {f"p{n}": "x" * 1000 for n in range(63)}
        sender = client.sender("q")
        assert client.outcome(sender, text("m", application=many)).descriptor == ACCEPTED
        many |= {f"q{n}": "x" * 1000 for n in range(5)}
        assert rejection(client.outcome(sender, text("m", application=many)))[0] == "amqp:link:message-size-exceeded"

    def test_one_property_has_a_limit(self) -> None:
        check_properties(build(b"m", application={"p": "x" * 32_000}))
        with pytest.raises(MessageTooLarge, match="'p'"):
            check_properties(build(b"m", application={"p": "x" * 33_000}))

    def test_a_large_body_does_not_count(self) -> None:
        check_properties(build(b"x" * 200_000, application={"p": 1}))
        check_properties(Message(b"\x00\x53\x75" + encode(b"x" * 200_000)))

    def test_properties_without_a_body_do(self) -> None:
        raw = b"\x00\x53\x74" + encode({f"p{n}": "x" * 1000 for n in range(70)})
        with pytest.raises(MessageTooLarge):
            check_properties(Message(raw))


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_any_bytes_as_a_batch_are_messages_or_one_error(payload: bytes) -> None:
    try:
        found = batch_messages(payload)
    except PolybusError:
        return
    assert all(isinstance(one, Message) for one in found)


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_a_batch_gives_back_what_was_put_in(bodies: list[bytes]) -> None:
    inner = [build(body).raw for body in bodies]
    assert [one.raw for one in batch_messages(batch(*inner))] == inner
