"""Login, tokens, time limits and the end of a connection."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from polybus import limits
from polybus.amqp.frames import AMQP_HEADER, SASL_HEADER, frame
from polybus.amqp.outcomes import ACCEPTED
from polybus.amqp.performatives import Attach, Begin, Open
from polybus.amqp.terminus import Source, Target
from polybus.amqp.traffic import Transfer
from polybus.client.sas import make_token
from polybus.errors import Unauthorized
from polybus.gateway.sas import Rights
from tests.unit.gateway.amqp_kit import Client, SimBus, error_of, message, text


@pytest.fixture
def sim() -> SimBus:
    sim = SimBus()
    sim.queue("q")
    return sim


def anonymous(sim: SimBus, mechanism: str = "ANONYMOUS") -> Client:
    return Client(sim).sasl(mechanism).opened()


@pytest.mark.parametrize("mechanism", ["MSSBCBS", "ANONYMOUS"])
def test_who_comes_without_a_password_must_show_a_token_first(sim: SimBus, mechanism: str) -> None:
    client = anonymous(sim, mechanism)
    client.attach_receiver("q")
    condition, description = client.expect_refused()
    assert condition == "amqp:unauthorized-access"
    assert description.startswith(
        "Unauthorized access. 'Listen' claim(s) are required to perform this operation. Resource: 'sb://ns/q'."
    )
    assert client.put_token("sb://ns.example.com/q") == (202, "Accepted")
    client.receiver("q")


def test_who_comes_without_sasl_must_show_a_token_too(sim: SimBus) -> None:
    client = Client(sim).feed(AMQP_HEADER).send(Open("client"), 0)
    client.begin(0)
    client.read()
    client.attach_sender("q")
    assert client.expect_refused()[0] == "amqp:unauthorized-access"


def test_a_password_opens_everything_that_its_rule_allows(sim: SimBus) -> None:
    client = sim.client("listener")
    client.receiver("q")
    client.attach_sender("q")
    assert client.expect_refused()[0] == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\x00root\x00wrong"),
        ("PLAIN", b"\x00nobody\x00root key"),
        ("PLAIN", b"root key"),
        ("PLAIN", b""),
        ("EXTERNAL", b""),
    ],
)
def test_a_bad_login_gets_outcome_1_and_the_end(sim: SimBus, mechanism: str, response: bytes) -> None:
    client = Client(sim).sasl(mechanism, response)
    outcomes = client.frames("sasl-outcome")
    assert [one.fields[0] for one in outcomes] == [1]
    assert client.transport.closed
    assert not sim.gateway.connections


def test_mechanisms_are_offered_in_the_clouds_order(sim: SimBus) -> None:
    client = Client(sim).feed(SASL_HEADER)
    (offer,) = client.frames("sasl-mechanisms")
    assert offer.fields[0].items == ["MSSBCBS", "PLAIN", "ANONYMOUS"]


def test_the_reply_to_a_token_has_the_types_that_the_sdks_read(sim: SimBus) -> None:
    client = anonymous(sim)
    requests, replies = client.sender("$cbs"), client.receiver("$cbs", 10)
    token = make_token("sb://ns/", "root", "root key", int(time.time()) + 60)
    request = message({"operation": "put-token", "type": "jwt", "name": "sb://ns/q"}, token, 5)
    client.transfer(requests, request)
    found = client.frames()
    accepted = next(one for one in found if one.name == "disposition")
    assert accepted.fields[4].descriptor == 0x24
    reply = next(one for one in found if one.name == "transfer")
    assert reply.fields[0] == replies
    assert reply.fields[4] is True, "no client settles replies"
    # status-code is an int of four bytes: 0x71 and 202.
    assert b"\xa1\x0bstatus-code\x71\x00\x00\x00\xca" in reply.payload


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        ({"secret": "wrong"}, 401, "InvalidSignature"),
        ({"seconds": -5}, 401, "ExpiredToken"),
        ({"token": "SharedAccessSignature nonsense"}, 401, "MalformedToken"),
        ({"token": "a.b.c"}, 401, "MalformedToken"),
        ({"resource": "sb://ns.example.com/other"}, 401, "InvalidAudience"),
        ({"key": "sender", "type": "servicebus.windows.net:sastoken"}, 202, "Accepted"),
    ],
)
def test_a_token_is_judged_by_its_text(sim: SimBus, options: dict[str, Any], status: int, says: str) -> None:
    got = anonymous(sim).put_token("sb://ns.example.com/q", **options)
    assert got[0] == status
    assert says in got[1]


def test_a_refused_token_leaves_the_connection_open_for_a_better_one(sim: SimBus) -> None:
    client = anonymous(sim)
    assert client.put_token("sb://ns/q", secret="wrong")[0] == 401
    assert client.put_token("sb://ns/q")[0] == 202
    client.receiver("q")


@pytest.mark.parametrize("audience", ["sb://h/q/$management", "amqps://h:5671/Q/", "sb://h/q", "amqp://h/", "q"])
def test_every_spelling_of_the_audience_covers_the_entity(sim: SimBus, audience: str) -> None:
    client = anonymous(sim)
    assert client.put_token(audience)[0] == 202
    client.receiver("q/$DeadLetterQueue")


def test_a_token_for_one_entity_does_not_open_another(sim: SimBus) -> None:
    sim.queue("q2")
    client = anonymous(sim)
    assert client.put_token("sb://h/q", resource="sb://h/")[0] == 202
    client.attach_receiver("q2")
    assert client.expect_refused()[0] == "amqp:unauthorized-access"


def test_a_jwt_counts_where_a_verifier_is_set(sim: SimBus) -> None:
    def verify(token: str, scope: tuple[str, ...]) -> tuple[Rights, float]:
        if token != "good.jwt.token":
            raise Unauthorized("InvalidToken")
        return Rights.LISTEN, time.time() + 60

    sim.gateway.jwt_verifier = verify
    client = anonymous(sim)
    assert client.put_token("sb://h/q", token="bad.jwt.token")[0] == 401
    assert client.put_token("sb://h/q", token="good.jwt.token")[0] == 202
    client.receiver("q")
    client.attach_sender("q")
    assert client.expect_refused()[0] == "amqp:unauthorized-access"


def test_a_verifier_that_breaks_is_an_error_of_the_bus_and_not_the_end(sim: SimBus) -> None:
    def verify(token: str, scope: tuple[str, ...]) -> tuple[Rights, float]:
        raise json.JSONDecodeError("broken", "", 0)

    sim.gateway.jwt_verifier = verify
    client = anonymous(sim)
    assert client.put_token("sb://h/q", token="bad.jwt.token")[0] == 500
    assert client.put_token("sb://h/q")[0] == 202


def test_an_operation_that_is_not_put_token_is_not_implemented(sim: SimBus) -> None:
    client = anonymous(sim)
    requests, _ = client.sender("$cbs"), client.receiver("$cbs", 10)
    client.transfer(requests, message({"operation": "delete-token", "name": "q"}, "x", "1"))
    (got,) = client.deliveries()
    assert got.message.application_properties()["status-code"] == 501


def test_without_a_token_in_time_the_connection_is_closed(sim: SimBus) -> None:
    client = anonymous(sim)
    client.run(limits.AMQP_TOKEN_MS / 1000 - 1)
    assert client.frames("close") == []
    client.run(2)
    condition, _ = error_of(client.one("close").fields[0])
    assert condition == "amqp:unauthorized-access"


def test_with_a_token_or_a_login_the_connection_stays(sim: SimBus) -> None:
    shown, logged_in = anonymous(sim), sim.client()
    assert shown.put_token()[0] == 202
    for client in (shown, logged_in):
        client.run(limits.AMQP_TOKEN_MS / 1000 + 1)
        assert client.frames("close") == []


def test_links_end_when_their_token_runs_out_and_not_before(sim: SimBus) -> None:
    client = anonymous(sim)
    client.put_token("sb://h/q", seconds=20)
    client.receiver("q")
    client.sender("q")
    client.run(15)
    assert client.frames("detach") == []
    client.run(10)
    detached = client.frames("detach")
    assert len(detached) == 2
    assert {error_of(one.fields[2])[0] for one in detached} == {"amqp:unauthorized-access"}


def test_a_later_token_keeps_the_links_alive(sim: SimBus) -> None:
    client = anonymous(sim)
    client.put_token("sb://h/q", seconds=20)
    client.receiver("q")
    client.put_token("sb://h/q", seconds=300)
    client.run(60)
    assert client.frames("detach") == []


def test_replies_go_to_the_link_that_the_request_names(sim: SimBus) -> None:
    """JavaScript names its reply link, Python gives all of them the same address; the session decides first."""
    client = anonymous(sim)
    client.begun(1)
    first, second = client.receiver("$cbs", 10), client.receiver("$cbs", 10)
    other = client.receiver("$cbs", 10, 1)
    requests, elsewhere = client.sender("$cbs"), client.sender("$cbs", 1)
    payload = message({"operation": "x"}, None, "1", f"link-{first}")
    client.transfer(requests, payload)
    assert [got.handle for got in client.deliveries()] == [first]
    client.transfer(requests, message({"operation": "x"}, None, "1", f"link-{second}"))
    assert [got.handle for got in client.deliveries()] == [second]
    client.transfer(elsewhere, payload, 1)
    assert [got.handle for got in client.deliveries()] == [other]


def test_a_reply_waits_for_credit(sim: SimBus) -> None:
    client = anonymous(sim)
    requests, replies = client.sender("$cbs"), client.receiver("$cbs")
    for _ in range(3):
        client.transfer(requests, message({"operation": "x"}, None, "1"))
    assert client.deliveries() == []
    client.flow(replies, 2)
    assert len(client.deliveries()) == 2
    client.flow(replies, 5, delivery_count=2)
    assert len(client.deliveries()) == 1


def test_replies_that_nobody_takes_end_their_link(sim: SimBus) -> None:
    client = anonymous(sim)
    requests = client.sender("$cbs")
    client.receiver("$cbs")
    for _ in range(limits.AMQP_REPLIES_HELD + 1):
        client.transfer(requests, message({"operation": "x"}, None, "1"))
    (detached,) = client.frames("detach")
    assert error_of(detached.fields[2])[0] == "amqp:resource-limit-exceeded"


def test_the_connection_after_the_last_allowed_one_is_refused(sim: SimBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybus.gateway.amqp.endpoint.AMQP_CONNECTIONS", 2)
    first, _ = sim.client(), sim.client()
    late = Client(sim).sasl("ANONYMOUS").feed(AMQP_HEADER).send(Open("client"), 0)
    (closed,) = late.frames("close")
    assert error_of(closed.fields[0])[0] == "amqp:resource-limit-exceeded"
    late.close()
    first.close()
    assert sim.client().frames("close") == []


def test_a_closed_connection_is_forgotten_and_its_transport_closed(sim: SimBus) -> None:
    client = sim.client()
    client.receiver("q")
    assert sim.namespace.entity("q").receivers == 1
    client.close()
    assert client.frames("close")[0].fields[0] is None
    assert client.transport.closed
    assert not sim.gateway.connections
    assert sim.gateway.stats.active_connections == 0
    assert sim.namespace.entity("q").receivers == 0
    assert not sim.namespace.entity("q").watchers


def test_a_lost_connection_leaves_nothing_behind(sim: SimBus) -> None:
    client = sim.client()
    client.receiver("q", 10)
    client.sender("q")
    client.endpoint.lost()
    assert not sim.gateway.connections
    assert sim.gateway.stats.active_connections == 0
    assert not sim.namespace.entity("q").watchers
    other = sim.client()
    other.outcome(other.sender("q"), text("m"))
    assert sim.namespace.entity("q").counts().result().locked == 0


def test_a_silent_client_is_dropped_and_a_heartbeat_is_sent_in_time(sim: SimBus) -> None:
    client = Client(sim).sasl("PLAIN", b"\x00root\x00root key").feed(AMQP_HEADER)
    client.send(Open("client", idle_time_out=60_000), 0)
    client.read()
    client.run(31)
    assert [one.name for one in client.frames()] == ["heartbeat"]
    client.run(100)
    assert client.frames("close") != []
    assert client.transport.closed


def test_a_broken_frame_ends_the_connection_and_nothing_else(sim: SimBus) -> None:
    good, bad = sim.client(), sim.client()
    bad.feed(b"\x00\x00\x00\x04\x02\x00\x00\x00")
    (closed,) = bad.frames("close")
    assert error_of(closed.fields[0])[0] == "amqp:connection:framing-error"
    assert bad.transport.closed
    assert good.outcome(good.sender("q"), text("m")).descriptor == 0x24


def test_a_bug_in_an_end_closes_its_own_connection_only(sim: SimBus, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = sim.client(), sim.client()
    monkeypatch.setattr(sim.namespace, "entity", lambda *args: 1 / 0)
    bad.attach_receiver("q")
    (closed,) = bad.frames("close")
    condition, description = error_of(closed.fields[0])
    assert condition == "amqp:internal-error"
    assert "division" not in description
    monkeypatch.undo()
    good.receiver("q")


class TestShuttingDown:
    def test_an_idle_connection_is_closed_with_a_retryable_condition(self, sim: SimBus) -> None:
        client = sim.client()
        client.endpoint.shut_down()
        assert error_of(client.one("close").fields[0])[0] == "amqp:connection:forced"
        client.close()
        assert client.transport.closed

    def test_what_is_under_way_is_answered_first(self, sim: SimBus) -> None:
        client = sim.client()
        sender = client.sender("q")
        client.endpoint.feed(_transfer(sender, 0, text("m")), sim.now_ms())
        client.endpoint.shut_down()
        client.endpoint.feed(_transfer(sender, 1, text("late")), sim.now_ms())
        found = client.frames()
        answers = {one.fields[1]: one.fields[4] for one in found if one.name == "disposition"}
        assert answers[0].descriptor == 0x24
        assert error_of(answers[1].value[0])[0] == "com.microsoft:server-busy"
        assert found[-1].name == "close"

    def test_a_client_that_does_not_answer_is_dropped(self, sim: SimBus) -> None:
        client = sim.client()
        client.endpoint.shut_down()
        client.run(limits.AMQP_CLOSE_MS / 1000 + 1)
        assert client.transport.closed

    def test_messages_are_no_longer_handed_out(self, sim: SimBus) -> None:
        client, other = sim.client(), sim.client()
        client.receiver("q", 10)
        sender = other.sender("q")
        client.endpoint.stopping = True
        for end in client.endpoint._ends():
            end.pause()
        other.outcome(sender, text("m"))
        assert client.deliveries() == []
        assert sim.namespace.entity("q").counts().result().locked == 0

    def test_new_connections_are_closed_at_once(self, sim: SimBus) -> None:
        sim.gateway.stopping = True
        client = Client(sim).sasl("ANONYMOUS").feed(AMQP_HEADER).send(Open("client"), 0)
        (closed,) = client.frames("close")
        assert error_of(closed.fields[0])[0] == "amqp:connection:forced"


def _transfer(handle: int, number: int, payload: bytes) -> bytes:
    return frame(0, Transfer(handle, number, b"t", 0), payload=payload)


def test_no_token_or_key_is_written_to_the_log(sim: SimBus, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    client = anonymous(sim)
    client.put_token("sb://h/q", secret="a very secret key")
    client.put_token("sb://h/q")
    client.outcome(client.sender("q"), text("a secret body"))
    client.receiver("q", 5)
    (got,) = client.deliveries()
    client.settle(got.id, ACCEPTED)
    assert "a token was refused" in caplog.text
    everything = caplog.text + str([vars(record) for record in caplog.records])
    for secret in ("sig=", "secret body", "a very secret key", base64.b64encode(b"root key").decode()):
        assert secret not in everything


def test_a_violation_behind_a_full_turn_ends_the_connection(sim: SimBus) -> None:
    client = sim.client("root")
    frames = b"".join(frame(channel, Begin(0, 9, 9)) for channel in range(1, limits.AMQP_TURN_FRAMES + 10))
    client.feed(frames + frame(0, Attach("a", 0, True, Source("q"), Target("x"))) + b"\x00\x00\x00\x01garbage").run(1)
    assert client.transport.closed
    assert not client.endpoint.connection.unread
