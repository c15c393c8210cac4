"""The resource manager's API with the official management SDK, unmodified but for its address."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.mgmt.servicebus import ServiceBusManagementClient, models

from tests.system.http.kit import KEY, KEY_NAME, NAMESPACE, Server

GROUP = "group"
PLACE = (GROUP, NAMESPACE)
MINUTE = datetime.timedelta(minutes=1)


class Signature:
    """A credential whose token is a shared access signature of the namespace."""

    def __init__(self, server: Server, key_name: str = KEY_NAME, key: str = KEY) -> None:
        self._token = server.token("", key_name, key)

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        del scopes, options
        return AccessToken(self._token, int(time.time()) + 3600)


def connect(server: Server, credential: Any) -> ServiceBusManagementClient:
    return ServiceBusManagementClient(
        credential,
        str(uuid.UUID(int=1)),
        base_url=f"https://localhost:{server.secure_port}",
        connection_verify=server.authority,
        retry_total=0,
    )


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusManagementClient]:
    with connect(server, Signature(server)) as client:
        yield client


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_queue_is_created_changed_listed_and_deleted(
    server: Server, client: ServiceBusManagementClient, partitioned: bool
) -> None:
    name = f"q-{partitioned}"
    asked = models.SBQueue(
        properties=models.SBQueueProperties(
            enable_partitioning=partitioned, lock_duration=MINUTE, max_delivery_count=4, user_metadata="mine"
        )
    )
    made = client.queues.create_or_update(*PLACE, name, asked)
    assert made.name == name
    assert made.type == "Microsoft.ServiceBus/namespaces/queues"
    assert made.properties is not None
    assert (made.properties.enable_partitioning, made.properties.lock_duration) == (partitioned, MINUTE)
    assert made.properties.max_size_in_megabytes == (16 * 1024 if partitioned else 1024)
    assert len(server.namespace.entity(name).partitions) == (16 if partitioned else 1)
    changed = models.SBQueue(properties=models.SBQueueProperties(max_delivery_count=7))
    assert client.queues.create_or_update(*PLACE, name, changed).properties.max_delivery_count == 7  # type: ignore[union-attr]
    again = client.queues.get(*PLACE, name)
    assert again.properties is not None
    assert again.properties.enable_partitioning is partitioned
    assert again.properties.count_details is not None
    assert again.properties.count_details.active_message_count == 0
    assert name in [each.name for each in client.queues.list_by_namespace(*PLACE)]
    client.queues.delete(*PLACE, name)
    client.queues.delete(*PLACE, name)
    with pytest.raises(ResourceNotFoundError):
        client.queues.get(*PLACE, name)


def test_what_is_fixed_is_not_changed(client: ServiceBusManagementClient) -> None:
    client.queues.create_or_update(*PLACE, "fixed", models.SBQueue(properties=models.SBQueueProperties()))
    with pytest.raises(HttpResponseError) as refused:
        asked = models.SBQueue(properties=models.SBQueueProperties(enable_partitioning=True))
        client.queues.create_or_update(*PLACE, "fixed", asked)
    assert refused.value.status_code == 400
    assert refused.value.error is not None
    assert (refused.value.error.code, "Partitioning" in str(refused.value.error.message)) == ("BadRequest", True)


def test_topics_subscriptions_and_rules(server: Server, client: ServiceBusManagementClient) -> None:
    client.topics.create_or_update(
        *PLACE, "news", models.SBTopic(properties=models.SBTopicProperties(enable_partitioning=True))
    )
    subscription = models.SBSubscription(properties=models.SBSubscriptionProperties(lock_duration=MINUTE))
    client.subscriptions.create_or_update(*PLACE, "news", "eu", subscription)
    sql = models.Rule(
        properties=models.Ruleproperties(
            filter_type="SqlFilter",
            sql_filter=models.SqlFilter(sql_expression="country = 'DE'"),
            action=models.Action(sql_expression="SET seen = TRUE"),
        )
    )
    made = client.rules.create_or_update(*PLACE, "news", "eu", "german", sql)
    assert made.properties is not None
    assert made.properties.sql_filter is not None
    assert made.properties.sql_filter.sql_expression == "country = 'DE'"
    correlation = models.Rule(
        properties=models.Ruleproperties(
            filter_type="CorrelationFilter",
            correlation_filter=models.CorrelationFilter(label="urgent", properties={"country": "FR"}),
        )
    )
    client.rules.create_or_update(*PLACE, "news", "eu", "french", correlation)
    client.rules.delete(*PLACE, "news", "eu", "$Default")
    names = [each.name for each in client.rules.list_by_subscriptions(*PLACE, "news", "eu")]
    assert sorted(str(name) for name in names) == ["french", "german"]
    found = client.rules.get(*PLACE, "news", "eu", "french").properties
    assert found is not None
    assert found.correlation_filter is not None
    assert (found.correlation_filter.label, found.correlation_filter.properties) == ("urgent", {"country": "FR"})
    assert [each.name for each in client.subscriptions.list_by_topic(*PLACE, "news")] == ["eu"]
    topic = client.topics.get(*PLACE, "news").properties
    assert topic is not None
    assert topic.subscription_count == 1
    client.subscriptions.delete(*PLACE, "news", "eu")
    client.topics.delete(*PLACE, "news")
    assert server.namespace.find("news") is None


def test_keys_of_an_entity_open_it(server: Server, client: ServiceBusManagementClient) -> None:
    client.queues.create_or_update(*PLACE, "keyed", models.SBQueue(properties=models.SBQueueProperties()))
    rule = models.SBAuthorizationRule(properties=models.SBAuthorizationRuleProperties(rights=["Send"]))
    client.queues.create_or_update_authorization_rule(*PLACE, "keyed", "out", rule)
    keys = client.queues.list_keys(*PLACE, "keyed", "out")
    assert keys.primary_key
    assert keys.primary_connection_string is not None
    assert keys.primary_connection_string.endswith(";EntityPath=keyed")
    with server.client("keyed", "out", keys.primary_key) as http:
        assert http.post("/keyed/messages", content=b"x").status_code == 201
        assert http.delete("/keyed/messages/head").status_code == 401
    renewed = client.queues.regenerate_keys(
        *PLACE, "keyed", "out", models.RegenerateAccessKeyParameters(key_type="PrimaryKey")
    )
    assert renewed.primary_key != keys.primary_key
    with server.client("keyed", "out", keys.primary_key) as http:
        assert http.post("/keyed/messages", content=b"x").status_code == 401
    assert [each.name for each in client.queues.list_authorization_rules(*PLACE, "keyed")] == ["out"]
    client.queues.delete_authorization_rule(*PLACE, "keyed", "out")
    assert [each.name for each in client.queues.list_authorization_rules(*PLACE, "keyed")] == []


def test_the_namespace_is_what_the_bus_was_started_with(server: Server, client: ServiceBusManagementClient) -> None:
    asked = models.SBNamespace(location="anywhere", sku=models.SBSku(name="Standard"))
    made = client.namespaces.begin_create_or_update(*PLACE, asked).result()
    assert (made.name, made.sku.name if made.sku else None) == (NAMESPACE, "Standard")
    assert NAMESPACE in [each.name for each in client.namespaces.list_by_resource_group(GROUP)]
    keys = client.namespaces.list_keys(*PLACE, KEY_NAME)
    assert keys.primary_key == KEY
    with pytest.raises(HttpResponseError):
        client.namespaces.begin_create_or_update(
            *PLACE, models.SBNamespace(location="x", sku=models.SBSku(name="Premium"))
        ).result()
    with pytest.raises(ResourceNotFoundError):
        client.queues.get(GROUP, "elsewhere", "q")


def test_lists_have_pages(server: Server, client: ServiceBusManagementClient) -> None:
    for number in range(5):
        client.queues.create_or_update(
            *PLACE, f"page-{number}", models.SBQueue(properties=models.SBQueueProperties())
        )
    everything = [each.name for each in client.queues.list_by_namespace(*PLACE)]
    assert [each.name for each in client.queues.list_by_namespace(*PLACE, top=2)] == everything


def test_another_key_opens_nothing(server: Server) -> None:
    for credential in (Signature(server, KEY_NAME, "wrong"), Signature(server, "sender", "send key")):
        with (
            connect(server, credential) as client,
            pytest.raises((ClientAuthenticationError, HttpResponseError)) as no,
        ):
            client.queues.get(*PLACE, "q")
        assert no.value.status_code == 401
