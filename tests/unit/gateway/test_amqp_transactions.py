"""Transactions over AMQP: D1 to D6, what a rollback leaves, and what spans several entities."""

from __future__ import annotations

from typing import Any

import pytest

from polybus import limits
from polybus.amqp.codec import encode
from polybus.amqp.outcomes import (
    ACCEPTED,
    AmqpError,
    Declare,
    DeliveryState,
    Discharge,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from polybus.amqp.types import Described, Symbol
from polybus.gateway.amqp.sent_messages import BATCH_FORMAT
from tests.unit.gateway.amqp_kit import KEYS, Client, Got, SimBus, rejection, text, value

VIA = Symbol("com.microsoft:transfer-destination-address")


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    sim.queue("p", enable_partitioning=True)
    sim.queue("ps", enable_partitioning=True, requires_session=True)
    sim.queue("s", requires_session=True)
    sim.queue("pd", enable_partitioning=True, requires_duplicate_detection=True)
    sim.queue("other")
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    client = sim.client()
    client.begun(9)
    return client


def control(client: Client) -> int:
    return client.coordinator(9)


def declare(client: Client, handle: int) -> bytes:
    return client.declare(handle, 9)


def discharge(client: Client, handle: int, txn_id: bytes, fail: bool = False) -> Described:
    return client.discharge(handle, txn_id, fail, 9)


def within(txn_id: bytes, outcome: DeliveryState | None = None) -> TransactionalState:
    return TransactionalState(txn_id, outcome)


def send(client: Client, sender: int, txn_id: bytes, payload: bytes, **options: Any) -> Described:
    return client.outcome(sender, payload, state=within(txn_id), **options)


def accepted(state: Described, txn_id: bytes) -> bool:
    return state.descriptor == 0x34 and state.value == [txn_id, Described(state.value[1].descriptor, [])]  # type: ignore[index]


def refused(state: Described) -> str:
    return rejection(state)[0]


def active(sim: SimBus, name: str) -> int:
    return sim.namespace.entity(name).counts().result().active


def got_from(client: Client, name: str, count: int = 1) -> list[Got]:
    client.receiver(name, count)
    got = client.deliveries()
    assert len(got) == count
    return got


class TestBeforeAToken:
    def test_a_transaction_may_be_declared_and_opens_nothing(self, sim: SimBus) -> None:
        client = Client(sim).sasl("MSSBCBS").opened()
        client.begun(9)
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.attach_sender("q")
        assert client.expect_refused()[0] == "amqp:unauthorized-access"
        assert client.put_token()[0] == 202
        assert accepted(send(client, client.sender("q"), txn_id, text("m")), txn_id)
        assert discharge(client, coordinator, txn_id).descriptor == 0x24
        assert active(sim, "q") == 1

    def test_without_one_in_time_the_connection_ends_and_its_transactions_with_it(self, sim: SimBus) -> None:
        client = Client(sim).sasl("ANONYMOUS").opened()
        client.begun(9)
        declare(client, control(client))
        client.run(limits.AMQP_TOKEN_MS / 1000 + 1)
        assert client.frames("close")


class TestSends:
    @pytest.mark.parametrize("name", ["q", "p"])
    def test_they_become_visible_all_together(self, sim: SimBus, client: Client, name: str) -> None:
        coordinator, sender = control(client), client.sender(name)
        txn_id = declare(client, coordinator)
        for n in range(3):
            assert accepted(send(client, sender, txn_id, text(str(n), partition_key="k")), txn_id)
        assert active(sim, name) == 0
        assert discharge(client, coordinator, txn_id).descriptor == 0x24
        assert [one.body for one in got_from(client, name, 3)] == [b"0", b"1", b"2"]

    @pytest.mark.parametrize("name", ["q", "p"])
    def test_a_rollback_leaves_nothing(self, sim: SimBus, client: Client, name: str) -> None:
        coordinator, sender = control(client), client.sender(name)
        txn_id = declare(client, coordinator)
        send(client, sender, txn_id, text("m", partition_key="k"))
        assert discharge(client, coordinator, txn_id, fail=True).descriptor == 0x24
        assert active(sim, name) == 0

    def test_a_batch_may_be_part_of_one(self, sim: SimBus, client: Client) -> None:
        coordinator, sender = control(client), client.sender("q")
        txn_id = declare(client, coordinator)
        payload = b"".join(b"\x00\x53\x75" + encode(text(str(n))) for n in range(3))
        assert accepted(send(client, sender, txn_id, payload, message_format=BATCH_FORMAT), txn_id)
        discharge(client, coordinator, txn_id)
        assert active(sim, "q") == 3

    def test_d1_a_message_without_a_key_is_refused_on_a_partitioned_entity(self, sim: SimBus, client: Client) -> None:
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        sender = client.sender("p")
        assert refused(send(client, sender, txn_id, text("m"))) == "amqp:not-allowed"
        assert refused(send(client, sender, txn_id, text("m", message_id="not a key here"))) == "amqp:not-allowed"
        assert accepted(send(client, client.sender("pd"), txn_id, text("m", message_id="a key here")), txn_id)
        assert discharge(client, coordinator, txn_id).descriptor == 0x24
        assert (active(sim, "p"), active(sim, "pd")) == (0, 1)

    def test_d1_a_plain_entity_needs_none(self, sim: SimBus, client: Client) -> None:
        coordinator, sender = control(client), client.sender("q")
        txn_id = declare(client, coordinator)
        for key in ({}, {"partition_key": "a"}, {"partition_key": "b"}):
            assert accepted(send(client, sender, txn_id, text("m", **key)), txn_id)
        discharge(client, coordinator, txn_id)
        assert active(sim, "q") == 3

    def test_d2_a_second_key_is_refused_and_the_first_still_commits(self, sim: SimBus, client: Client) -> None:
        coordinator, sender = control(client), client.sender("p")
        txn_id = declare(client, coordinator)
        assert accepted(send(client, sender, txn_id, text("m", partition_key="a")), txn_id)
        assert refused(send(client, sender, txn_id, text("m", partition_key="b"))) == "amqp:not-allowed"
        assert accepted(send(client, sender, txn_id, text("m", partition_key="a")), txn_id)
        discharge(client, coordinator, txn_id)
        assert active(sim, "p") == 2

    def test_who_does_not_read_refusals_cannot_commit_after_one(self, sim: SimBus) -> None:
        """The Java SDK; the work that was accepted is gone with the rest, settlements included."""
        client = Client(sim).sasl("PLAIN", b"\x00root\x00" + KEYS["root"].encode())
        client.opened(product="azure-messaging-servicebus").begun(9)
        coordinator, sender = control(client), client.sender("p")
        txn_id = declare(client, coordinator)
        assert accepted(send(client, sender, txn_id, text("m", partition_key="a")), txn_id)
        assert refused(send(client, sender, txn_id, text("m", partition_key="b"))) == "amqp:not-allowed"
        assert refused(discharge(client, coordinator, txn_id)) == "amqp:transaction:rollback"
        assert refused(discharge(client, coordinator, txn_id)) == "amqp:transaction:unknown-id"
        other = declare(client, coordinator)
        assert refused(send(client, sender, other, text("m"))) == "amqp:not-allowed"
        assert discharge(client, coordinator, other, fail=True).descriptor == 0x24
        assert active(sim, "p") == 0

    @pytest.mark.parametrize(
        ("fields", "fine"),
        [
            ({"session_id": "s"}, True),
            ({"session_id": "s", "partition_key": "s"}, True),
            ({"session_id": "s", "partition_key": "other"}, False),
            ({"partition_key": "s"}, False),
            ({}, False),
        ],
    )
    def test_d3_a_session_aware_partitioned_entity_wants_a_session_id(
        self, client: Client, fields: dict[str, str], fine: bool
    ) -> None:
        coordinator, sender = control(client), client.sender("ps")
        txn_id = declare(client, coordinator)
        state = send(client, sender, txn_id, text("m", **fields))
        assert accepted(state, txn_id) if fine else refused(state) == "amqp:not-allowed"

    def test_d4_different_sessions_are_for_plain_entities_only(self, sim: SimBus, client: Client) -> None:
        coordinator = control(client)
        for name, fine in (("s", True), ("ps", False)):
            sender = client.sender(name)
            txn_id = declare(client, coordinator)
            assert accepted(send(client, sender, txn_id, text("m", session_id="a")), txn_id)
            state = send(client, sender, txn_id, text("m", session_id="b"))
            assert accepted(state, txn_id) if fine else refused(state) == "amqp:not-allowed"
            discharge(client, coordinator, txn_id)
        assert (active(sim, "s"), active(sim, "ps")) == (2, 1)

    def test_a_hundred_messages_and_no_more(self, sim: SimBus, client: Client) -> None:
        coordinator, sender = control(client), client.sender("q")
        txn_id = declare(client, coordinator)
        for _ in range(100):
            assert accepted(send(client, sender, txn_id, text("m")), txn_id)
        condition, description = rejection(send(client, sender, txn_id, text("m")))
        assert condition == "amqp:resource-limit-exceeded"
        assert "more than 100 messages" in description
        discharge(client, coordinator, txn_id)
        assert active(sim, "q") == 100

    def test_one_entity_unless_the_session_has_a_coordinator(self, sim: SimBus, client: Client) -> None:
        coordinator = control(client)
        first, second = client.sender("q"), client.sender("other")
        txn_id = declare(client, coordinator)
        assert accepted(send(client, first, txn_id, text("m")), txn_id)
        condition, description = rejection(send(client, second, txn_id, text("m")))
        assert condition == "amqp:not-allowed"
        assert "different entity" in description
        discharge(client, coordinator, txn_id)
        assert (active(sim, "q"), active(sim, "other")) == (1, 0)


class TestSettlements:
    @pytest.mark.parametrize("name", ["q", "p"])
    @pytest.mark.parametrize(
        ("outcome", "where"),
        [
            (ACCEPTED, (0, 0, 0)),
            (Modified(), (1, 0, 0)),
            (Modified(undeliverable_here=True), (0, 1, 0)),
            (Rejected(AmqpError("x", None, {Symbol("DeadLetterReason"): "r"})), (0, 0, 1)),
        ],
    )
    def test_they_happen_at_the_commit(
        self, sim: SimBus, client: Client, name: str, outcome: DeliveryState, where: tuple[int, int, int]
    ) -> None:
        client.outcome(client.sender(name), text("m"))
        handle = client.receiver(name, 1)
        (got,) = client.deliveries()
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        answer = client.settle(got.id, within(txn_id, outcome))
        assert answer.descriptor == 0x34
        assert answer.value[0] == txn_id  # type: ignore[index]
        assert answer.value[1].descriptor == outcome.code()  # type: ignore[index]
        if outcome.code() == 0x25:
            assert answer.value[1].value == [None]  # type: ignore[index]
        assert sim.namespace.entity(name).counts().result().locked == 1
        client.detach(handle)
        discharge(client, coordinator, txn_id)
        counts = sim.namespace.entity(name).counts().result()
        assert (counts.active, counts.deferred, counts.dead_letter) == where

    def test_nobody_else_settles_meanwhile(self, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        management = client.management("q")
        reply = management.ask("update-disposition", {"lock-tokens": [got.token], "disposition-status": "completed"})
        assert (reply.status, reply.condition) == (400, "amqp:not-allowed")

    def test_a_rollback_keeps_the_lock_and_the_token(self, sim: SimBus, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        discharge(client, coordinator, txn_id, fail=True)
        assert sim.namespace.entity("q").counts().result().locked == 1
        management = client.management("q")
        reply = management.ask("update-disposition", {"lock-tokens": [got.token], "disposition-status": "completed"})
        assert reply.status == 200

    def test_after_a_rollback_a_delivery_can_be_decided_on_anew(self, sim: SimBus, client: Client) -> None:
        """Over its link, as .NET, Java and proton do; proton gives it back."""
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        for _ in range(3):
            txn_id = declare(client, coordinator)
            assert client.settle(got.id, within(txn_id, ACCEPTED)).descriptor == 0x34
            discharge(client, coordinator, txn_id, fail=True)
        client.dispose(got.id, Released(), settled=True)
        (again,) = got_from(client, "q")
        assert (again.number, again.delivery_count) == (got.number, 0)
        assert client.settle(again.id, ACCEPTED).descriptor == 0x24
        assert active(sim, "q") == 0

    def test_a_commit_settles_what_the_client_has_not(self, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        client.transfer(coordinator, value(Discharge(txn_id, False).described()), 9)
        (answer,) = [one for one in client.frames("disposition") if one.fields[0] is False]
        assert (answer.fields[1], answer.fields[3], answer.fields[4].descriptor) == (got.id, True, 0x34)

    def test_the_java_sdk_gets_it_back_at_once(self, sim: SimBus) -> None:
        """It takes a settlement in a transaction for the last word, whatever becomes of the transaction."""
        client = Client(sim).sasl("PLAIN", b"\x00root\x00" + KEYS["root"].encode())
        client.opened(product="azure-messaging-servicebus").begun(9)
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        discharge(client, coordinator, txn_id, fail=True)
        (again,) = got_from(client, "q")
        assert (again.number, again.delivery_count) == (got.number, 1)

    @pytest.mark.parametrize("settled_later", [False, True])
    def test_a_settled_delivery_is_available_at_once_after_a_rollback(
        self, client: Client, settled_later: bool
    ) -> None:
        """JMS settles before the transaction ends, and has forgotten the delivery then; its count is raised."""
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        if settled_later:
            client.settle(got.id, within(txn_id, ACCEPTED))
        client.dispose(got.id, within(txn_id, ACCEPTED), settled=True)
        discharge(client, coordinator, txn_id, fail=True)
        (again,) = got_from(client, "q")
        assert (again.number, again.delivery_count) == (got.number, 1)

    def test_a_lock_that_runs_out_before_the_commit_undoes_everything(self, sim: SimBus, client: Client) -> None:
        sender = client.sender("q")
        client.outcome(sender, text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        send(client, sender, txn_id, text("answer"))
        client.run(61)
        client.frames()
        assert refused(discharge(client, coordinator, txn_id)) == "com.microsoft:message-lock-lost"
        counts = sim.namespace.entity("q").counts().result()
        assert counts.active == 1, "the answer was not sent, the message is still there"

    def test_receive_and_send_on_one_partition_is_one_commit(self, sim: SimBus, client: Client) -> None:
        sender = client.sender("p")
        client.outcome(sender, text("request", partition_key="k"))
        (got,) = got_from(client, "p")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        assert accepted(send(client, sender, txn_id, text("answer", partition_key="k")), txn_id)
        discharge(client, coordinator, txn_id)
        assert [one.body for one in got_from(client, "p")] == [b"answer"]

    def test_messages_of_two_partitions_cannot_be_settled_together(self, client: Client) -> None:
        sender = client.sender("p")
        for n in range(2):
            client.outcome(sender, text(str(n)))
        first, second = got_from(client, "p", 2)
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        assert client.settle(first.id, within(txn_id, ACCEPTED)).descriptor == 0x34
        assert refused(client.settle(second.id, within(txn_id, ACCEPTED))) == "amqp:not-allowed"

    def test_a_settled_disposition_takes_part_without_an_answer(self, sim: SimBus, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.dispose(got.id, within(txn_id, ACCEPTED), settled=True)
        assert client.frames("disposition") == []
        discharge(client, coordinator, txn_id)
        assert active(sim, "q") == 0

    def test_a_release_is_no_work_for_a_transaction(self, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        assert refused(client.settle(got.id, within(txn_id, Released()))) == "amqp:not-allowed"


class TestTheirEnd:
    @pytest.mark.parametrize("how", ["detach", "end", "close", "lost"])
    def test_all_are_rolled_back_when_the_coordinator_goes(self, sim: SimBus, client: Client, how: str) -> None:
        sender = client.sender("q")
        client.outcome(sender, text("m"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        send(client, sender, txn_id, text("never"))
        if how == "lost":
            client.endpoint.lost()
        else:
            {
                "detach": lambda: client.detach(coordinator, 9),
                "end": lambda: client.end(9),
                "close": client.close,
            }[how]()
        other = sim.client()
        reply = other.management("q").ask(
            "update-disposition", {"lock-tokens": [got.token], "disposition-status": "completed"}
        )
        assert reply.status == 200
        assert active(sim, "q") == 0

    def test_two_minutes_are_all_it_has(self, sim: SimBus, client: Client) -> None:
        coordinator, sender = control(client), client.sender("q")
        txn_id = declare(client, coordinator)
        send(client, sender, txn_id, text("m"))
        sim.loop.run_for(limits.TRANSACTION_MS / 1000 + 1)
        assert refused(send(client, sender, txn_id, text("m"))).startswith("amqp:transaction:")
        assert refused(discharge(client, coordinator, txn_id)).startswith("amqp:transaction:")
        assert active(sim, "q") == 0

    def test_an_unknown_transaction(self, client: Client) -> None:
        coordinator, sender = control(client), client.sender("q")
        assert refused(send(client, sender, b"nonsense", text("m"))) == "amqp:transaction:unknown-id"
        assert refused(discharge(client, coordinator, b"nonsense")) == "amqp:transaction:unknown-id"
        txn_id = declare(client, coordinator)
        assert discharge(client, coordinator, txn_id).descriptor == 0x24
        assert refused(discharge(client, coordinator, txn_id)) == "amqp:transaction:unknown-id"

    def test_a_transaction_of_another_client_is_unknown(self, sim: SimBus, client: Client) -> None:
        txn_id = declare(client, control(client))
        other = sim.client()
        assert refused(send(other, other.sender("q"), txn_id, text("m"))) == "amqp:transaction:unknown-id"
        assert refused(other.discharge(other.coordinator(), txn_id)) == "amqp:transaction:unknown-id"

    def test_an_empty_one_commits(self, client: Client) -> None:
        coordinator = control(client)
        assert discharge(client, coordinator, declare(client, coordinator)).descriptor == 0x24

    @pytest.mark.parametrize("payload", [value(None), value("x"), b"garbage", value(Described(Symbol("x"), []))])
    def test_a_coordinator_understands_nothing_else(self, client: Client, payload: bytes) -> None:
        coordinator = control(client)
        state = client.outcome(coordinator, payload, 9)
        assert state.descriptor == 0x25

    def test_a_client_may_not_have_too_many(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("polybus.gateway.amqp.transactions.AMQP_TRANSACTIONS_PER_CONNECTION", 3)
        coordinator = control(client)
        ids = [declare(client, coordinator) for _ in range(3)]
        state = client.outcome(coordinator, value(Declare().described()), 9)
        assert refused(state) == "amqp:resource-limit-exceeded"
        discharge(client, coordinator, ids[0])
        declare(client, coordinator)


class TestSeveralEntities:
    """One session with a coordinator of its own, as .NET's and Java's cross-entity transactions have it."""

    @pytest.mark.parametrize("via", ["q", "p"])
    def test_receive_from_one_and_send_to_others(self, sim: SimBus, client: Client, via: str) -> None:
        coordinator = client.coordinator()
        receiver = client.receiver(via)
        first, second = client.sender("other"), client.sender("pd")
        feeder = sim.client()
        feeder.outcome(feeder.sender(via), text("request", partition_key="k"))
        client.flow(receiver, 1)
        (got,) = client.deliveries()
        txn_id = client.declare(coordinator)
        assert client.settle(got.id, within(txn_id, ACCEPTED)).descriptor == 0x34
        assert accepted(send(client, first, txn_id, text("one")), txn_id)
        assert accepted(send(client, second, txn_id, text("two", partition_key="x")), txn_id)
        assert (active(sim, "other"), active(sim, "pd")) == (0, 0)
        assert client.discharge(coordinator, txn_id).descriptor == 0x24
        client.run(1)
        assert active(sim, via) == 0
        assert (active(sim, "other"), active(sim, "pd")) == (1, 1)

    def test_a_rollback_sends_nothing_anywhere(self, sim: SimBus, client: Client) -> None:
        coordinator = client.coordinator()
        first, second = client.sender("q"), client.sender("other")
        txn_id = client.declare(coordinator)
        send(client, first, txn_id, text("one"))
        send(client, second, txn_id, text("two"))
        client.discharge(coordinator, txn_id, fail=True)
        client.run(1)
        assert (active(sim, "q"), active(sim, "other")) == (0, 0)

    def test_the_first_entity_of_the_session_carries_the_others(self, sim: SimBus, client: Client) -> None:
        coordinator = client.coordinator()
        client.sender("q")
        second = client.sender("other")
        txn_id = client.declare(coordinator)
        assert accepted(send(client, second, txn_id, text("m")), txn_id)
        client.discharge(coordinator, txn_id)
        client.run(1)
        assert active(sim, "other") == 1
        (got,) = got_from(client, "other")
        assert got.body == b"m"

    def test_a_settlement_elsewhere_is_refused(self, sim: SimBus, client: Client) -> None:
        feeder = sim.client()
        for name in ("q", "other"):
            feeder.outcome(feeder.sender(name), text("m"))
        coordinator = client.coordinator()
        (first,), (second,) = got_from(client, "q"), got_from(client, "other")
        txn_id = client.declare(coordinator)
        assert client.settle(first.id, within(txn_id, ACCEPTED)).descriptor == 0x34
        assert refused(client.settle(second.id, within(txn_id, ACCEPTED))) == "amqp:not-allowed"

    def test_a_subscriptions_topic_is_the_one_that_carries(self, sim: SimBus, client: Client) -> None:
        sim.topic("t", "sub")
        feeder = sim.client()
        feeder.outcome(feeder.sender("t"), text("m"))
        coordinator = client.coordinator()
        (got,) = got_from(client, "t/Subscriptions/sub")
        sender = client.sender("other")
        txn_id = client.declare(coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        assert accepted(send(client, sender, txn_id, text("answer")), txn_id)
        assert client.discharge(coordinator, txn_id).descriptor == 0x24
        client.run(1)
        assert active(sim, "other") == 1


class TestSendVia:
    """The older way: a link's own property names where its messages finally go."""

    def test_the_property_is_echoed_and_the_message_arrives(self, sim: SimBus, client: Client) -> None:
        client.attach_sender("q", properties={VIA: "other"})
        attached = client.expect_attached()
        assert attached.fields[13][VIA] == "other"
        sender = attached.fields[1]
        assert client.outcome(sender, text("m")).descriptor == 0x24
        client.run(1)
        assert (active(sim, "q"), active(sim, "other")) == (0, 1)

    def test_with_a_settlement_in_one_transaction(self, sim: SimBus, client: Client) -> None:
        client.outcome(client.sender("q"), text("request"))
        (got,) = got_from(client, "q")
        coordinator = control(client)
        sender = client.sender("q", properties={VIA: "sb://h/other"})
        txn_id = declare(client, coordinator)
        client.settle(got.id, within(txn_id, ACCEPTED))
        assert accepted(send(client, sender, txn_id, text("answer")), txn_id)
        assert discharge(client, coordinator, txn_id).descriptor == 0x24
        client.run(1)
        assert (active(sim, "q"), active(sim, "other")) == (0, 1)

    @pytest.mark.parametrize(
        ("destination", "condition"),
        [
            ("nowhere", "amqp:not-found"),
            ("q/$DeadLetterQueue", "amqp:not-allowed"),
            (5, "com.microsoft:argument-error"),
        ],
    )
    def test_destinations_that_cannot_be(self, client: Client, destination: Any, condition: str) -> None:
        client.attach_sender("q", properties={VIA: destination})
        assert client.expect_refused()[0] == condition

    def test_both_entities_need_the_right(self, sim: SimBus) -> None:
        client = Client(sim).sasl("ANONYMOUS").opened()
        client.put_token("sb://h/q")
        client.attach_sender("q", properties={VIA: "other"})
        assert client.expect_refused()[0] == "amqp:unauthorized-access"

    def test_a_partitioned_via_entity_is_chosen_by_its_own_key(self, sim: SimBus, client: Client) -> None:
        annotations = {Symbol("x-opt-via-partition-key"): "v"}
        payload = b"\x00\x53\x72" + encode(annotations) + text("m")
        sender = client.sender("p", properties={VIA: "other"})
        assert client.outcome(sender, payload).descriptor == 0x24
        client.run(1)
        assert active(sim, "other") == 1


class TestManagement:
    def test_a_schedule_inside_a_transaction(self, sim: SimBus, client: Client) -> None:
        coordinator, management = control(client), client.management("q")
        later = sim.clock.now().wall_ms + 5_000
        for fail, expected in ((True, 0), (False, 1)):
            txn_id = declare(client, coordinator)
            items = [{"message": text("m", scheduled_ms=later)}]
            reply = management.ask("schedule-message", {"messages": items}, state=within(txn_id))
            assert reply.status == 200
            (number,) = reply.body["sequence-numbers"].items
            discharge(client, coordinator, txn_id, fail)
            assert sim.namespace.entity("q").counts().result().scheduled == expected
            cancelled = management.ask("cancel-scheduled-message", {"sequence-numbers": [number]})
            assert cancelled.status == (404 if fail else 200)

    def test_a_settlement_by_token_inside_a_transaction(self, sim: SimBus, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        coordinator, management = control(client), client.management("q")
        body = {"lock-tokens": [got.token], "disposition-status": "completed"}
        for fail, expected in ((True, 1), (False, 0)):
            txn_id = declare(client, coordinator)
            assert management.ask("update-disposition", body, state=within(txn_id)).status == 200
            discharge(client, coordinator, txn_id, fail)
            assert sim.namespace.entity("q").counts().result().active == expected

    def test_an_unknown_transaction(self, client: Client) -> None:
        client.outcome(client.sender("q"), text("m"))
        (got,) = got_from(client, "q")
        body = {"lock-tokens": [got.token], "disposition-status": "completed"}
        reply = client.management("q").ask("update-disposition", body, state=within(b"nonsense"))
        assert (reply.status, reply.condition) == (400, "amqp:transaction:unknown-id")

    @pytest.mark.parametrize("partitioned", [False, True])
    def test_d6_rules_inside_a_transaction_are_for_plain_topics_only(
        self, sim: SimBus, client: Client, partitioned: bool
    ) -> None:
        topic = sim.topic("t", "sub", enable_partitioning=partitioned)
        rules = topic.subscription("sub").rules
        coordinator, management = control(client), client.management("t/Subscriptions/sub")
        add = {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "1=1"}}}
        for fail in (True, False):
            txn_id = declare(client, coordinator)
            added = management.ask("add-rule", add, state=within(txn_id))
            removed = management.ask("remove-rule", {"rule-name": "$Default"}, state=within(txn_id))
            if partitioned:
                assert {added.condition, removed.condition} == {"amqp:not-allowed"}
                assert discharge(client, coordinator, txn_id, fail).descriptor == 0x24
                assert set(rules) == {"$default"}
                continue
            assert (added.status, removed.status) == (200, 200)
            assert set(rules) == {"$default"}, "nothing happens before the commit"
            assert discharge(client, coordinator, txn_id, fail).descriptor == 0x24
            assert set(rules) == ({"$default"} if fail else {"r"})
