"""Rules tried without consequences: on a message that might come, and on those that are there."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.namespace.entities.rule import RuleDescription, SqlActionDescription, SqlFilterDescription
from tests.system.http.bulk_kit import Bulk
from tests.system.http.kit import Server
from tests.system.http.test_jobs import send


def rule(name: str, expression: str, action: str | None = None) -> RuleDescription:
    done = None if action is None else SqlActionDescription(expression=action)
    return RuleDescription(name=name, filter=SqlFilterDescription(expression=expression), action=done)


def topic(server: Server, name: str, rules: dict[str, list[RuleDescription]], **options: Any) -> None:
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path=name, **options)))
    for subscription, own in rules.items():
        described = SubscriptionDescription(topic=name, name=subscription)
        server.wait(management.create_subscription(described, own))


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_a_message_would_match_and_become(server: Server, partitioned: bool) -> None:
    name = f"t-{partitioned}"
    rules = {
        "red": [rule("colour", "colour = 'red'", "SET paint = 'oil'; SET sys.label = 'painted'; REMOVE colour")],
        "blue": [rule("colour", "colour = 'blue'"), rule("large", "size > 10")],
        "broken": [rule("divide", "1 / size = 1")],
    }
    topic(server, name, rules, enable_partitioning=partitioned)
    with server.client() as http:
        message = {"subject": "plain", "properties": {"colour": "red", "size": 0}}
        found = Bulk(http, name).post("dry-run", {"message": message})
        blue, broken, red = sorted(found["subscriptions"], key=lambda each: str(each["subscription"]))
        assert (red["matched"], blue["matched"], broken["matched"]) == (True, False, False)
        became = red["copies"][0]["becomes"]
        assert (became["subject"], became["properties"]) == (
            "painted",
            {"size": "0", "paint": "oil", "RuleName": "colour"},
        )
        assert [(each["rule"], each["matched"]) for each in blue["rules"]] == [("colour", False), ("large", False)]
        assert broken["rules"][0]["error"]
        assert broken["copies"][0]["goes"] == "dead-letter queue"
    assert server.do(lambda: server.namespace.entity(name).counts(1).result().total) == 0


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_a_rule_would_have_matched_among_those_that_are_there(server: Server, partitioned: bool) -> None:
    name = f"q-{partitioned}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, enable_partitioning=partitioned)))
    send(server, name, 120, application={"size": 1})
    send(server, name, 30, application={"size": 20})
    with server.client() as http:
        bulk = Bulk(http, name)
        found = bulk.post("dry-run", {"filter": "size > 10", "action": "SET big = TRUE", "limit": 5})
        assert (found["looked_at"], found["matched"], found["failed"]) == (150, 30, 0)
        assert len(found["matches"]) == 5
        assert found["matches"][0]["becomes"]["properties"]["big"] == "true"
        correlation = {"Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"size": 1}}}}
        assert bulk.post("dry-run", {"rule": correlation})["matched"] == 120
        looked, matched, first = 0, 0, 1
        while first is not None:
            part = bulk.post("dry-run", {"filter": "size = 1", "look_at": 10, "first": first})
            looked, matched, first = looked + part["looked_at"], matched + part["matched"], part["next"]
        assert (looked, matched) == (150, 120)
    assert server.do(lambda: server.namespace.entity(name).counts().result().active) == 150


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"filter": "size >"},
        {"rule": {"Properties": {"FilterType": "Nothing"}}},
        {"filter": "size > 1", "befor": 1},
        {"message": {"subject": "x"}},
    ],
)
def test_what_cannot_be_tried_is_refused(server: Server, body: dict[str, Any]) -> None:
    if server.namespace.find("refused") is None:
        server.wait(server.namespace.management.create(QueueDescription(path="refused")))
    with server.client() as http:
        assert http.post("/$polybus/entities/refused/dry-run", json=body).status_code == 400
