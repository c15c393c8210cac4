"""Management of messages over AMQP, on plain and partitioned entities, topics and dead-letter queues."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from polybus import limits
from polybus.amqp.codec import encode
from polybus.amqp.outcomes import ACCEPTED, Modified, Rejected
from polybus.amqp.types import AmqpArray, Int, Symbol, Timestamp, UInt
from polybus.errors import StoreError
from polybus.message.message import Message
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.tiers import PREMIUM
from polybus.promise import Promise
from tests.unit.gateway.amqp_kit import Client, Got, ManagementPair, Reply, SimBus, gather, message, text, value

SESSION = Symbol("com.microsoft:session-filter")


@pytest.fixture(params=["q", "p"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sim(name: str) -> SimBus:
    sim = SimBus()
    sim.queue(name, enable_partitioning=name == "p")
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


@pytest.fixture
def management(client: Client, name: str) -> ManagementPair:
    return client.management(name)


def send(client: Client, name: str, *bodies: str, **fields: Any) -> None:
    sender = client.sender(name)
    for body in bodies:
        assert client.outcome(sender, text(body, **fields)).descriptor == 0x24


def send_to_sessions(client: Client, bodies: dict[str, list[str]]) -> None:
    for session_id, own in bodies.items():
        send(client, "s", *own, session_id=session_id)


def peeked(reply: Reply) -> list[Message]:
    assert isinstance(reply.body["messages"], list)
    return [Message(one["message"]) for one in reply.body["messages"]]


def states(messages: list[Message]) -> list[object]:
    return [one.annotations()["x-opt-message-state"] for one in messages]


def numbers(messages: list[Message]) -> list[Any]:
    return [one.annotations()["x-opt-sequence-number"] for one in messages]


def deferred(client: Client, name: str, count: int = 1, **fields: Any) -> list[Got]:
    send(client, name, *[str(n) for n in range(count)], **fields)
    handle = client.receiver(name, count)
    got = client.deliveries()
    for one in got:
        client.settle(one.id, Modified(undeliverable_here=True))
    client.detach(handle)
    client.frames()
    return got


class TestEnvelope:
    def test_types_of_a_success(self, management: ManagementPair) -> None:
        reply = management.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})
        assert b"statusCode\x71\x00\x00\x00\xcc" in reply.message.raw, "an int of 204"
        assert "errorCondition" not in reply.application
        assert reply.body == {}
        assert reply.message.properties()[2] == management.path

    def test_types_of_a_failure(self, management: ManagementPair) -> None:
        reply = management.ask("cancel-scheduled-message", {"sequence-numbers": [7]})
        assert (reply.status, reply.condition) == (404, "com.microsoft:message-not-found")
        assert b"\xa3\x1fcom.microsoft:message-not-found" in reply.message.raw, "the condition is a symbol"
        assert reply.body == {}

    @pytest.mark.parametrize("message_id", [UUID(int=1), "text", 7, b"bytes"])
    def test_the_id_comes_back_with_its_type(
        self, client: Client, management: ManagementPair, message_id: Any
    ) -> None:
        payload = message({"operation": "com.microsoft:x"}, {}, message_id, management.path)
        client.transfer(management.requests, payload)
        (got,) = client.deliveries()
        correlation = got.message.properties()[5]
        assert correlation == message_id
        assert type(correlation) is type(message_id)

    def test_an_unknown_operation(self, management: ManagementPair) -> None:
        reply = management.ask("no-such-thing", {})
        assert (reply.status, reply.condition) == (501, "amqp:not-implemented")

    def test_the_tracking_id_is_echoed(self, management: ManagementPair) -> None:
        reply = management.ask("x", {}, **{"com.microsoft:tracking-id": "track me"})  # type: ignore[arg-type]
        assert reply.application["com.microsoft:tracking-id"] == "track me"

    def test_a_body_that_is_no_map(self, management: ManagementPair) -> None:
        reply = management.ask("peek-message", "text")
        assert (reply.status, reply.condition) == (400, "com.microsoft:argument-error")

    @pytest.mark.parametrize(
        ("operation", "body"),
        [
            ("peek-message", {"message-count": "five"}),
            ("peek-message", {"message-count": 0}),
            ("peek-message", {"from-sequence-number": "one", "message-count": 1}),
            ("receive-by-sequence-number", {}),
            ("receive-by-sequence-number", {"sequence-numbers": []}),
            ("receive-by-sequence-number", {"sequence-numbers": ["x"]}),
            ("receive-by-sequence-number", {"sequence-numbers": [True]}),
            ("renew-lock", {"lock-tokens": ["x"]}),
            ("renew-lock", {"lock-tokens": None}),
            ("update-disposition", {"lock-tokens": [UUID(int=1)]}),
            ("schedule-message", {"messages": [{"message": "text"}]}),
            ("schedule-message", {"messages": ["text"]}),
            ("cancel-scheduled-message", {"sequence-numbers": 5}),
            ("batch-delete-messages", {"message-count": 0}),
            ("batch-delete-messages", {"message-count": 501}),
            ("renew-lock", {"lock-tokens": [UUID(int=1)] * (limits.AMQP_LOCKS_PER_REQUEST + 1)}),
        ],
    )
    def test_arguments_that_cannot_be(self, management: ManagementPair, operation: str, body: Any) -> None:
        reply = management.ask(operation, body)
        assert reply.status == 400
        assert reply.condition in ("com.microsoft:argument-error", "com.microsoft:argument-out-of-range")

    def test_a_request_that_is_no_message_is_rejected(self, client: Client, management: ManagementPair) -> None:
        for payload in (b"garbage", value({}), message({}, {})):
            state = client.outcome(management.requests, payload)
            assert state.descriptor == 0x25
            assert len(state.value[0].value) == 3  # type: ignore[index]

    def test_a_slow_store_is_answered_in_time(
        self, sim: SimBus, client: Client, management: ManagementPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stuck: Promise[list[Any]] = Promise()

        async def never(*args: Any) -> list[Any]:
            return await stuck

        monkeypatch.setattr(entity_verbs, "peek", never)
        application = {"operation": "com.microsoft:peek-message", "com.microsoft:server-timeout": UInt(5000)}
        client.transfer(management.requests, message(application, {"message-count": 1}, "1"))
        client.run(4)
        assert client.deliveries() == []
        client.run(2)
        (got,) = client.deliveries()
        answer = got.message.application_properties()
        assert (answer["statusCode"], answer["errorCondition"]) == (408, "com.microsoft:timeout")
        stuck.resolve([])
        client.run()
        assert client.deliveries() == [], "a request is answered once"

    def test_no_more_than_so_many_requests_wait(
        self, client: Client, management: ManagementPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stuck: Promise[list[Any]] = Promise()

        async def never(*args: Any) -> list[Any]:
            return await stuck

        monkeypatch.setattr(entity_verbs, "peek", never)
        payload = message({"operation": "com.microsoft:peek-message"}, {"message-count": 1}, "1")
        for _ in range(limits.AMQP_REQUESTS_UNDER_WAY):
            client.transfer(management.requests, payload)
        assert client.deliveries() == []
        client.transfer(management.requests, payload)
        (got,) = client.deliveries()
        assert got.message.application_properties()["errorCondition"] == "com.microsoft:server-busy"
        stuck.resolve([])
        assert len(client.deliveries()) == limits.AMQP_REQUESTS_UNDER_WAY

    def test_a_bug_is_answered_and_not_told(
        self, client: Client, management: ManagementPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(entity_verbs, "peek", lambda *args: 1 / 0)
        reply = management.ask("peek-message", {"message-count": 1})
        assert (reply.status, reply.condition) == (500, "amqp:internal-error")
        assert "division" not in str(reply.application["statusDescription"])

    @pytest.mark.parametrize(
        ("key", "operation", "allowed"),
        [
            ("listener", "peek-message", True),
            ("listener", "schedule-message", False),
            ("listener", "cancel-scheduled-message", False),
            ("sender", "peek-message", False),
            ("sender", "renew-lock", False),
            ("sender", "update-disposition", False),
            ("sender", "receive-by-sequence-number", False),
            ("sender", "batch-delete-messages", False),
            ("sender", "get-message-sessions", False),
            ("sender", "add-rule", False),
        ],
    )
    def test_rights_are_asked_for_each_operation(
        self, sim: SimBus, name: str, key: str, operation: str, allowed: bool
    ) -> None:
        reply = sim.client(key).management(name).ask(operation, {"message-count": 1})
        assert (reply.status == 401) is not allowed
        if not allowed:
            assert reply.condition == "amqp:unauthorized-access"


class TestPeek:
    def test_all_states_and_nothing_is_locked(self, sim: SimBus, client: Client, name: str) -> None:
        fields = {"partition_key": "k"} if name == "p" else {}
        deferred(client, name, 1, **fields)
        send(client, name, "active", "locked", **fields)
        later = sim.clock.now().wall_ms + 60_000
        send(client, name, "scheduled", scheduled_ms=later, **fields)
        client.receiver(name, 1)
        client.deliveries()
        management = client.management(name)
        for _ in range(2):
            reply = management.ask("peek-message", {"from-sequence-number": 0, "message-count": 10})
            assert reply.status == 200
            messages = peeked(reply)
            assert states(messages) == [1, 0, 0, 2]
            assert numbers(messages) == sorted(numbers(messages))
            assert all("x-opt-locked-until" not in one.annotations() for one in messages)

    def test_a_cursor_reaches_every_message(self, client: Client, name: str, management: ManagementPair) -> None:
        send(client, name, *[str(n) for n in range(37)])
        seen: list[int] = []
        position = 0
        while True:
            reply = management.ask("peek-message", {"from-sequence-number": position, "message-count": Int(10)})
            if reply.status == 204:
                break
            found = numbers(peeked(reply))
            assert len(found) <= 10
            seen += found
            position = seen[-1] + 1
        assert len(seen) == 37
        assert seen == sorted(set(seen))

    def test_a_reply_is_bounded_in_bytes(self, client: Client, name: str, management: ManagementPair) -> None:
        send(client, name, *["x" * 100_000] * 6, partition_key="same")
        reply = management.ask("peek-message", {"from-sequence-number": 0, "message-count": 6})
        assert 1 <= len(peeked(reply)) <= 3

    def test_a_count_without_bounds_is_harmless(self, client: Client, name: str, management: ManagementPair) -> None:
        send(client, name, "m")
        reply = management.ask("peek-message", {"from-sequence-number": -5, "message-count": 2**31 - 1})
        assert len(peeked(reply)) == 1

    def test_bodies_can_be_left_out(self, client: Client, name: str, management: ManagementPair) -> None:
        send(client, name, "x" * 1000, message_id="kept")
        asked = {"from-sequence-number": 0, "message-count": 1, "omit-message-body": True}
        (found,) = peeked(management.ask("peek-message", asked))
        assert found.body() == [(0x75, b"")]
        assert found.message_id == "kept"

    def test_dead_letters_too(self, client: Client, name: str) -> None:
        send(client, name, "m")
        client.receiver(name, 1)
        (got,) = client.deliveries()
        client.settle(got.id, Rejected())
        reply = client.management(f"{name}/$DeadLetterQueue").ask(
            "peek-message", {"from-sequence-number": 0, "message-count": 1}
        )
        (found,) = peeked(reply)
        assert numbers([found]) == [got.number]

    def test_a_store_that_is_down_hides_its_messages_only(self, sim: SimBus, client: Client, name: str) -> None:
        send(client, name, *[str(n) for n in range(16)])
        management = client.management(name)
        sim.bus.stores[1].fence(StoreError("gone"), None)
        reply = management.ask("peek-message", {"from-sequence-number": 0, "message-count": 100})
        partitions = sim.namespace.entity(name).partitions
        reachable = [one for one in partitions if one.store is not sim.bus.stores[1]]
        if reachable:
            assert len(peeked(reply)) == 16 * len(reachable) // len(partitions)
        else:
            assert reply.status == 503  # an empty answer would say that there are no more messages (C5)


class TestDeferred:
    def test_they_come_with_their_token_in_both_places(self, client: Client, name: str) -> None:
        (got,) = deferred(client, name)
        management = client.management(name)
        asked = {"sequence-numbers": AmqpArray(0x81, [got.number]), "receiver-settle-mode": UInt(1)}
        reply = management.ask("receive-by-sequence-number", asked)
        assert reply.status == 200
        (found,) = reply.body["messages"]
        token = found["lock-token"]
        assert isinstance(token, UUID)
        annotation = b"x-opt-lock-token\x98" + token.bytes
        assert annotation in found["message"]
        received = Message(found["message"])
        assert states([received]) == [1]
        assert received.annotations()["x-opt-locked-until"]
        reply = management.ask(
            "update-disposition", {"disposition-status": "completed", "lock-tokens": AmqpArray(0x98, [token])}
        )
        assert reply.status == 200
        assert management.ask("receive-by-sequence-number", asked).status == 404

    def test_they_can_be_removed_at_once(self, sim: SimBus, client: Client, name: str) -> None:
        (got,) = deferred(client, name)
        management = client.management(name)
        asked = {"sequence-numbers": [got.number], "receiver-settle-mode": 0}
        (found,) = management.ask("receive-by-sequence-number", asked).body["messages"]
        assert "lock-token" not in found
        assert sim.namespace.entity(name).counts().result().total == 0

    def test_an_abandoned_one_stays_deferred(self, client: Client, name: str) -> None:
        (got,) = deferred(client, name)
        management = client.management(name)
        asked = {"sequence-numbers": [got.number], "receiver-settle-mode": 1}
        for count in (0, 1):
            (found,) = management.ask("receive-by-sequence-number", asked).body["messages"]
            received = Message(found["message"])
            assert Got.delivery_count.fget(_as_got(received)) == count  # type: ignore[attr-defined]
            body = {"disposition-status": "abandoned", "lock-tokens": [found["lock-token"]]}
            assert management.ask("update-disposition", body).status == 200

    def test_one_that_is_missing_leaves_the_others_alone(self, client: Client, name: str) -> None:
        (got,) = deferred(client, name)
        management = client.management(name)
        asked = {"sequence-numbers": [got.number, got.number + 50], "receiver-settle-mode": 1}
        reply = management.ask("receive-by-sequence-number", asked)
        assert (reply.status, reply.condition) == (404, "com.microsoft:message-not-found")
        asked["sequence-numbers"] = [got.number]
        assert management.ask("receive-by-sequence-number", asked).status == 200

    def test_one_that_is_locked_is_not_found(self, client: Client, name: str) -> None:
        (got,) = deferred(client, name)
        management = client.management(name)
        asked = {"sequence-numbers": [got.number], "receiver-settle-mode": 1}
        assert management.ask("receive-by-sequence-number", asked).status == 200
        reply = management.ask("receive-by-sequence-number", asked)
        assert (reply.status, reply.condition) == (404, "com.microsoft:message-not-found")

    def test_an_active_one_is_not_found(self, client: Client, name: str) -> None:
        send(client, name, "m")
        management = client.management(name)
        (active,) = peeked(management.ask("peek-message", {"message-count": 1}))
        reply = management.ask("receive-by-sequence-number", {"sequence-numbers": numbers([active])})
        assert (reply.status, reply.condition) == (404, "com.microsoft:message-not-found")

    def test_one_request_stays_inside_one_partition(self, client: Client, name: str) -> None:
        got = deferred(client, name, 2)
        reply = client.management(name).ask(
            "receive-by-sequence-number", {"sequence-numbers": [one.number for one in got]}
        )
        assert reply.status == (400 if name == "p" else 200)


def _as_got(received: Message) -> Any:
    class Holder:
        message = received

    return Holder()


class TestLocks:
    def test_a_lock_is_renewed_from_now(self, sim: SimBus, client: Client, name: str) -> None:
        send(client, name, "m")
        client.receiver(name, 1)
        (got,) = client.deliveries()
        management = client.management(name)
        client.run(50)
        reply = management.ask("renew-lock", {"lock-tokens": AmqpArray(0x98, [got.token])})
        expirations = reply.body["expirations"]
        assert isinstance(expirations, AmqpArray)
        assert expirations.constructor == 0x83
        assert expirations.items == [sim.clock.now().wall_ms + 60_000]
        client.run(50)
        assert client.settle(got.id, ACCEPTED).descriptor == 0x24

    @pytest.mark.parametrize("operation", ["renew-lock", "update-disposition"])
    def test_an_unknown_token_is_lost(self, sim: SimBus, client: Client, name: str, operation: str) -> None:
        send(client, name, "m")
        client.receiver(name, 1)
        (got,) = client.deliveries()
        management = client.management(name)
        sim.queue("other")
        for token in (UUID(int=0), UUID(int=2**128 - 1), UUID(bytes=got.token.bytes[:15] + b"\xff")):
            body = {"lock-tokens": [got.token, token], "disposition-status": "completed"}
            reply = management.ask(operation, body)
            assert (reply.status, reply.condition) == (410, "com.microsoft:message-lock-lost")
        reply = client.management("other").ask(
            operation, {"lock-tokens": [got.token], "disposition-status": "completed"}
        )
        assert reply.condition == "com.microsoft:message-lock-lost"
        assert sim.namespace.entity(name).counts().result().locked == 1, "all or nothing"

    def test_a_lock_that_ran_out_is_lost(self, client: Client, name: str) -> None:
        send(client, name, "m")
        client.receiver(name, 1)
        (got,) = client.deliveries()
        management = client.management(name)
        client.run(61)
        client.frames()
        reply = management.ask("renew-lock", {"lock-tokens": [got.token]})
        assert (reply.status, reply.condition) == (410, "com.microsoft:message-lock-lost")


class TestUpdateDisposition:
    @pytest.mark.parametrize(
        ("status", "where"),
        [
            ("completed", (0, 0, 0)),
            ("abandoned", (1, 0, 0)),
            ("defered", (0, 1, 0)),
            ("deferred", (0, 1, 0)),
            ("suspended", (0, 0, 1)),
            ("unlocked", (1, 0, 0)),
        ],
    )
    def test_every_status(
        self, sim: SimBus, client: Client, name: str, status: str, where: tuple[int, int, int]
    ) -> None:
        send(client, name, "m")
        handle = client.receiver(name, 1)
        (got,) = client.deliveries()
        client.detach(handle)
        client.frames()
        body = {"lock-tokens": AmqpArray(0x98, [got.token]), "disposition-status": status}
        assert client.management(name).ask("update-disposition", body).status == 200
        counts = sim.namespace.entity(name).counts().result()
        assert (counts.active, counts.deferred, counts.dead_letter) == where
        assert counts.locked == 0

    def test_reasons_and_properties(self, client: Client, name: str) -> None:
        send(client, name, "m")
        client.receiver(name, 1)
        (got,) = client.deliveries()
        body = {
            "lock-tokens": [got.token],
            "disposition-status": "suspended",
            "deadletter-reason": "why",
            "deadletter-description": "",
            "properties-to-modify": {"p": 5},
        }
        assert client.management(name).ask("update-disposition", body).status == 200
        client.receiver(f"{name}/$DeadLetterQueue", 1)
        (dead,) = client.deliveries()
        assert dead.message.application_properties() == {"DeadLetterReason": "why", "p": 5}

    def test_an_unknown_status(self, client: Client, name: str) -> None:
        send(client, name, "m")
        client.receiver(name, 1)
        (got,) = client.deliveries()
        body = {"lock-tokens": [got.token], "disposition-status": "forgotten"}
        reply = client.management(name).ask("update-disposition", body)
        assert (reply.status, reply.condition) == (400, "com.microsoft:argument-error")


class TestSchedule:
    def test_messages_get_numbers_and_come_in_time(
        self, sim: SimBus, client: Client, name: str, management: ManagementPair
    ) -> None:
        later = sim.clock.now().wall_ms + 5_000
        items = [
            {"message-id": str(n), "message": text(f"m{n}", message_id=str(n), scheduled_ms=later)} for n in range(3)
        ]
        reply = management.ask("schedule-message", {"messages": items})
        found = reply.body["sequence-numbers"]
        assert isinstance(found, AmqpArray)
        assert found.constructor == 0x81
        assert len(set(found.items)) == 3
        client.receiver(name, 10)
        client.run(4)
        assert client.deliveries() == []
        client.run(2)
        got = client.deliveries()
        assert [one.body for one in got] == [b"m0", b"m1", b"m2"]
        assert [one.annotations["x-opt-enqueue-sequence-number"] for one in got] == found.items
        assert not {one.number for one in got} & set(found.items), "activation gives a new number"

    def test_a_scheduled_message_can_be_cancelled_once(
        self, sim: SimBus, client: Client, name: str, management: ManagementPair
    ) -> None:
        later = sim.clock.now().wall_ms + 5_000
        reply = management.ask("schedule-message", {"messages": [{"message": text("m", scheduled_ms=later)}]})
        asked = {"sequence-numbers": reply.body["sequence-numbers"]}
        assert management.ask("cancel-scheduled-message", asked).status == 200
        reply = management.ask("cancel-scheduled-message", asked)
        assert (reply.status, reply.condition) == (404, "com.microsoft:message-not-found")
        client.receiver(name, 1)
        client.run(10)
        assert client.deliveries() == []

    def test_a_time_in_the_past_means_now(
        self, sim: SimBus, client: Client, name: str, management: ManagementPair
    ) -> None:
        past = sim.clock.now().wall_ms - 5_000
        reply = management.ask("schedule-message", {"messages": [{"message": text("m", scheduled_ms=past)}]})
        assert reply.status == 200
        client.receiver(name, 1)
        assert len(client.deliveries()) == 1

    def test_a_bad_message_is_refused(self, management: ManagementPair) -> None:
        reply = management.ask("schedule-message", {"messages": [{"message": b"garbage"}]})
        assert (reply.status, reply.condition) == (400, "amqp:decode-error")

    def test_a_message_that_is_too_large(self, sim: SimBus, management: ManagementPair) -> None:
        payload = text("x" * 300_000, scheduled_ms=sim.clock.now().wall_ms + 5_000)
        reply = management.ask("schedule-message", {"messages": [{"message": payload}]})
        assert (reply.status, reply.condition) == (403, "amqp:link:message-size-exceeded")


class TestBatchDelete:
    def test_it_deletes_what_is_old_and_free(self, sim: SimBus, client: Client, name: str) -> None:
        send(client, name, "locked", "old", "old")
        client.receiver(name, 1)
        client.deliveries()
        client.run(10)
        before = sim.clock.now().wall_ms
        client.run(1)
        send(client, name, "new")
        management = client.management(name)
        reply = management.ask(
            "batch-delete-messages", {"message-count": 100, "enqueued-time-utc": Timestamp(before)}
        )
        assert reply.status == 200
        assert reply.body == {"message-count": 2}
        assert b"message-count\x54\x02" in reply.message.raw
        counts = sim.namespace.entity(name).counts().result()
        assert (counts.active, counts.locked) == (2, 1)
        again = management.ask("batch-delete-messages", {"message-count": 1, "enqueued-time-utc": Timestamp(before)})
        assert again.status == 204

    def test_of_a_session_by_its_holder(self) -> None:
        sim = SimBus()
        sim.queue("s", requires_session=True)
        client, other = sim.client(), sim.client()
        send_to_sessions(client, {"a": ["locked", "old", "old"], "b": ["kept"]})
        client.receiver("s", 1, filter={SESSION: "a"})
        client.deliveries()
        client.run(10)
        before = sim.clock.now().wall_ms
        client.run(1)
        send_to_sessions(client, {"a": ["new"]})
        body = {"message-count": 100, "enqueued-time-utc": Timestamp(before), "session-id": "a"}
        refused = other.management("s").ask("batch-delete-messages", body)
        assert (refused.status, refused.condition) == (410, "com.microsoft:session-lock-lost")
        management = client.management("s")
        assert management.ask("batch-delete-messages", body).body == {"message-count": 2}
        assert management.ask("batch-delete-messages", body).status == 204
        counts = sim.namespace.entity("s").counts().result()
        assert (counts.active, counts.locked) == (3, 1)

    @pytest.mark.parametrize("count", [1, 3, 150, 500])
    def test_of_all_sessions_that_nobody_holds(self, count: int) -> None:
        sim = SimBus()
        sim.queue("s", requires_session=True)
        client = sim.client()
        send_to_sessions(client, {"held": ["kept", "kept"], **{f"free-{n}": ["x", "y"] for n in range(100)}})
        client.receiver("s", 0, filter={SESSION: "held"})
        client.run(1)
        management = client.management("s")
        body = {"message-count": count}
        gone = min(count, 200)
        assert management.ask("batch-delete-messages", body).body == {"message-count": gone}
        assert sim.namespace.entity("s").counts().result().active == 202 - gone
        asked = {"from-sequence-number": 1, "message-count": 5, "session-id": "held"}
        assert len(peeked(management.ask("peek-message", asked))) == 2

    def test_what_was_deleted_is_not_received(self) -> None:
        sim = SimBus()
        sim.queue("s", requires_session=True)
        client = sim.client()
        send_to_sessions(client, {"a": ["1", "2"]})
        client.run(1)
        assert client.management("s").ask("batch-delete-messages", {"message-count": 1}).body == {"message-count": 1}
        client.receiver("s", 5, filter={SESSION: "a"})
        assert [got.body for got in client.deliveries()] == [b"2"]
        assert client.management("s").ask("batch-delete-messages", {"message-count": 5}).status == 204

    def test_the_dead_letters_of_sessions_have_none(self) -> None:
        sim = SimBus()
        sim.queue("s", requires_session=True)
        client = sim.client()
        send_to_sessions(client, {"a": ["dead"]})
        client.receiver("s", 1, filter={SESSION: "a"})
        (got,) = client.deliveries()
        client.settle(got.id, Rejected())
        client.run(1)
        reply = client.management("s/$DeadLetterQueue").ask("batch-delete-messages", {"message-count": 5})
        assert reply.body == {"message-count": 1}
        assert sim.namespace.entity("s").counts().result().dead_letter == 0

    def test_premium_deletes_more_at_once(self) -> None:
        sim = SimBus(PREMIUM)
        sim.queue("q")
        management = sim.client().management("q")
        assert management.ask("batch-delete-messages", {"message-count": 4000}).status == 204
        assert management.ask("batch-delete-messages", {"message-count": 4001}).status == 400


class TestTopics:
    def test_a_topic_shows_what_is_scheduled_and_nothing_else(self) -> None:
        sim = SimBus()
        sim.topic("t", "s", enable_partitioning=True)
        client = sim.client()
        management = client.management("t")
        send(client, "t", "now")
        assert management.ask("peek-message", {"message-count": 10}).status == 204
        later = sim.clock.now().wall_ms + 5_000
        reply = management.ask("schedule-message", {"messages": [{"message": text("m", scheduled_ms=later)}]})
        (found,) = peeked(management.ask("peek-message", {"message-count": 10}))
        assert states([found]) == [2]
        assert numbers([found]) == reply.body["sequence-numbers"].items
        assert management.ask("cancel-scheduled-message", {"sequence-numbers": numbers([found])}).status == 200

    def test_a_subscription_is_managed_as_a_queue(self) -> None:
        sim = SimBus()
        sim.topic("t", "s", enable_partitioning=True)
        client = sim.client()
        send(client, "t", "a", "b")
        management = client.management("t/Subscriptions/s")
        assert len(peeked(management.ask("peek-message", {"message-count": 10}))) == 2
        client.receiver("t/Subscriptions/s", 1)
        (got,) = client.deliveries()
        assert management.ask("renew-lock", {"lock-tokens": [got.token]}).status == 200

    def test_nothing_can_be_taken_from_the_topic_itself(self) -> None:
        sim = SimBus()
        sim.topic("t", "s")
        reply = sim.client().management("t").ask("receive-by-sequence-number", {"sequence-numbers": [1]})
        assert (reply.status, reply.condition) == (400, "amqp:not-allowed")


def test_replies_of_two_entities_do_not_mix(sim: SimBus, client: Client, name: str) -> None:
    sim.queue("other")
    first, second = client.management(name), client.management("other")
    for pair in (first, second, first):
        pair.ask("peek-message", {"message-count": 1})


def test_a_request_on_one_session_is_answered_there_or_anywhere_on_the_connection(
    sim: SimBus, client: Client, name: str
) -> None:
    client.begun(1)
    requests = client.sender(f"{name}/$management", 1)
    replies = client.receiver(f"{name}/$management", 10, 0)
    client.frames()
    payload = message({"operation": "com.microsoft:x"}, {}, "1", f"{name}/$management")
    client.transfer(requests, payload, 1)
    (got,) = gather([one for one in client.frames("transfer") if one.channel == 0])
    assert got.handle == replies


def test_a_request_that_nobody_can_be_told_about_is_accepted(client: Client, name: str) -> None:
    requests = client.sender(f"{name}/$management")
    state = client.outcome(requests, message({"operation": "com.microsoft:x"}, {}, "1"))
    assert state.descriptor == 0x24


def test_a_large_reply_is_split_into_frames(sim: SimBus, name: str) -> None:
    client = Client(sim, max_frame_size=1024).login()
    send(client, name, "x" * 50_000)
    management = client.management(name)
    (found,) = peeked(management.ask("peek-message", {"message-count": 1}))
    assert len(encode(found.body()[0][1])) > 50_000
