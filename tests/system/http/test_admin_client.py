"""Every call of the unmodified Python administration client, sync and async, over TLS, on plain and partitioned
entities. The client's own models do the reading, so a wrong element shows as a wrong value."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
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

from polybus.message.message import build
from polybus.promise import Promise
from tests.system.http.kit import Server

Admin = Any


class Blocking:
    """The async client, one call at a time."""

    def __init__(self, connection_string: str, authority: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(self._open(connection_string, authority))

    async def _open(self, connection_string: str, authority: str) -> AsyncAdministrationClient:
        options = {"connection_verify": authority, "retry_total": 0}
        return AsyncAdministrationClient.from_connection_string(connection_string, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            if inspect.iscoroutine(result):
                return self._loop.run_until_complete(result)
            return self._loop.run_until_complete(_gathered(result))

        return call

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


async def _gathered(pages: Any) -> list[Any]:
    return [item async for item in pages]


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Admin]:
    if request.param == "async":
        blocking = Blocking(server.connection_string, server.authority)
        yield blocking
        blocking.close()
    else:
        options = {"connection_verify": server.authority, "retry_total": 0}
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string, **options) as sync:
            yield sync


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def name() -> str:
    return f"dir/{uuid.uuid4().hex}"


def send(server: Server, path: str, *bodies: bytes) -> None:
    def start() -> Promise[list[int]]:
        promise: Promise[list[int]] = Promise()
        namespace = server.namespace
        namespace.send(namespace.entity(path), [build(body) for body in bodies], promise.reply, None)
        return promise

    promise = server.do(start)
    server.wait_until(lambda: promise.settled)
    promise.result()


def test_a_queue_lives_from_creation_to_deletion(client: Admin, name: str, partitioned: bool) -> None:
    created = client.create_queue(name, enable_partitioning=partitioned, max_size_in_megabytes=3072)
    assert created.name == name
    assert created.enable_partitioning is partitioned
    assert created.max_size_in_megabytes == (49152 if partitioned else 3072)
    assert created.lock_duration == datetime.timedelta(minutes=1)
    assert created.max_message_size_in_kilobytes == 256

    queue = client.get_queue(name)
    queue.lock_duration = datetime.timedelta(seconds=13)
    queue.max_delivery_count = 14
    queue.default_message_time_to_live = datetime.timedelta(days=7)
    queue.dead_lettering_on_message_expiration = True
    queue.user_metadata = '<x>&amp; "y"'
    client.update_queue(queue)
    again = client.get_queue(name)
    assert again.lock_duration == datetime.timedelta(seconds=13)
    assert again.max_delivery_count == 14
    assert again.default_message_time_to_live == datetime.timedelta(days=7)
    assert again.dead_lettering_on_message_expiration is True
    assert again.user_metadata == '<x>&amp; "y"'
    assert again.max_size_in_megabytes == created.max_size_in_megabytes

    client.delete_queue(name)
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(name)
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue(name)


def test_a_queue_can_be_created_again_without_partitioning(client: Admin, server: Server, name: str) -> None:
    client.create_queue(name, enable_partitioning=True)
    send(server, name, b"old")
    client.delete_queue(name)
    client.create_queue(name, enable_partitioning=False)
    assert client.get_queue(name).enable_partitioning is False
    assert client.get_queue_runtime_properties(name).total_message_count == 0


def test_runtime_properties_count_what_is_there(client: Admin, server: Server, name: str, partitioned: bool) -> None:
    client.create_queue(name, enable_partitioning=partitioned)
    fresh = client.get_queue_runtime_properties(name)
    assert (fresh.total_message_count, fresh.size_in_bytes) == (0, 0)
    for body in (b"a", b"b", b"c"):
        send(server, name, body)
    counted = client.get_queue_runtime_properties(name)
    assert counted.active_message_count == 3
    assert counted.total_message_count == 3
    assert counted.dead_letter_message_count == counted.scheduled_message_count == 0
    assert counted.transfer_message_count == counted.transfer_dead_letter_message_count == 0
    assert counted.size_in_bytes > 0
    assert counted.accessed_at_utc >= counted.created_at_utc
    assert counted.updated_at_utc == counted.created_at_utc
    assert counted.name in [each.name for each in client.list_queues_runtime_properties()]


def test_a_topic_lives_from_creation_to_deletion(client: Admin, server: Server, name: str, partitioned: bool) -> None:
    created = client.create_topic(name, enable_partitioning=partitioned, support_ordering=True)
    assert created.enable_partitioning is partitioned
    assert created.support_ordering is not partitioned
    created.default_message_time_to_live = datetime.timedelta(days=3)
    client.update_topic(created)
    assert client.get_topic(name).default_message_time_to_live == datetime.timedelta(days=3)
    assert name in [topic.name for topic in client.list_topics()]
    client.create_subscription(name, "s")
    send(server, name, b"a")
    counted = client.get_topic_runtime_properties(name)
    assert (counted.subscription_count, counted.scheduled_message_count) == (1, 0)
    assert counted.size_in_bytes > 0
    assert name in [topic.name for topic in client.list_topics_runtime_properties()]
    client.delete_topic(name)
    with pytest.raises(ResourceNotFoundError):
        client.get_topic(name)


def test_a_subscription_lives_from_creation_to_deletion(
    client: Admin, server: Server, name: str, partitioned: bool
) -> None:
    client.create_topic(name, enable_partitioning=partitioned)
    created = client.create_subscription(name, "s-1", lock_duration=datetime.timedelta(seconds=20))
    assert created.name == "s-1"
    assert created.dead_lettering_on_filter_evaluation_exceptions is True
    created.max_delivery_count = 5
    client.update_subscription(name, created)
    again = client.get_subscription(name, "s-1")
    assert (again.max_delivery_count, again.lock_duration) == (5, datetime.timedelta(seconds=20))
    send(server, name, b"a")
    send(server, name, b"b")
    counted = client.get_subscription_runtime_properties(name, "s-1")
    assert (counted.active_message_count, counted.total_message_count) == (2, 2)
    client.create_subscription(name, "s-0")
    assert [each.name for each in client.list_subscriptions(name)] == ["s-0", "s-1"]
    listed = client.list_subscriptions_runtime_properties(name)
    assert [(each.name, each.total_message_count) for each in listed] == [("s-0", 0), ("s-1", 2)]
    client.delete_subscription(name, "s-1")
    with pytest.raises(ResourceNotFoundError, match=f"Topic:{name}\\|s-1"):
        client.get_subscription(name, "s-1")
    with pytest.raises(ResourceNotFoundError):
        client.delete_subscription(name, "s-1")
    with pytest.raises(ResourceNotFoundError):
        client.update_subscription(name, created)


def test_rules_live_from_creation_to_deletion(client: Admin, name: str, partitioned: bool) -> None:
    client.create_topic(name, enable_partitioning=partitioned)
    client.create_subscription(name, "s")
    properties = {"n": 5, "long": 2**40, "b": True, "f": 1.5, "s": "x"}
    filters = {
        "correlation": CorrelationRuleFilter(correlation_id="c", label="l", properties=properties),
        "sql": SqlRuleFilter("a = @p AND b > 2", parameters={"@p": 7}),
        "no": FalseRuleFilter(),
        "yes": TrueRuleFilter(),
    }
    for each, rule_filter in filters.items():
        client.create_rule(name, "s", each, filter=rule_filter)
    assert [rule.name for rule in client.list_rules(name, "s")] == ["$Default", "correlation", "sql", "no", "yes"]
    assert client.get_rule(name, "s", "correlation").filter.properties == properties
    assert client.get_rule(name, "s", "sql").filter.parameters == {"@p": 7}
    assert isinstance(client.get_rule(name, "s", "no").filter, FalseRuleFilter)
    rule = client.get_rule(name, "s", "sql")
    rule.filter = SqlRuleFilter("a = 1")
    rule.action = SqlRuleAction("SET x = 2")
    client.update_rule(name, "s", rule)
    changed = client.get_rule(name, "s", "sql")
    assert (changed.filter.sql_expression, changed.action.sql_expression) == ("a = 1", "SET x = 2")
    client.delete_rule(name, "s", "$Default")
    with pytest.raises(ResourceNotFoundError):
        client.get_rule(name, "s", "$Default")
    with pytest.raises(ResourceExistsError, match=r"\|s\|sql"):
        client.create_rule(name, "s", "sql")
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        client.create_rule(name, "s", "bad", filter=SqlRuleFilter("a ="))


def test_lists_come_in_pages_of_a_hundred(client: Admin, name: str) -> None:
    client.create_topic(name)
    names = [f"s{number:03}" for number in range(203)]
    for each in names:
        client.create_subscription(name, each)
    assert [each.name for each in client.list_subscriptions(name)] == names
    assert client.list_subscriptions(f"{name}-missing") is not None


def test_the_list_under_a_missing_topic_is_empty(client: Admin, name: str) -> None:
    assert list(client.list_subscriptions(name)) == []


def test_authorization_rules_are_kept_and_replaced(client: Admin, name: str) -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN],
            created_at_utc=datetime.datetime.now(datetime.UTC),
            modified_at_utc=datetime.datetime.now(datetime.UTC),
            key_name="own",
            primary_key=key,
            secondary_key=key[::-1],
        )
    ]
    client.create_queue(name, authorization_rules=rules)
    queue = client.get_queue(name)
    assert [(rule.key_name, rule.primary_key) for rule in queue.authorization_rules] == [("own", key)]
    queue.authorization_rules = []
    client.update_queue(queue)
    assert not client.get_queue(name).authorization_rules


def test_a_key_of_an_entity_opens_that_entity_only(server: Server, client: Admin, name: str) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        rights=[AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN],
        key_name="own",
        primary_key="primary",
        secondary_key="secondary",
    )
    client.create_topic(name, authorization_rules=[rule])
    client.create_queue(f"{name}-other")
    base = f"Endpoint=sb://localhost:{server.secure_port};SharedAccessKeyName=own;SharedAccessKey="
    for key in ("primary", "secondary"):
        with ServiceBusAdministrationClient.from_connection_string(
            base + key, connection_verify=server.authority, retry_total=0
        ) as own:
            assert own.get_topic(name).name == name
            own.create_subscription(name, key)
            with pytest.raises(ClientAuthenticationError):
                own.get_queue(f"{name}-other")
            with pytest.raises(ClientAuthenticationError):
                list(own.list_queues())


def test_forwarding_comes_back_as_a_url(client: Admin, name: str) -> None:
    client.create_queue(f"{name}-to")
    queue = client.create_queue(name, forward_to=f"{name}-to", forward_dead_lettered_messages_to=f"{name}-to")
    assert queue.forward_to.endswith(f"/{name}-to")
    queue = client.get_queue(name)
    assert queue.forward_dead_lettered_messages_to.endswith(f"/{name}-to")
    queue.forward_to = None
    queue.forward_dead_lettered_messages_to = None
    client.update_queue(queue)
    assert client.get_queue(name).forward_to is None
    client.create_topic(f"{name}-topic")
    subscription = client.create_subscription(f"{name}-topic", "s", forward_to=f"{name}-to")
    assert subscription.forward_to.endswith(f"/{name}-to")
    with pytest.raises(HttpResponseError, match="SubCode=40400") as refused:
        client.create_queue(f"{name}-bad", forward_to=f"{name}-nowhere")
    assert refused.value.status_code == 400


def test_what_exists_is_not_created_twice(client: Admin, name: str, partitioned: bool) -> None:
    client.create_queue(name, enable_partitioning=partitioned)
    with pytest.raises(ResourceExistsError, match="SubCode=40900"):
        client.create_queue(name.upper())
    with pytest.raises(ResourceExistsError):
        client.create_topic(name)
    with pytest.raises(ResourceExistsError):
        client.create_queue(f"{name}/below")


def test_what_is_fixed_at_creation_is_not_changed(client: Admin, name: str, partitioned: bool) -> None:
    created = client.create_queue(name, enable_partitioning=partitioned)
    created.enable_partitioning = not partitioned
    with pytest.raises(HttpResponseError, match="Partitioning cannot be changed for Queue") as refused:
        client.update_queue(created)
    assert refused.value.status_code == 400
    created.enable_partitioning = partitioned
    created.requires_session = True
    with pytest.raises(HttpResponseError, match="RequiresSession"):
        client.update_queue(created)


def test_updating_what_is_missing_fails(client: Admin, name: str) -> None:
    queue = client.create_queue(name)
    client.delete_queue(name)
    with pytest.raises(ResourceNotFoundError, match="SubCode=40400"):
        client.update_queue(queue)


def test_the_namespace_says_what_it_is(client: Admin) -> None:
    properties = client.get_namespace_properties()
    assert properties.name == "sbemulatorns"
    assert properties.messaging_sku == "Standard"
    assert properties.namespace_type == "Messaging"


def test_a_wrong_key_is_told_as_such(server: Server) -> None:
    wrong = server.connection_string.replace("SAS_KEY_VALUE", "wrong")
    with (
        ServiceBusAdministrationClient.from_connection_string(
            wrong, connection_verify=server.authority, retry_total=0
        ) as client,
        pytest.raises(ClientAuthenticationError),
    ):
        client.get_queue("any")
