"""The Python SDK's own administration client, with its own serialisation, against our documents. No socket is opened:
the client is given a transport that hands requests to a namespace of dictionaries."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import HttpResponse, HttpTransport
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from polybus.errors import BusError, EntityAlreadyExists, EntityNotFound
from polybus.gateway.atom import documents as atom
from polybus.gateway.atom.documents import AtomContext, FeedPage, Moment, RuntimeInfo
from polybus.namespace.entities.admission import admit_create, admit_update
from polybus.namespace.entities.description import EntityAvailability, QueueDescription, TopicDescription
from polybus.namespace.entities.names import TargetKind, fold, parse_http_path
from polybus.namespace.entities.rule import DEFAULT_RULE
from polybus.namespace.entities.tiers import PREMIUM, STANDARD

NOW_MS = 1_618_852_986_253
HOST = "bus.example:5300"
KEYS = f"Endpoint=sb://{HOST};SharedAccessKeyName=k;SharedAccessKey=v"
COUNTS = RuntimeInfo(
    size_bytes=7_000_000_000,
    active_count=1,
    dead_letter_count=2,
    scheduled_count=3,
    transfer_count=4,
    transfer_dead_letter_count=5,
    subscription_count=6,
    accessed_at_ms=NOW_MS + 1,
    availability=EntityAvailability.LIMITED,
)


class Answer(HttpResponse):
    def __init__(self, request: Any, status: int, content_type: str, body: bytes) -> None:
        super().__init__(request, None)
        self.status_code = status
        self.reason = "because"
        self.headers = {"Content-Type": content_type} if content_type else {}
        self.content_type = content_type
        self._body = body

    def body(self) -> bytes:
        return self._body


class Namespace(HttpTransport):
    """Answers like the management API, out of dictionaries, with the functions under test."""

    def __init__(self, tier=STANDARD, info: RuntimeInfo = COUNTS) -> None:
        self.tier = tier
        self.info = info
        self.entities: dict[str, Any] = {}
        self.subscriptions: dict[tuple[str, str], Any] = {}
        self.rules: dict[tuple[str, str], dict[str, Any]] = {}
        self.keys = map("made-{}".format, itertools.count())
        self.bodies: list[bytes] = []

    def open(self) -> None: ...
    def close(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

    def send(self, request: Any, **_: Any) -> Answer:
        url = urlsplit(request.url)
        query = parse_qs(url.query)
        context = AtomContext(
            base_url=f"{url.scheme}://{url.netloc}",
            query=url.query,
            namespace="bus",
            tier=self.tier,
            api_version=query.get("api-version", [""])[0],
            now_ms=NOW_MS,
        )
        body = request.body or b""
        self.bodies.append(body if isinstance(body, bytes) else body.encode())
        try:
            status, kind, document = self.answer(request, url.path, query, context)
        except BusError as error:
            detail = atom.error_detail(
                error.sub_code, error.description, tracking_id="t_G1", system_tracker="s", now_ms=NOW_MS
            )
            status, kind = error.http_status, atom.ERROR_TYPE
            document = atom.error_document(status, detail)
        return Answer(request, status, kind, document)

    def answer(self, request: Any, path: str, query: dict[str, list[str]], context: AtomContext):
        target = parse_http_path(path)
        handler = getattr(self, f"{request.method.lower()}_{target.kind.name.lower()}")
        update = request.headers.get("If-Match") == "*"
        skip, top = atom.parse_page(query.get("$skip", [None])[0], query.get("$top", [None])[0])
        page = FeedPage(path, skip, top)
        return handler(target, context, page, self.bodies[-1], update)

    def put_entity(self, target, context, page, body, update):
        path = target.address.entity
        sent = atom.parse_entity(body, path, context.api_version)
        old = self.entities.get(fold(path))
        if update and old is None:
            raise EntityNotFound("Not Found. The Operation doesn't exist.")
        if not update and old is not None:
            raise EntityAlreadyExists("Conflict.")
        if update:
            one = admit_update(old, sent.description, self.tier, NOW_MS, self.keys.__next__, sent.given)  # type: ignore[type-var]
        else:
            one = admit_create(sent.description, self.tier, NOW_MS, self.keys.__next__)  # type: ignore[type-var]
        self.entities[fold(path)] = one
        moment = Moment.UPDATED if update else Moment.CREATED
        return 200 if update else 201, atom.ENTRY_TYPE, atom.entity_entry(one, self.info, context, moment)  # type: ignore[arg-type]

    def get_entity(self, target, context, page, body, update):
        one = self.entities.get(fold(target.address.entity))
        if one is None:
            return 200, atom.FEED_TYPE, atom.not_found_feed(context, "f")
        return 200, atom.ENTRY_TYPE, atom.entity_entry(one, self.info, context, Moment.READ)

    def delete_entity(self, target, context, page, body, update):
        if self.entities.pop(fold(target.address.entity), None) is None:
            raise EntityNotFound("not there")
        return 200, "", b""

    def get_namespace_info(self, target, context, page, body, update):
        return 200, atom.ENTRY_TYPE, atom.namespace_entry(context, NOW_MS, NOW_MS)

    def get_queues(self, target, context, page, body, update):
        return self.listed(QueueDescription, context, page)

    def get_topics(self, target, context, page, body, update):
        return self.listed(TopicDescription, context, page)

    def listed(self, kind, context, page):
        all_ = [(one, self.info) for _, one in sorted(self.entities.items()) if isinstance(one, kind)]
        part = all_[page.skip : page.skip + page.top]
        page = replace(page, more=len(all_) > page.skip + page.top)
        return 200, atom.FEED_TYPE, atom.entity_feed(part, context, kind, page)

    def put_subscription(self, target, context, page, body, update):
        key = (fold(target.address.entity), fold(target.address.subscription))
        sent = atom.parse_subscription(body, target.address.entity, target.address.subscription)
        if update:
            one = admit_update(self.subscriptions[key], sent.description, self.tier, NOW_MS, str, sent.given)
        else:
            one = admit_create(sent.description, self.tier, NOW_MS, str)  # type: ignore[type-var]
            rule = sent.default_rule or replace(DEFAULT_RULE, created_at_ms=NOW_MS)
            self.rules[key] = {fold(rule.name): rule}
        self.subscriptions[key] = one
        moment = Moment.UPDATED if update else Moment.CREATED
        return 200 if update else 201, atom.ENTRY_TYPE, atom.subscription_entry(one, self.info, context, moment)

    def get_subscription(self, target, context, page, body, update):
        key = (fold(target.address.entity), fold(target.address.subscription))
        if key not in self.subscriptions:
            raise EntityNotFound("no such subscription")
        one = self.subscriptions[key]
        return 200, atom.ENTRY_TYPE, atom.subscription_entry(one, self.info, context, Moment.READ)

    def get_subscriptions(self, target, context, page, body, update):
        all_ = [(one, self.info) for one in self.subscriptions.values()]
        part = all_[page.skip : page.skip + page.top]
        page = replace(page, more=len(all_) > page.skip + page.top)
        return 200, atom.FEED_TYPE, atom.subscription_feed(part, context, page)

    def put_rule(self, target, context, page, body, update):
        address = target.address
        rules = self.rules[fold(address.entity), fold(address.subscription)]
        rule = replace(atom.parse_rule(body, target.rule), created_at_ms=NOW_MS)
        rules[fold(target.rule)] = rule
        moment = Moment.UPDATED if update else Moment.CREATED
        document = atom.rule_entry(rule, address.entity, address.subscription, context, moment)
        return 200 if update else 201, atom.ENTRY_TYPE, document

    def get_rule(self, target, context, page, body, update):
        address = target.address
        rule = self.rules[fold(address.entity), fold(address.subscription)][fold(target.rule)]
        document = atom.rule_entry(rule, address.entity, address.subscription, context, Moment.READ)
        return 200, atom.ENTRY_TYPE, document

    def get_rules(self, target, context, page, body, update):
        address = target.address
        all_ = list(self.rules[fold(address.entity), fold(address.subscription)].values())
        document = atom.rule_feed(all_, address.entity, address.subscription, context, page)
        return 200, atom.FEED_TYPE, document


@pytest.fixture
def bus() -> Namespace:
    return Namespace()


@pytest.fixture
def client(bus: Namespace) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(KEYS, transport=bus, retry_total=0)


def test_every_target_is_a_handler(bus: Namespace) -> None:
    names = {name.split("_", 1)[1] for name in dir(bus) if name.startswith(("get_", "put_", "delete_"))}
    assert {name.upper() for name in names} <= {kind.name for kind in TargetKind}


def test_a_queue_with_defaults(client: ServiceBusAdministrationClient) -> None:
    queue = client.create_queue("q")
    assert queue.name == "q"
    assert queue.lock_duration == datetime.timedelta(minutes=1)
    assert queue.max_size_in_megabytes == 1024
    assert queue.max_delivery_count == 10
    assert queue.default_message_time_to_live.days == 10675199
    assert queue.duplicate_detection_history_time_window == datetime.timedelta(minutes=10)
    assert queue.status == "Active"
    assert queue.enable_batched_operations is True
    assert queue.requires_session is False
    assert queue.enable_partitioning is False
    assert queue.forward_to is None
    assert queue.user_metadata is None
    assert queue.max_message_size_in_kilobytes == 256
    assert not queue.authorization_rules


def test_a_partitioned_queue_with_everything(client: ServiceBusAdministrationClient, bus: Namespace) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN],
        key_name="testkey",
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25k",
    )
    client.create_queue("target")
    queue = client.create_queue(
        "a/b",
        authorization_rules=[rule],
        auto_delete_on_idle=datetime.timedelta(minutes=10),
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live="PT11M2S",
        duplicate_detection_history_time_window=datetime.timedelta(minutes=12, seconds=3),
        enable_batched_operations=False,
        enable_express=True,
        enable_partitioning=True,
        lock_duration=datetime.timedelta(seconds=13),
        max_delivery_count=14,
        max_size_in_megabytes=3072,
        requires_session=True,
        forward_to="target",
        forward_dead_lettered_messages_to="target",
        user_metadata="a <b> & 'c' \"d\" é\n",
    )
    assert queue.name == "a/b"
    assert queue.max_size_in_megabytes == 49152
    assert queue.default_message_time_to_live == datetime.timedelta(minutes=11, seconds=2)
    assert queue.lock_duration == datetime.timedelta(seconds=13)
    assert queue.auto_delete_on_idle == datetime.timedelta(minutes=10)
    assert queue.forward_to == queue.forward_dead_lettered_messages_to == f"sb://{HOST}/target"
    assert queue.user_metadata == "a <b> & 'c' \"d\" é\n"
    assert queue.enable_partitioning is queue.requires_session is queue.enable_express is True
    assert queue.enable_batched_operations is False
    (read,) = queue.authorization_rules
    assert (read.key_name, read.primary_key, read.secondary_key) == ("testkey", "cHJpbWFyeQ==", "c2Vjb25k")
    assert read.rights == ["Manage", "Send", "Listen"]
    stored = bus.entities["a/b"]
    assert (stored.max_size_in_megabytes, stored.partition_count) == (3072, 16)


def test_what_was_read_can_be_sent_back(client: ServiceBusAdministrationClient, bus: Namespace) -> None:
    client.create_queue("target")
    client.create_queue("q", enable_partitioning=True, forward_to="target", user_metadata="m")
    before = bus.entities["q"]
    client.update_queue(client.get_queue("q"))
    assert bus.entities["q"] == before
    topic = client.create_topic("t", enable_partitioning=True)
    before = bus.entities["t"]
    client.update_topic(topic)
    assert bus.entities["t"] == before
    client.create_subscription("t", "s", forward_to="q")
    kept = bus.subscriptions["t", "s"]
    client.update_subscription("t", client.get_subscription("t", "s"))
    assert bus.subscriptions["t", "s"] == kept


def test_an_update_changes_and_clears(client: ServiceBusAdministrationClient) -> None:
    queue = client.create_queue("q", forward_to="x", max_size_in_megabytes=2048)
    queue.max_delivery_count = 99
    queue.max_size_in_megabytes = 1024
    queue.forward_to = None
    queue.status = "SendDisabled"
    client.update_queue(queue)
    read = client.get_queue("q")
    assert (read.max_delivery_count, read.max_size_in_megabytes, read.status) == (99, 1024, "SendDisabled")
    assert read.forward_to is None


def test_refusals_reach_the_client(client: ServiceBusAdministrationClient) -> None:
    queue = client.create_queue("q")
    with pytest.raises(ResourceExistsError):
        client.create_queue("Q")
    with pytest.raises(HttpResponseError, match="RequiresSession property of an existing Queue cannot be changed"):
        client.update_queue(queue, requires_session=True)
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        client.update_queue(queue, lock_duration=datetime.timedelta(days=25))
    with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes"):
        client.create_queue("big", max_message_size_in_kilobytes=1024)
    queue.name = "missing"
    with pytest.raises(ResourceNotFoundError):
        client.update_queue(queue)
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("missing")
    with pytest.raises(ResourceNotFoundError):
        client.get_topic_runtime_properties("missing")
    client.delete_queue("q")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue("q")


def test_runtime_properties_of_a_queue(client: ServiceBusAdministrationClient) -> None:
    client.create_queue("q")
    info = client.get_queue_runtime_properties("q")
    assert info.name == "q"
    assert info.size_in_bytes == 7_000_000_000
    assert info.total_message_count == 15
    counts = (info.active_message_count, info.dead_letter_message_count, info.scheduled_message_count)
    assert counts == (1, 2, 3)
    assert (info.transfer_message_count, info.transfer_dead_letter_message_count) == (4, 5)
    assert info.created_at_utc == datetime.datetime(2021, 4, 19, 17, 23, 6, 253000, datetime.UTC)
    assert info.accessed_at_utc == datetime.datetime(2021, 4, 19, 17, 23, 6, 254000, datetime.UTC)
    assert client.get_queue("q").availability_status == "Limited"


def test_runtime_properties_of_topics_and_subscriptions(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("t")
    client.create_subscription("t", "s")
    topic = client.get_topic_runtime_properties("t")
    assert (topic.subscription_count, topic.scheduled_message_count, topic.size_in_bytes) == (6, 3, 7_000_000_000)
    info = client.get_subscription_runtime_properties("t", "s")
    assert (info.name, info.total_message_count, info.active_message_count) == ("s", 15, 1)
    assert [each.name for each in client.list_subscriptions_runtime_properties("t")] == ["s"]
    assert [each.name for each in client.list_topics_runtime_properties()] == ["t"]


def test_an_entity_never_used_was_accessed_in_year_one() -> None:
    bus = Namespace(info=RuntimeInfo())
    client = ServiceBusAdministrationClient.from_connection_string(KEYS, transport=bus)
    client.create_queue("q")
    assert client.get_queue_runtime_properties("q").accessed_at_utc.year == 1


def test_lists_are_followed_page_by_page(client: ServiceBusAdministrationClient, bus: Namespace) -> None:
    names = [f"queue-{n:03d}" for n in range(250)]
    for name in names:
        bus.entities[name] = admit_create(QueueDescription(path=name), STANDARD, NOW_MS, str)
    bus.entities["t"] = admit_create(TopicDescription(path="t"), STANDARD, NOW_MS, str)
    assert [queue.name for queue in client.list_queues()] == names
    assert [queue.name for queue in client.list_queues(max_page_size=7, start_index=240)] == names[240:]
    assert [topic.name for topic in client.list_topics()] == ["t"]
    assert len(list(client.list_queues_runtime_properties())) == 250


def test_an_empty_list(client: ServiceBusAdministrationClient) -> None:
    assert list(client.list_queues()) == []


def test_a_topic(client: ServiceBusAdministrationClient) -> None:
    topic = client.create_topic("t", support_ordering=False, enable_express=True, max_size_in_megabytes=2048)
    assert topic.support_ordering is False
    assert topic.max_size_in_megabytes == 2048
    assert client.get_topic("t").enable_express is True


def test_a_subscription(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("a/t")
    made = client.create_subscription(
        "a/t", "s", requires_session=True, dead_lettering_on_filter_evaluation_exceptions=False, user_metadata="x"
    )
    assert made.name == "s"
    read = client.get_subscription("A/t", "S")
    assert read.requires_session is True
    assert read.dead_lettering_on_filter_evaluation_exceptions is False
    assert read.user_metadata == "x"
    with pytest.raises(ResourceNotFoundError):
        client.get_subscription("a/t", "none")


def test_the_default_rule(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("t")
    client.create_subscription("t", "s")
    (rule,) = client.list_rules("t", "s")
    assert rule.name == "$Default"
    assert isinstance(rule.filter, TrueRuleFilter)
    assert rule.action is None
    assert client.get_rule("t", "s", "$Default").created_at_utc.year == 2021


PARAMETERS = {
    "@s": "str1 <&>",
    "@i": 2,
    "@l": 2**40,
    "@b": False,
    "@d": 1.5,
    "@t": datetime.datetime(2020, 7, 5, 11, 12, 13),
    "@p": datetime.timedelta(days=1, hours=2, minutes=3),
}


def test_rules_keep_their_typed_values(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("t")
    client.create_subscription("t", "s")
    client.create_rule(
        "t",
        "s",
        "correlated",
        filter=CorrelationRuleFilter(correlation_id="testcid", label="l & m", properties=dict(PARAMETERS)),
        action=SqlRuleAction("SET Priority = @s", parameters=dict(PARAMETERS)),
    )
    read = client.get_rule("t", "s", "correlated")
    assert (read.filter.correlation_id, read.filter.label) == ("testcid", "l & m")
    assert read.filter.message_id is None
    assert dict(read.filter.properties) == PARAMETERS
    assert read.action.sql_expression == "SET Priority = @s"
    assert dict(read.action.parameters) == PARAMETERS


def test_sql_and_constant_filters(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("t")
    client.create_subscription("t", "s")
    client.create_rule("t", "s", "sql", filter=SqlRuleFilter("Priority = @s AND a < 1", parameters=dict(PARAMETERS)))
    client.create_rule("t", "s", "false", filter=FalseRuleFilter())
    sql = client.get_rule("t", "s", "sql")
    assert sql.filter.sql_expression == "Priority = @s AND a < 1"
    assert sql.filter.requires_preprocessing is True
    assert dict(sql.filter.parameters) == PARAMETERS
    assert isinstance(client.get_rule("t", "s", "false").filter, FalseRuleFilter)
    sql.filter = CorrelationRuleFilter(label="x")
    client.update_rule("t", "s", sql)
    assert client.get_rule("t", "s", "sql").filter.label == "x"
    assert [rule.name for rule in client.list_rules("t", "s")] == ["$Default", "sql", "false"]


def test_the_namespace(client: ServiceBusAdministrationClient) -> None:
    info = client.get_namespace_properties()
    assert (info.name, info.messaging_sku, info.namespace_type) == ("bus", "Standard", "Messaging")
    assert info.alias is None


def test_premium() -> None:
    client = ServiceBusAdministrationClient.from_connection_string(KEYS, transport=Namespace(PREMIUM))
    assert client.get_namespace_properties().messaging_units == 1
    queue = client.create_queue("q", max_message_size_in_kilobytes=2048, max_size_in_megabytes=81920)
    assert (queue.max_message_size_in_kilobytes, queue.max_size_in_megabytes) == (2048, 81920)
    with pytest.raises(HttpResponseError, match="Partitioning cannot be enabled"):
        client.create_queue("p", enable_partitioning=True)


def test_an_old_api_version(bus: Namespace) -> None:
    client = ServiceBusAdministrationClient.from_connection_string(KEYS, transport=bus, api_version="2017-04")
    assert client.create_queue("q").max_message_size_in_kilobytes is None
    with pytest.raises(HttpResponseError, match="needs api-version"):
        client.create_queue("r", max_message_size_in_kilobytes=256)
