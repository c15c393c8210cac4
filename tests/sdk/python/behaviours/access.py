"""Who may do what: keys, rights, tokens that run out."""

from __future__ import annotations

import time

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule

from tests.sdk.python.bus import (
    PLAIN_TCP,
    ROOT,
    ROOT_KEY,
    WAIT,
    Bus,
    Entity,
    admin_client,
    receive_one,
    signature,
    soon,
    take,
    texts,
)
from tests.sdk.python.table import Table

table = Table("access")


def token(bus: Bus, queue: Entity, seconds: float, key: str = ROOT_KEY) -> str:
    return signature(f"sb://{bus.server.addresses['amqp']}/{queue.name}", ROOT, key, time.time() + seconds)


def rule(name: str, *rights: str) -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=list(rights),
        key_name=name,
        primary_key=f"primary key of {name}",
        secondary_key=f"secondary key of {name}",
    )


def client_of(bus: Bus, key_name: str, key: str | None = None) -> ServiceBusClient:
    return bus.client_with(bus.connection_string(key_name, key or f"primary key of {key_name}"), retry_total=0)


@table.behaviour()
def a_wrong_key(bus: Bus) -> None:
    queue = bus.queue()
    client = client_of(bus, ROOT, "wrong")
    with pytest.raises(ServiceBusAuthenticationError):
        queue.sender(client)
    with pytest.raises(ServiceBusAuthenticationError):
        queue.receiver(client)


@table.behaviour()
def an_unknown_key_name(bus: Bus) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        bus.queue().receiver(client_of(bus, "nobody", "x"))


@table.behaviour()
def a_wrong_key_for_administration(bus: Bus) -> None:
    string = bus.server.connection_string_for(ROOT, "wrong", bus.server.addresses["http"])
    with admin_client(bus.server, string) as admin, pytest.raises(ClientAuthenticationError):
        admin.get_namespace_properties()


@table.behaviour()
def the_rights_of_an_entitys_own_keys(bus: Bus) -> None:
    queue = bus.queue(authorization_rules=[rule("sends", AccessRights.SEND), rule("listens", AccessRights.LISTEN)])
    sends, listens = client_of(bus, "sends"), client_of(bus, "listens")
    queue.sender(sends).send_messages(ServiceBusMessage("x"))
    with pytest.raises(ServiceBusAuthorizationError, match="Listen"):
        queue.receiver(sends)
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        queue.sender(listens)
    assert texts(take(queue.receiver(listens), 1)) == ["x"]


@table.behaviour()
def an_entitys_key_opens_no_other_entity(bus: Bus) -> None:
    bus.queue(authorization_rules=[rule("own", AccessRights.SEND, AccessRights.LISTEN)])
    with pytest.raises(ServiceBusError):
        bus.queue().receiver(client_of(bus, "own"))


@table.behaviour()
def the_secondary_key(bus: Bus) -> None:
    queue = bus.queue(authorization_rules=[rule("own", AccessRights.SEND)])
    queue.sender(client_of(bus, "own", "secondary key of own")).send_messages(ServiceBusMessage("x"))
    assert texts(take(queue.receiver(), 1)) == ["x"]


@table.behaviour()
def a_topics_key_opens_its_subscriptions(bus: Bus) -> None:
    topic = bus.topic(authorization_rules=[rule("own", AccessRights.SEND, AccessRights.LISTEN)])
    subscription = bus.subscription(topic)
    client = client_of(bus, "own")
    topic.sender(client).send_messages(ServiceBusMessage("x"))
    assert texts(take(subscription.receiver(client), 1)) == ["x"]


@table.behaviour()
def a_changed_key(bus: Bus) -> None:
    queue = bus.queue(authorization_rules=[rule("own", AccessRights.SEND)])
    queue.sender(client_of(bus, "own"))
    properties = bus.admin.get_queue(queue.name)
    properties.authorization_rules[0].primary_key = "new key"
    bus.admin.update_queue(properties)
    with pytest.raises(ServiceBusAuthenticationError):
        queue.sender(client_of(bus, "own"))
    queue.sender(client_of(bus, "own", "new key"))


@table.behaviour()
def a_signature_in_the_connection_string(bus: Bus) -> None:
    queue = bus.queue()
    string = f"Endpoint=sb://{bus.server.addresses['amqp']};SharedAccessSignature={token(bus, queue, 600)}"
    client = bus.client_with(f"{string};UseDevelopmentEmulator=true")
    queue.sender(client).send_messages(ServiceBusMessage("x"))
    assert texts(take(queue.receiver(client), 1)) == ["x"]


@table.behaviour()
def a_signature_that_has_expired(bus: Bus) -> None:
    queue = bus.queue()
    string = f"Endpoint=sb://{bus.server.addresses['amqp']};SharedAccessSignature={token(bus, queue, -5)}"
    client = bus.client_with(f"{string};UseDevelopmentEmulator=true", retry_total=0)
    with pytest.raises(ServiceBusAuthenticationError):
        queue.receiver(client)


@table.behaviour()
def a_signature_for_another_entity(bus: Bus) -> None:
    queue, other = bus.queue(), bus.queue()
    string = f"Endpoint=sb://{bus.server.addresses['amqp']};SharedAccessSignature={token(bus, other, 600)}"
    client = bus.client_with(f"{string};UseDevelopmentEmulator=true", retry_total=0)
    with pytest.raises(ServiceBusError):
        queue.receiver(client)


def with_credential(bus: Bus, credential: object, retries: int = 0) -> ServiceBusClient:
    """A client that is given an object instead of a connection string."""
    options = {"use_tls": False} if PLAIN_TCP else {"connection_verify": str(bus.server.authority)}
    client = ServiceBusClient(
        bus.server.addresses["amqp"], credential, retry_total=retries, retry_backoff_factor=0.05, **options
    )
    return bus.opened(client)


@table.behaviour()
def a_named_key_credential(bus: Bus) -> None:
    queue = bus.queue()
    client = with_credential(bus, AzureNamedKeyCredential(ROOT, ROOT_KEY))
    queue.sender(client).send_messages(ServiceBusMessage("x"))
    assert texts(take(queue.receiver(client), 1)) == ["x"]


@table.behaviour()
def a_signature_credential(bus: Bus) -> None:
    queue = bus.queue()
    client = with_credential(bus, AzureSasCredential(token(bus, queue, 600)))
    queue.sender(client).send_messages(ServiceBusMessage("x"))
    assert texts(take(queue.receiver(client), 1)) == ["x"]


class Tokens:
    """A credential whose tokens live for a few seconds, and say so or not."""

    def __init__(self, bus: Bus, queue: Entity, seconds: float, said: float | None = None) -> None:
        self._bus, self._queue, self._seconds, self._said = bus, queue, seconds, said or seconds
        self.given = 0

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        self.given += 1
        return AccessToken(token(self._bus, self._queue, self._seconds), int(time.time() + self._said))


@table.behaviour()
def tokens_are_renewed_during_traffic(bus: Bus) -> None:
    """The receiver outlives its first token: it waits for a message that comes when that has run out."""
    queue = bus.queue()
    credential = Tokens(bus, queue, 12)
    receiver = queue.receiver(with_credential(bus, credential))
    given = credential.given
    queue.sender().schedule_messages(ServiceBusMessage("x"), soon(14))
    receiver.complete_message(receive_one(receiver))
    assert credential.given > given


@table.behaviour()
def a_token_that_runs_out_and_cannot_be_renewed(bus: Bus) -> None:
    queue = bus.queue()
    receiver = queue.receiver(with_credential(bus, AzureSasCredential(token(bus, queue, 3)), retries=1))
    # Whoever notices first says it: the SDK, whose new attempt is refused, or the bus, which ends the link.
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
        receiver.receive_messages(max_wait_time=WAIT)


@table.behaviour()
def a_token_that_runs_out_ends_the_link(bus: Bus) -> None:
    """The SDK believes that the token lasts; the bus knows better."""
    queue = bus.queue()
    receiver = queue.receiver(with_credential(bus, Tokens(bus, queue, 3, said=600)))
    with pytest.raises(ServiceBusAuthorizationError, match=r"(?i)expired"):
        receiver.receive_messages(max_wait_time=WAIT)


class Forged:
    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        return AccessToken("eyJhbGciOiJub25lIn0.eyJhdWQiOiJ4In0.", int(time.time() + 600))


@table.behaviour()
def a_json_web_token(bus: Bus) -> None:
    """Without a verifier there is nobody who could say that it is good."""
    queue = bus.queue()
    with pytest.raises(ServiceBusAuthenticationError):
        queue.receiver(with_credential(bus, Forged()))
