"""Rules over AMQP: what clients send, what they get back, and what the rules then do."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from polybus.amqp.types import Decimal128, Described, Int, Timestamp, ULong
from polybus.errors import ArgumentError
from polybus.gateway.amqp.rules import described_rule, rule_from
from polybus.namespace.entities.rule import CorrelationFilterDescription, FilterKind, SqlFilterDescription
from tests.unit.gateway.amqp_kit import Client, ManagementPair, SimBus, text

TRUE = {"sql-filter": {"expression": "1=1"}}


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def sim(request: pytest.FixtureRequest) -> SimBus:
    sim = SimBus()
    sim.topic("t", "s", enable_partitioning=request.param)
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


@pytest.fixture
def management(client: Client) -> ManagementPair:
    return client.management("t/Subscriptions/s")


def add(management: ManagementPair, name: str, description: dict[str, Any]) -> tuple[Any, Any]:
    reply = management.ask("add-rule", {"rule-name": name, "rule-description": description})
    return reply.status, reply.condition


def listed(management: ManagementPair, **asked: int) -> list[Described]:
    reply = management.ask("enumerate-rules", {"top": 100, "skip": 0, **asked})
    if reply.status == 204:
        return []
    assert isinstance(reply.body["rules"], list)
    return [one["rule-description"] for one in reply.body["rules"]]


def matches(client: Client, **fields: Any) -> bool:
    client.outcome(client.sender("t"), text("m", **fields))
    receiver = client.receiver("t/Subscriptions/s", 1, deletes=True)
    got = client.deliveries()
    client.detach(receiver)
    client.frames()
    return bool(got)


def test_a_new_subscription_has_the_default_rule(management: ManagementPair) -> None:
    (rule,) = listed(management)
    assert rule.descriptor == ULong(0x13700000004)
    rule_filter, action, name, created = rule.value  # type: ignore[misc]
    assert (rule_filter.descriptor, rule_filter.value) == (ULong(0x1370000007), [])
    assert (action.descriptor, action.value) == (ULong(0x13700000005), [])
    assert name == "$Default"
    assert isinstance(created, Timestamp)


def test_descriptors_are_written_as_ulongs_of_eight_bytes(client: Client, management: ManagementPair) -> None:
    reply = management.ask("enumerate-rules", {"top": 1, "skip": 0})
    assert b"\x00\x80\x00\x00\x01\x37\x00\x00\x00\x04" in reply.message.raw
    assert b"\x00\x80\x00\x00\x00\x13\x70\x00\x00\x07" in reply.message.raw


def test_an_sql_rule_with_an_action(sim: SimBus, client: Client, management: ManagementPair) -> None:
    assert management.ask("remove-rule", {"rule-name": "$Default"}).status == 200
    description = {
        "sql-filter": {"expression": "colour = 'red'"},
        "sql-rule-action": {"expression": "SET seen = 'yes'"},
    }
    assert add(management, "red", description) == (200, None)
    (rule,) = listed(management)
    rule_filter, action, name, _ = rule.value  # type: ignore[misc]
    assert rule_filter == Described(ULong(0x1370000006), ["colour = 'red'", Int(20)])
    assert action == Described(ULong(0x13700000006), ["SET seen = 'yes'", Int(20)])
    assert name == "red"
    assert not matches(client, application={"colour": "blue"})
    client.outcome(client.sender("t"), text("m", application={"colour": "red"}))
    client.receiver("t/Subscriptions/s", 1)
    (got,) = client.deliveries()
    assert got.message.application_properties()["seen"] == "yes"


def test_a_correlation_rule_with_every_field(client: Client, management: ManagementPair) -> None:
    management.ask("remove-rule", {"rule-name": "$Default"})
    fields = {
        "correlation-id": "c",
        "message-id": "m",
        "to": "t",
        "reply-to": "r",
        "label": "l",
        "session-id": "s",
        "reply-to-session-id": "rs",
        "content-type": "ct",
    }
    properties = {"n": Int(5), "s": "text", "b": True, "f": 1.5}
    assert add(management, "all", {"correlation-filter": {**fields, "properties": properties}}) == (200, None)
    (rule,) = listed(management)
    rule_filter = rule.value[0]  # type: ignore[index]
    assert rule_filter.descriptor == ULong(0x1370000009)
    assert rule_filter.value == [*fields.values(), properties]
    sent = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "subject": "l",
        "session_id": "s",
        "reply_to_session_id": "rs",
        "content_type": "ct",
    }
    assert matches(client, **sent, application=properties)
    assert not matches(client, **{**sent, "subject": "other"}, application=properties)


def test_null_fields_are_not_part_of_the_filter(client: Client, management: ManagementPair) -> None:
    management.ask("remove-rule", {"rule-name": "$Default"})
    given = {"correlation-id": "c", "label": None, "properties": None}
    assert add(management, "r", {"correlation-filter": given, "sql-rule-action": None}) == (200, None)
    (rule,) = listed(management)
    assert rule.value[0].value == ["c", None, None, None, None, None, None, None, {}]  # type: ignore[index]
    assert matches(client, correlation_id="c", subject="whatever")


@pytest.mark.parametrize(
    ("description", "condition"),
    [
        ({}, "com.microsoft:argument-error"),
        ({"sql-filter": {}}, "com.microsoft:argument-error"),
        ({"sql-filter": {"expression": "this is = not sql ("}}, "com.microsoft:argument-error"),
        ({"sql-filter": {"expression": "a = '" + "x" * 1100 + "'"}}, "com.microsoft:argument-out-of-range"),
        ({"correlation-filter": {}}, "com.microsoft:argument-error"),
        ({"correlation-filter": {"label": 5}}, "com.microsoft:argument-error"),
        ({"correlation-filter": {"properties": {"p": [1]}}}, "com.microsoft:argument-error"),
        ({"correlation-filter": {"properties": {"p": Timestamp(1 << 62)}}}, "com.microsoft:argument-out-of-range"),
        ({"correlation-filter": {"properties": {"": 1}}}, "com.microsoft:argument-error"),
        ({**TRUE, "sql-rule-action": {"expression": "SET nonsense"}}, "com.microsoft:argument-error"),
        ("text", "com.microsoft:argument-error"),
    ],
)
def test_rules_that_cannot_be(management: ManagementPair, description: Any, condition: str) -> None:
    status, got = add(management, "bad", description)
    assert status == 400
    assert got in (condition, "com.microsoft:argument-error")
    assert len(listed(management)) == 1


def test_a_name_is_used_once_in_any_case(management: ManagementPair) -> None:
    assert add(management, "one", TRUE)[0] == 200
    assert add(management, "ONE", TRUE) == (409, "com.microsoft:entity-already-exists")


def test_a_rule_that_is_not_there_cannot_be_removed(management: ManagementPair) -> None:
    reply = management.ask("remove-rule", {"rule-name": "none"})
    assert (reply.status, reply.condition) == (404, "amqp:not-found")


def test_rules_are_listed_in_pages(management: ManagementPair) -> None:
    for n in range(5):
        add(management, f"r{n}", TRUE)
    names = []
    for skip in (0, 4, 8):
        names += [rule.value[2] for rule in listed(management, skip=skip, top=4)]  # type: ignore[index]
    assert names == ["$Default", "r0", "r1", "r2", "r3", "r4"]
    assert management.ask("enumerate-rules", {"skip": 6, "top": 2147483647}).status == 204


def test_only_subscriptions_have_rules(client: Client) -> None:
    for address in ("t", "t/Subscriptions/s/$DeadLetterQueue"):
        reply = client.management(address).ask("enumerate-rules", {"top": 1, "skip": 0})
        assert (reply.status, reply.condition) == (400, "amqp:not-allowed")


def test_listening_is_right_enough(sim: SimBus) -> None:
    management = sim.client("listener").management("t/Subscriptions/s")
    assert add(management, "one", TRUE)[0] == 200


def test_values_keep_their_types_through_the_catalogue_and_back() -> None:
    when = Timestamp(1_700_000_000_000)
    token = UUID(int=7)
    properties = {
        "t": when,
        "u": token,
        "big": 1 << 40,
        "huge": ULong((1 << 64) - 1),
        "small": Int(1),
        "raw": b"x",
        "f": 0.5,
        "no": False,
    }
    rule = rule_from("r", {"correlation-filter": {"properties": properties}})
    assert isinstance(rule.filter, CorrelationFilterDescription)
    values = dict(rule.filter.properties)
    assert values["t"].python == datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    described = described_rule(rule).value[0].value[8]  # type: ignore[index]
    assert described == properties
    assert {name: type(value) for name, value in described.items()} == {
        name: type(value) for name, value in properties.items()
    }


def test_a_decimal_is_a_number() -> None:
    price = Decimal128(bytes.fromhex("303c00000000000000000000000003e7"))
    rule = rule_from("r", {"correlation-filter": {"properties": {"price": price}}})
    assert isinstance(rule.filter, CorrelationFilterDescription)
    assert dict(rule.filter.properties)["price"].python == Decimal("9.99")


def test_true_and_false_filters_have_their_own_descriptors() -> None:
    rule = rule_from("r", TRUE)
    assert isinstance(rule.filter, SqlFilterDescription)
    assert rule.filter.kind is FilterKind.SQL, "a client sends them as text, and gets its text back"
    assert described_rule(rule).value[0].descriptor == ULong(0x1370000006)  # type: ignore[index]


def test_an_empty_action_is_none() -> None:
    assert rule_from("r", {**TRUE, "sql-rule-action": {}}).action is None
    assert rule_from("r", {**TRUE, "sql-rule-action": {"expression": ""}}).action is None
    with pytest.raises(ArgumentError):
        rule_from("r", {**TRUE, "sql-rule-action": {"expression": 5}})
