"""Receiving: credit, drain, tags, both settle modes, slow clients, and what comes back when a link goes."""

from __future__ import annotations

import pytest

from polybus import limits
from polybus.amqp.frames import frame
from polybus.amqp.outcomes import ACCEPTED, RELEASED, Modified, Rejected
from polybus.amqp.traffic import Disposition
from polybus.amqp.types import AmqpArray
from polybus.errors import StoreError
from polybus.namespace.entities.description import SubscriptionDescription
from tests.unit.gateway.amqp_kit import Client, SimBus, gather, text


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    sim.queue("p", enable_partitioning=True)
    return sim


def fill(sim: SimBus, name: str, count: int, size: int = 1, **fields: str) -> None:
    client = sim.client()
    sender = client.sender(name)
    for n in range(count):
        assert client.outcome(sender, text(f"{n}".ljust(size, "."), **fields)).descriptor == 0x24
    client.close()


def counts(sim: SimBus, name: str) -> tuple[int, int]:
    found = sim.namespace.entity(name).counts().result()
    return found.active, found.locked


@pytest.mark.parametrize("name", ["q", "p"])
def test_credit_is_respected_exactly(sim: SimBus, name: str) -> None:
    fill(sim, name, 10)
    client = sim.client()
    receiver = client.receiver(name)
    assert client.deliveries() == []
    client.flow(receiver, 3)
    assert len(client.deliveries()) == 3
    client.flow(receiver, 2, delivery_count=3)
    assert len(client.deliveries()) == 2
    # Three were seen when this flow was written: two of its four credits are used already.
    client.flow(receiver, 4, delivery_count=3)
    assert len(client.deliveries()) == 2
    assert counts(sim, name)[1] == 7


@pytest.mark.parametrize("name", ["q", "p"])
def test_a_message_that_arrives_later_is_delivered_at_once(sim: SimBus, name: str) -> None:
    client = sim.client()
    client.receiver(name, 5)
    assert client.deliveries() == []
    fill(sim, name, 1)
    assert len(client.deliveries()) == 1


def test_credit_can_be_taken_back(sim: SimBus) -> None:
    client = sim.client()
    receiver = client.receiver("q", 5)
    client.flow(receiver, 0)
    fill(sim, "q", 1)
    assert client.deliveries() == []
    assert counts(sim, "q")[1] == 0
    client.flow(receiver, 1)
    assert len(client.deliveries()) == 1


def test_a_delivery_has_what_the_sdks_read(sim: SimBus) -> None:
    fill(sim, "q", 1)
    client = sim.client()
    receiver = client.receiver("q", 1)
    (one,) = client.frames("transfer")
    assert len(one.fields) == 11
    assert one.fields[0] == receiver
    assert len(one.fields[2]) == 16
    assert one.fields[3] == 0, "rhea decodes a message only if its format is 0"
    assert one.fields[4] is False
    assert one.fields[5] is False
    (got,) = gather([one])
    marks = got.annotations
    assert marks["x-opt-locked-until"] == sim.clock.now().wall_ms + 60_000
    assert marks["x-opt-sequence-number"] == 1
    assert marks["x-opt-message-state"] == 0
    assert got.delivery_count == 0


def test_delivery_ids_have_no_gaps_over_all_links_of_a_session(sim: SimBus) -> None:
    client = sim.client()
    client.receiver("q", 50)
    client.receiver("p", 50)
    fill(sim, "q", 5)
    fill(sim, "p", 5)
    ids = [one.fields[1] for one in client.frames("transfer")]
    assert ids == list(range(ids[0], ids[0] + 10))


@pytest.mark.parametrize("name", ["q", "p"])
def test_the_tag_is_the_lock_token_in_dotnet_order(sim: SimBus, name: str) -> None:
    fill(sim, name, 2)
    client = sim.client()
    client.receiver(name, 2)
    first, second = client.deliveries()
    assert first.token != second.token
    management = client.management(name)
    tokens = AmqpArray(0x98, [second.token, first.token])
    assert management.ask("renew-lock", {"lock-tokens": tokens}).status == 200


class TestReceiveAndDelete:
    @pytest.mark.parametrize("name", ["q", "p"])
    def test_a_message_leaves_settled_and_is_gone(self, sim: SimBus, name: str) -> None:
        fill(sim, name, 3)
        client = sim.client()
        client.receiver(name, 2, deletes=True)
        got = client.deliveries()
        assert [one.settled for one in got] == [True, True]
        assert all(len(one.tag) == 16 for one in got)
        assert counts(sim, name) == (1, 0)

    def test_nothing_leaves_before_the_removal_is_stored(self, sim: SimBus) -> None:
        fill(sim, "q", 1)
        client = sim.client()
        receiver = client.receiver("q", deletes=True)
        flow = client.flow_frame(receiver, 1)
        client.endpoint.feed(frame(0, flow), sim.now_ms())
        client.endpoint._flush()
        assert client.transport.written[client._read_to :] == b""
        assert len(client.deliveries()) == 1

    def test_a_removal_that_fails_hands_nothing_over(self, sim: SimBus) -> None:
        fill(sim, "q", 1)
        client = sim.client()
        receiver = client.receiver("q", deletes=True)
        flow = client.flow_frame(receiver, 1)
        client.endpoint.feed(frame(0, flow), sim.now_ms())
        store = sim.namespace.entity("q").partitions[0].store
        store.fence(StoreError("gone"), None)
        client.run()
        assert client.deliveries() == []
        client.run(5)
        assert len(client.deliveries()) == 1, "it comes again when the store is back"

    def test_credit_that_is_taken_back_under_way_holds_the_message_until_there_is_some(self, sim: SimBus) -> None:
        fill(sim, "q", 2)
        client = sim.client()
        receiver = client.receiver("q", deletes=True)
        for credit in (2, 0):
            flow = client.flow_frame(receiver, credit)
            client.endpoint.feed(frame(0, flow), sim.now_ms())
        assert client.deliveries() == []
        client.flow(receiver, 1)
        assert [got.body for got in client.deliveries()] == [b"0"]
        client.flow(receiver, 5, delivery_count=1)
        assert [got.body for got in client.deliveries()] == [b"1"]


class TestDrain:
    def test_what_is_there_comes_first_and_then_the_credit_is_used_up(self, sim: SimBus) -> None:
        fill(sim, "q", 2)
        client = sim.client()
        receiver = client.receiver("q")
        client.flow(receiver, 10, drain=True)
        found = client.frames()
        assert [one.name for one in found] == ["transfer", "transfer", "flow"]
        flow = found[-1].fields
        assert flow[4:9] == [receiver, 10, 0, None, True]
        fill(sim, "q", 1)
        assert client.deliveries() == []

    @pytest.mark.parametrize("deletes", [False, True])
    @pytest.mark.parametrize("name", ["q", "p"])
    def test_in_both_modes_on_both_kinds(self, sim: SimBus, name: str, deletes: bool) -> None:
        fill(sim, name, 20)
        client = sim.client()
        receiver = client.receiver(name, deletes=deletes)
        client.flow(receiver, 25, drain=True)
        found = client.frames()
        assert [one.name for one in found] == ["transfer"] * 20 + ["flow"]
        assert found[-1].fields[5] == 25

    def test_an_empty_queue_is_drained_at_once(self, sim: SimBus) -> None:
        client = sim.client()
        receiver = client.receiver("q", 5)
        client.flow(receiver, 5, drain=True)
        assert client.one("flow").fields[4:9] == [receiver, 5, 0, None, True]

    def test_a_drain_without_credit_is_answered_too(self, sim: SimBus) -> None:
        client = sim.client()
        receiver = client.receiver("q")
        client.flow(receiver, 0, drain=True)
        assert client.one("flow").fields[4:9] == [receiver, 0, 0, None, True]

    def test_a_drained_link_goes_on_with_new_credit(self, sim: SimBus) -> None:
        client = sim.client()
        receiver = client.receiver("q")
        client.flow(receiver, 5, drain=True)
        client.frames()
        client.flow(receiver, 5, delivery_count=5)
        fill(sim, "q", 1)
        assert len(client.deliveries()) == 1

    def test_a_drain_is_answered_once(self, sim: SimBus) -> None:
        client = sim.client()
        receiver = client.receiver("q")
        client.flow(receiver, 5, drain=True)
        client.endpoint.pause_writing()
        client.endpoint.resume_writing()
        client.run()
        assert len(client.frames("flow")) == 1


class TestLinksThatGo:
    def test_what_was_sent_stays_locked_until_its_lock_ends(self, sim: SimBus) -> None:
        fill(sim, "q", 1)
        client, other = sim.client(), sim.client()
        client.receiver("q", 1)
        assert len(client.deliveries()) == 1
        other.receiver("q", 1)
        client.endpoint.lost()
        other.run(50)
        assert other.deliveries() == []
        other.run(15)
        (got,) = other.deliveries()
        assert got.delivery_count == 1

    def test_what_never_left_is_given_back_at_once_and_not_counted(self, sim: SimBus) -> None:
        fill(sim, "q", 3)
        client, other = Client(sim, window=1).login(), sim.client()
        client.receiver("q", 3)
        assert len(client.deliveries()) == 1
        assert counts(sim, "q")[1] >= 2, "the second one waits for the client's window"
        other.receiver("q", 3)
        client.endpoint.lost()
        got = other.deliveries()
        assert [one.delivery_count for one in got] == [0, 0]

    def test_a_detached_receiver_wants_nothing_more(self, sim: SimBus) -> None:
        client = sim.client()
        receiver = client.receiver("q", 10)
        client.detach(receiver)
        fill(sim, "q", 1)
        assert client.deliveries() == []
        assert counts(sim, "q") == (1, 0)

    def test_a_settlement_over_management_works_after_the_link_is_gone(self, sim: SimBus) -> None:
        fill(sim, "q", 1)
        client, other = sim.client(), sim.client()
        client.receiver("q", 1)
        (got,) = client.deliveries()
        client.endpoint.lost()
        body = {"disposition-status": "completed", "lock-tokens": AmqpArray(0x98, [got.token])}
        assert other.management("q").ask("update-disposition", body).status == 200
        assert counts(sim, "q") == (0, 0)


class TestSlowClients:
    def test_one_turn_brings_no_more_than_its_share(self, sim: SimBus) -> None:
        fill(sim, "q", 40, 20_000)
        client = sim.client()
        receiver = client.receiver("q")
        client.endpoint.feed(frame(0, client.flow_frame(receiver, 1000)), sim.now_ms())
        taken = counts(sim, "q")[1]
        assert limits.AMQP_TURN_BYTES - 20_000 <= taken * 20_000 <= limits.AMQP_TURN_BYTES + 20_000

    def test_nothing_is_locked_for_a_client_that_does_not_read(self, sim: SimBus) -> None:
        client = sim.client()
        client.receiver("q", 1000)
        client.endpoint.pause_writing()
        fill(sim, "q", 3)
        assert counts(sim, "q") == (3, 0)
        client.endpoint.resume_writing()
        assert len(client.deliveries()) == 3

    def test_a_transport_that_only_counts_is_enough(self, sim: SimBus) -> None:
        fill(sim, "q", 50, 20_000)
        client = sim.client()
        client.transport.slow = True
        client.receiver("q", 1000)
        taken = counts(sim, "q")[1]
        most = limits.AMQP_UNSENT_BYTES + limits.AMQP_TURN_BYTES
        assert limits.AMQP_UNSENT_BYTES <= taken * 20_000 <= most + 20_000
        client.transport.slow = False
        client.transport.unsent = 0
        client.endpoint.resume_writing()
        assert len(client.deliveries()) == 50

    def test_everything_arrives_in_the_end(self, sim: SimBus) -> None:
        fill(sim, "q", 60, 20_000)
        client = sim.client()
        client.receiver("q", 1000)
        assert len(client.deliveries()) == 60

    def test_a_window_that_is_used_up_stops_and_a_new_one_goes_on(self, sim: SimBus) -> None:
        fill(sim, "q", 30)
        client = Client(sim, window=10).login()
        receiver = client.receiver("q", 100)
        assert len(client.deliveries()) == 10
        assert counts(sim, "q")[1] <= 11
        for n in (1, 2):
            client.flow(receiver, 100 - 10 * n, delivery_count=10 * n)
            assert len(client.deliveries()) == 10

    def test_a_message_larger_than_the_clients_frames_is_split(self, sim: SimBus) -> None:
        fill(sim, "q", 2, 5_000)
        client = Client(sim, max_frame_size=512).login()
        client.receiver("q", 2)
        frames = client.frames("transfer")
        assert len(frames) > 20
        assert all(len(one.raw) <= 512 for one in frames)
        assert [len(got.body) for got in gather(frames)] == [5_000, 5_000]  # type: ignore[arg-type]


class TestClientsThatDoNotDecide:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("polybus.gateway.amqp.receive.AMQP_UNSETTLED_DELIVERIES", 4)

    def test_they_get_no_more_until_they_do(self, sim: SimBus) -> None:
        fill(sim, "q", 10)
        client = sim.client()
        client.receiver("q", 100)
        got = client.deliveries()
        assert len(got) == 4
        client.dispose(got[0].id, ACCEPTED)
        assert len(client.deliveries()) == 1
        for one in got[1:]:
            client.dispose(one.id, ACCEPTED)
        assert len(client.deliveries()) == 3

    def test_what_they_have_lost_no_longer_counts(self, sim: SimBus) -> None:
        fill(sim, "q", 10)
        client = sim.client()
        client.receiver("q", 100)
        assert len(client.deliveries()) == 4
        client.run(61)
        client.endpoint.tick(sim.now_ms())
        again = client.deliveries()
        assert [one.delivery_count for one in again] == [1, 1, 1, 1]
        assert len(client.endpoint.connection.sessions[0].unsettled) == 4

    def test_others_are_not_held_up(self, sim: SimBus) -> None:
        fill(sim, "q", 10)
        client, other = sim.client(), sim.client()
        client.receiver("q", 100)
        other.receiver("q", 100, deletes=True)
        assert len(client.deliveries()) == 4
        assert len(other.deliveries()) == 6


def test_receivers_of_one_queue_take_turns(sim: SimBus) -> None:
    first, second = sim.client(), sim.client()
    first.receiver("q", 10)
    second.receiver("q", 10)
    fill(sim, "q", 10)
    assert len(first.deliveries()) == len(second.deliveries()) == 5


def test_the_first_message_of_an_almost_empty_partitioned_queue_comes_at_once(sim: SimBus) -> None:
    fill(sim, "p", 1, partition_key="somewhere")
    client = sim.client()
    client.receiver("p", 1)
    assert len(client.deliveries()) == 1


def test_a_store_that_is_down_holds_up_only_its_own_messages(sim: SimBus) -> None:
    fill(sim, "p", 32)
    client = sim.client()
    sim.bus.stores[2].fence(StoreError("gone"), None)
    client.receiver("p", 100)
    assert len(client.deliveries()) == 24
    client.run(10)
    assert len(client.deliveries()) == 8


def test_a_dead_letter_queue_can_be_received_from(sim: SimBus) -> None:
    fill(sim, "p", 1)
    client = sim.client()
    client.receiver("p", 1)
    (got,) = client.deliveries()
    client.settle(got.id, Rejected())
    client.receiver("p/$DeadLetterQueue", 1)
    (dead,) = client.deliveries()
    assert dead.annotations["x-opt-deadletter-source"] == "p"
    assert client.settle(dead.id, ACCEPTED).descriptor == 0x24


def test_a_released_message_comes_again_uncounted_and_an_abandoned_one_counted(sim: SimBus) -> None:
    fill(sim, "q", 1)
    client = sim.client()
    client.receiver("q", 10)
    seen = []
    for state in (RELEASED, Modified(), RELEASED, Modified(delivery_failed=True)):
        (got,) = client.deliveries()
        seen.append(got.delivery_count)
        client.dispose(got.id, state, settled=True)
    (last,) = client.deliveries()
    assert [*seen, last.delivery_count] == [0, 0, 1, 1, 2]


def test_outgoing_traffic_is_counted(sim: SimBus) -> None:
    fill(sim, "q", 2)
    client = sim.client()
    client.receiver("q", 1)
    client.receiver("q", 1, deletes=True)
    client.run()
    stats = sim.gateway.stats.entity("ns", "q")
    assert stats.outgoing_messages == 2
    assert stats.outgoing_bytes > 0


def test_an_entity_is_idle_from_when_its_last_receiver_has_gone(sim: SimBus) -> None:
    sim.topic("t")
    described = SubscriptionDescription(topic="t", name="s", auto_delete_on_idle_ms=600_000)
    sim.wait(sim.namespace.management.create_subscription(described))
    client = sim.client()
    client.receiver("t/Subscriptions/s", 1)
    for _ in range(3):
        sim.clock.advance(500_000)
        sim.bus.delete_idle()
    client.close()
    sim.clock.advance(500_000)
    sim.bus.delete_idle()
    sim.loop.run_for(0)
    assert "s" in sim.namespace.entity("t").subscriptions
    sim.clock.advance(100_000)
    sim.bus.delete_idle()
    sim.loop.run_for(0)
    assert not sim.namespace.entity("t").subscriptions


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("name", ["q", "p"])
def test_a_release_before_the_credit_is_taken_back_in_one_write(sim: SimBus, name: str, settled: bool) -> None:
    """As the Python SDK closes a receiver: what it gives back must not come to the link that wants nothing any more."""
    fill(sim, name, 1)
    client = sim.client()
    receiver = client.receiver(name, 5)
    (held,) = client.deliveries()
    release = Disposition(True, held.id, None, settled, RELEASED)
    client.feed(frame(0, release) + frame(0, client.flow_frame(receiver, 0, delivery_count=1)))
    assert client.deliveries() == []
    assert all(answer.fields[4].descriptor == 0x26 for answer in client.frames("disposition"))
    assert counts(sim, name) == (1, 0)
    client.flow(receiver, 1, delivery_count=1)
    (again,) = client.deliveries()
    assert again.delivery_count == 0
