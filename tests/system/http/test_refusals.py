"""What is refused, row by row: status, sub code, text and media type (docs/protocol/errors.md#http); nothing was done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.system.http.kit import Server

ATOM = "http://www.w3.org/2005/Atom"
SB = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
ERROR = re.compile(
    r"<Error><Code>(\d+)</Code><Detail>(.*) TrackingId:[0-9a-f-]{36}_G\d, SystemTracker:\S+,"
    r" Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d</Detail></Error>",
    re.DOTALL,
)
UPDATE = {"If-Match": "*"}


def entry(kind: str, inside: str = "") -> str:
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml">'
        f'<{kind} xmlns="{SB}" xmlns:i="{XSI}">{inside}</{kind}></content></entry>'
    )


def queue(inside: str = "") -> str:
    return entry("QueueDescription", inside)


def rule(inside: str) -> str:
    return entry("RuleDescription", inside)


def sql(text: str) -> str:
    return rule(f'<Filter i:type="SqlFilter"><SqlExpression>{text}</SqlExpression></Filter>')


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    management = server.namespace.management
    server.wait(management.create(QueueDescription(path="exists")))
    server.wait(management.create(QueueDescription(path="split", enable_partitioning=True)))
    server.wait(management.create(TopicDescription(path="topic")))
    server.wait(management.create_subscription(SubscriptionDescription(topic="topic", name="sub")))
    with server.client() as client:
        yield client


def check(response: httpx.Response, status: int, text: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/xml; charset=utf-8"
    found = ERROR.fullmatch(response.text)
    assert found is not None, response.text
    assert int(found[1]) == status
    assert text in found[2]


CREATE = [
    ("/exists", queue(), 409, "SubCode=40900. Conflict."),
    ("/EXISTS", queue(), 409, "SubCode=40900."),
    ("/exists", entry("TopicDescription"), 409, "SubCode=40900."),
    ("/topic", queue(), 409, "SubCode=40900."),
    ("/exists/below", queue(), 409, "SubCode=40900."),
    ("/new", queue("<LockDuration>P25D</LockDuration>"), 400, "SubCode=40000. The supplied lock time exceeds"),
    ("/new", queue("<LockDuration>PT1S</LockDuration>"), 400, "LockDuration"),
    ("/new", queue("<LockDuration>soon</LockDuration>"), 400, "Parameter name: LockDuration"),
    ("/new", queue("<LockDuration>-PT10S</LockDuration>"), 400, "SubCode=40000."),
    ("/new", queue("<MaxSizeInMegabytes>1000</MaxSizeInMegabytes>"), 400, "must be one of the following values"),
    ("/new", queue("<MaxSizeInMegabytes>81920</MaxSizeInMegabytes>"), 400, "MaxSizeInMegabytes"),
    ("/new", queue("<MaxSizeInMegabytes>x</MaxSizeInMegabytes>"), 400, "not a valid integer"),
    ("/new", queue("<MaxSizeInMegabytes>99999999999999999999</MaxSizeInMegabytes>"), 400, "integer"),
    ("/new", queue("<RequiresSession>maybe</RequiresSession>"), 400, "not a valid boolean"),
    ("/new", queue("<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>"), 400, "DefaultMessageTimeToLive"),
    (
        "/new",
        queue("<DuplicateDetectionHistoryTimeWindow>P8D</DuplicateDetectionHistoryTimeWindow>"),
        400,
        "DuplicateDetectionHistoryTimeWindow",
    ),
    ("/new", queue("<MaxDeliveryCount>0</MaxDeliveryCount>"), 400, "MaxDeliveryCount"),
    ("/new", queue("<AutoDeleteOnIdle>PT4M</AutoDeleteOnIdle>"), 400, "AutoDeleteOnIdle"),
    ("/new", queue("<Status>Deleting</Status>"), 400, "Status"),
    ("/new", queue("<Status>Happy</Status>"), 400, "not a valid status"),
    ("/new", queue(f"<UserMetadata>{'x' * 1025}</UserMetadata>"), 400, "UserMetadata"),
    ("/new", queue("<ForwardTo>nowhere</ForwardTo>"), 400, "SubCode=40400."),
    ("/new", queue("<ForwardTo>topic/Subscriptions/sub</ForwardTo>"), 400, "ForwardTo"),
    ("/new", queue("<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>"), 400, "Premium"),
    (
        "/new?api-version=2017-04",
        queue("<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"),
        400,
        "needs api-version 2021-05",
    ),
    (
        "/new",
        queue("<RequiresDuplicateDetection>true</RequiresDuplicateDetection><EnableExpress>true</EnableExpress>"),
        400,
        "cannot be enabled together",
    ),
    (
        "/new",
        queue(
            '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule"><Rights>'
            "<AccessRights>Manage</AccessRights></Rights><KeyName>k</KeyName></AuthorizationRule>"
            "</AuthorizationRules>"
        ),
        400,
        "Manage permission must also include",
    ),
    ("/new", entry("SubscriptionDescription"), 400, "QueueDescription or TopicDescription"),
    ("/new", "", 400, "not well-formed XML"),
    ("/new", "<entry/>", 400, "must be an Atom entry"),
    ("/new", "{}", 400, "not well-formed XML"),
    ("/" + "a" * 261, queue(), 400, "1 to 260 characters"),
    ("/bad@name", queue(), 400, "not allowed by Service Bus"),
    ("/a//b", queue(), 400, "not allowed by Service Bus"),
    ("/%2E%2e", queue(), 400, "not allowed by Service Bus"),
    ("/a/%2e%2e/b", queue(), 400, "not allowed by Service Bus"),
    ("/a%00b", queue(), 400, "not allowed by Service Bus"),
    ("/a%5Cb", queue(), 400, "not allowed by Service Bus"),
    ("/gr%C3%BCn", queue(), 400, "not allowed by Service Bus"),
    ("/a%FFb", queue(), 400, "percent-encoded UTF-8"),
    ("/$polybus-like", queue(), 400, "not allowed by Service Bus"),
    ("/", queue(), 400, "1 to 260 characters"),
    ("/exists/$DeadLetterQueue", queue(), 400, "not an entity that can be managed"),
    ("/nowhere/subscriptions/s", entry("SubscriptionDescription"), 404, "Topic:nowhere|s"),
    ("/exists/subscriptions/s", entry("SubscriptionDescription"), 404, "Topic:exists|s"),
    ("/topic/subscriptions/sub", entry("SubscriptionDescription"), 409, "already exists"),
    ("/topic/subscriptions/" + "s" * 51, entry("SubscriptionDescription"), 400, "1 to 50 characters"),
    ("/topic/subscriptions/sub/rules/$Default", rule(""), 409, "Topic:topic|sub|$Default"),
    ("/topic/subscriptions/nope/rules/r", rule(""), 404, "Topic:topic|nope"),
    ("/topic/subscriptions/sub/rules/r", sql("a ="), 400, "SubCode=40000."),
    ("/topic/subscriptions/sub/rules/r", sql("a = 1 " * 400), 400, "SubCode=40000."),
    ("/topic/subscriptions/sub/rules/r", rule('<Filter i:type="OddFilter"/>'), 400, "no filter of type"),
    ("/topic/subscriptions/sub/rules/r", rule('<Filter i:type="CorrelationFilter"/>'), 400, "SubCode=40000."),
    (
        "/topic/subscriptions/sub/rules/r",
        rule('<Action i:type="SqlRuleAction"><SqlExpression>SET</SqlExpression></Action>'),
        400,
        "SubCode=40000.",
    ),
    (
        "/topic/subscriptions/sub/rules/r",
        rule(
            '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
            '<Value i:type="l:int" xmlns:l="http://www.w3.org/2001/XMLSchema">five</Value>'
            "</KeyValueOfstringanyType></Properties></Filter>"
        ),
        400,
        "cannot be read",
    ),
]


@pytest.mark.parametrize(("path", "body", "status", "text"), CREATE)
def test_what_cannot_be_created(
    server: Server, http: httpx.Client, path: str, body: str, status: int, text: str
) -> None:
    before = sorted(server.namespace.entities)
    check(http.put(path, content=body), status, text)
    assert sorted(server.namespace.entities) == before
    assert list(server.namespace.entity("topic").subscription("sub").rules) == ["$default"]


UPDATES = [
    ("/nowhere", queue(), 404, "SubCode=40400."),
    ("/exists", entry("TopicDescription"), 400, "not of the kind"),
    ("/exists", queue("<RequiresSession>true</RequiresSession>"), 400, "RequiresSession"),
    (
        "/exists",
        queue("<RequiresDuplicateDetection>true</RequiresDuplicateDetection>"),
        400,
        "RequiresDuplicateDetection",
    ),
    ("/exists", queue("<EnablePartitioning>true</EnablePartitioning>"), 400, "Partitioning cannot be changed"),
    ("/split", queue("<EnablePartitioning>false</EnablePartitioning>"), 400, "Partitioning cannot be changed"),
    ("/exists", queue("<LockDuration>PT1H</LockDuration>"), 400, "lock time"),
    ("/topic/subscriptions/nope", entry("SubscriptionDescription"), 404, "Topic:topic|nope"),
    ("/nowhere/subscriptions/s", entry("SubscriptionDescription"), 404, "Topic:nowhere|s"),
    ("/topic/subscriptions/sub/rules/nope", rule(""), 404, "Topic:topic|sub|nope"),
    ("/topic/subscriptions/sub/rules/$Default", sql("("), 400, "SubCode=40000."),
]


@pytest.mark.parametrize(("path", "body", "status", "text"), UPDATES)
def test_what_cannot_be_changed(http: httpx.Client, path: str, body: str, status: int, text: str) -> None:
    check(http.put(path, content=body, headers=UPDATE), status, text)


def test_an_old_etag_does_not_match(http: httpx.Client) -> None:
    current = http.get("/exists").headers["etag"]
    check(http.put("/exists", content=queue(), headers={"If-Match": "5"}), 412, "SubCode=41200.")
    assert http.put("/exists", content=queue(), headers={"If-Match": current}).status_code == 200


OTHERS: list[tuple[str, str, int, str]] = [
    ("DELETE", "/nowhere", 404, "was not found"),
    ("DELETE", "/topic/subscriptions/nope", 404, "Topic:topic|nope"),
    ("DELETE", "/nowhere/subscriptions/nope", 404, "Topic:nowhere|nope"),
    ("DELETE", "/topic/subscriptions/sub/rules/nope", 404, "Topic:topic|sub|nope"),
    ("GET", "/topic/subscriptions/nope", 404, "Topic:topic|nope"),
    ("GET", "/topic/subscriptions/sub/rules/nope", 404, "Topic:topic|sub|nope"),
    ("GET", "/topic/subscriptions/nope/rules", 404, "Topic:topic|nope"),
    ("GET", "/exists/$DeadLetterQueue", 400, "not valid for this resource"),
    ("GET", "/topic/subscriptions/sub/$DeadLetterQueue", 400, "SubCode=40000."),
    ("GET", "/exists/$management", 400, "not valid for this resource"),
    ("GET", "/$Resources/queues?$skip=-1", 400, "must be non-negative"),
    ("GET", "/$Resources/queues?$top=-5", 400, "must be non-negative"),
    ("GET", "/$Resources/queues?$skip=x", 400, "not a valid integer"),
    ("GET", "/$Resources/topics?%24top=1e3", 400, "not a valid integer"),
    ("POST", "/exists", 405, "The HTTP verb 'POST' is not valid"),
    ("PATCH", "/exists", 405, "SubCode=40500."),
    ("OPTIONS", "/exists", 405, "SubCode=40500."),
    ("TRACE", "/exists", 405, "SubCode=40500."),
    ("PUT", "/$namespaceinfo", 405, "SubCode=40500."),
    ("DELETE", "/$Resources/queues", 405, "SubCode=40500."),
    ("PUT", "/topic/subscriptions", 405, "SubCode=40500."),
    ("PUT", "/exists/messages", 405, "SubCode=40500."),
    ("GET", "/exists/messages/head", 405, "SubCode=40500."),
    ("GET", "/$cbs", 400, "not allowed by Service Bus"),
    ("GET", "/$nothing", 400, "not allowed by Service Bus"),
    ("POST", "/nowhere/messages", 410, "SubCode=41000."),
    ("POST", "/nowhere/messages/head", 410, "SubCode=41000."),
    ("DELETE", "/topic/subscriptions/nope/messages/head", 410, "SubCode=41000."),
    ("POST", "/topic/messages/head", 400, "cannot be received from the topic"),
    ("POST", "/exists/messages/head?timeout=-1", 400, "timeout"),
    ("POST", "/exists/messages/head?timeout=301", 400, "timeout"),
    ("POST", "/exists/messages/head?timeout=1.5", 400, "timeout"),
    ("DELETE", "/exists/messages/1/nonsense", 404, "SubCode=40400."),
    ("PUT", "/exists/messages/1/00000000-0000-0000-0000-000000000000", 404, "SubCode=40400."),
    ("POST", "/exists/$DeadLetterQueue/messages", 400, "cannot be sent to"),
    ("GET", "/exists/messages?PreviousSequenceNumber=x", 400, "PreviousSequenceNumber"),
    ("GET", "/exists/messages?PreviousSequenceNumber=99999999999999999999", 400, "PreviousSequenceNumber"),
    ("GET", "/$polybus", 404, "There is nothing"),
    ("GET", "/$polybus/nothing", 404, "There is nothing"),
    ("GET", "/$polybus/entities/exists", 404, "There is nothing"),
    ("GET", "/$polybus/entities/log", 404, "There is nothing"),
    ("POST", "/$polybus/entities/exists/log", 405, "SubCode=40500."),
    ("GET", "/$polybus/entities/nowhere/log", 404, "could not be found"),
    ("GET", "/$polybus/entities/exists/log?time=then", 400, "not a valid date"),
    ("GET", "/$polybus/entities/exists/range", 400, "'partition' is missing"),
    ("GET", "/$polybus/entities/exists/range?partition=1", 400, "the partitions 0 to 0, not 1"),
    ("GET", "/$polybus/entities/exists/range?partition=-1", 400, "'partition' must be"),
    ("GET", "/$polybus/entities/exists/range?partition=0&first=x", 400, "'first' must be"),
    ("GET", "/$polybus/entities/exists/range?partition=0&columns=a", 400, "There is no column"),
    ("GET", "/$polybus/entities/exists/range?partition=0&columns=body,body", 400, "named twice"),
    ("GET", "/$polybus/entities/exists/range?partition=0&body=maybe", 400, "'body' must be"),
    ("GET", "/$polybus/entities/exists/range?partition=0&format=xml", 400, "'format' must be"),
    ("GET", "/$polybus/entities/exists/browse?state=lost", 400, "'state' must be"),
    ("GET", "/$polybus/entities/topic/browse", 400, "holds only scheduled messages"),
    ("GET", "/$polybus/entities/topic/$DeadLetterQueue/log", 400, "no dead-letter queue of its own"),
    ("GET", "/$polybus/entities/exists/events?partition=0&limit=99999", 400, "'limit' must be"),
    ("GET", "/$polybus/entities/exists/cursors/none", 404, "no cursor 'none'"),
    ("PUT", f"/$polybus/entities/exists/cursors/{'c' * 129}", 400, "1 to 128"),
    ("POST", "/$polybus/entities/exists/cursors/none/advance", 404, "no cursor"),
    ("POST", "/$polybus/entities/exists/$DeadLetterQueue/stage", 400, "cannot be sent to"),
    ("POST", "/$polybus/entities/exists/cursors/none/lease", 404, "no cursor"),
    ("POST", "/$polybus/entities/exists/move", 400, "'numbers' must be"),
    ("PUT", "/$polybus/entities/exists/events", 400, "'enabled' must be"),
    ("GET", "/$polybus/faults", 404, "There is nothing"),
]


@pytest.mark.parametrize(("method", "path", "status", "text"), OTHERS)
def test_what_else_is_refused(http: httpx.Client, method: str, path: str, status: int, text: str) -> None:
    check(http.request(method, path), status, text)


def test_deleting_says_no_sub_code_and_updating_does(http: httpx.Client) -> None:
    for path in ("/nowhere", "/topic/subscriptions/nope", "/topic/subscriptions/sub/rules/nope"):
        assert "SubCode" not in http.delete(path).text
    for path in ("/topic/subscriptions/nope", "/topic/subscriptions/sub/rules/nope"):
        assert "SubCode" not in http.get(path).text


def test_get_of_what_is_missing_is_the_empty_feed(http: httpx.Client) -> None:
    for path in ("/nowhere", "/nowhere/subscriptions", "/nowhere/subscriptions/s", "/nowhere/subscriptions/s/rules"):
        missing = http.get(path)
        assert missing.status_code == 200
        assert missing.headers["content-type"] == "application/atom+xml;type=feed;charset=utf-8"
        assert '<title type="text">Publicly Listed Services</title>' in missing.text
        assert "<entry" not in missing.text


def test_the_bulk_api_refuses_in_json_where_json_is_wanted(http: httpx.Client) -> None:
    refused = http.get("/$polybus/entities/nowhere/log", headers={"Accept": "application/json"})
    assert refused.status_code == 404
    assert refused.headers["content-type"] == "application/json"
    error: dict[str, Any] = refused.json()["error"]
    assert (error["code"], error["sub_code"]) == (404, 40400)
    assert "SubCode=40400" in error["detail"]


def test_quotas_are_refused_as_such(server: Server, http: httpx.Client) -> None:
    from polybus import limits

    made = 0
    while (
        http.put(f"/many-{made}", content=queue("<EnablePartitioning>true</EnablePartitioning>")).status_code == 201
    ):
        made += 1
        assert made <= limits.PARTITIONED_ENTITIES
    check(
        http.put("/one-more", content=queue("<EnablePartitioning>true</EnablePartitioning>")), 403, "SubCode=40300."
    )
    assert http.put("/one-more", content=queue()).status_code == 201
    for number in range(made):
        assert http.delete(f"/many-{number}").status_code == 200
