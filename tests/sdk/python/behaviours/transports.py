"""The other ways to the bus: TLS, WebSocket, one port for everything."""

from __future__ import annotations

import ssl

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.python.bus import ROOT, ROOT_KEY, WAIT, Bus, numbered, peek_all, take, texts
from tests.sdk.python.table import Table

table = Table("transports")

KEY = f"SharedAccessKeyName={ROOT};SharedAccessKey={ROOT_KEY}"


def everyday(bus: Bus, client: ServiceBusClient) -> None:
    """What an application does in a day."""
    queue = bus.queue(requires_session=True)
    sender = queue.sender(client)
    sender.send_messages(numbered(3, session_id="s"))
    sender.send_messages(ServiceBusMessage(b"x" * 200_000, session_id="s"))
    receiver = queue.receiver(client, session_id="s")
    assert texts(take(receiver, 3)) == ["0", "1", "2"]
    receiver.session.set_state(b"state")
    assert receiver.session.get_state() == b"state"
    assert len(b"".join(take(receiver, 1)[0].body)) == 200_000
    assert peek_all(receiver) == []


async def everyday_async(bus: Bus, client: AsyncClient) -> None:
    queue = bus.queue()
    async with client, client.get_queue_sender(queue.name) as sender:
        await sender.send_messages(numbered(3))
        await sender.send_messages(ServiceBusMessage(b"x" * 200_000, partition_key="one"))
        async with client.get_queue_receiver(queue.name) as receiver:
            assert len(await receiver.peek_messages(10)) == 4
            bodies = []
            while len(bodies) < 4:
                for message in await receiver.receive_messages(4, max_wait_time=WAIT):
                    bodies.append(b"".join(message.body))
                    await receiver.complete_message(message)
            assert bodies == [b"0", b"1", b"2", b"x" * 200_000]
    assert peek_all(queue.receiver()) == []


@table.behaviour()
def tls(bus: Bus) -> None:
    host, options = bus.secure()
    everyday(bus, bus.opened(ServiceBusClient.from_connection_string(f"Endpoint=sb://{host};{KEY}", **options)))


@table.behaviour()
async def tls_asynchronously(bus: Bus) -> None:
    host, options = bus.secure()
    await everyday_async(bus, AsyncClient.from_connection_string(f"Endpoint=sb://{host};{KEY}", **options))


@table.behaviour(since="7.14")
def tls_with_a_context_of_ones_own(bus: Bus) -> None:
    context = ssl.create_default_context(cafile=str(bus.server.authority))
    host, options = bus.secure(connection_verify=None, ssl_context=context)
    everyday(bus, bus.opened(ServiceBusClient.from_connection_string(f"Endpoint=sb://{host};{KEY}", **options)))


@table.behaviour()
def a_certificate_that_is_not_trusted(bus: Bus) -> None:
    host, options = bus.secure()
    del options["connection_verify"]
    client = ServiceBusClient.from_connection_string(f"Endpoint=sb://{host};{KEY}", retry_total=0, **options)
    queue = bus.queue()
    with pytest.raises(ServiceBusError):
        queue.sender(bus.opened(client))


@table.behaviour(since="7.14")
def every_port_speaks_everything(bus: Bus) -> None:
    for name in ("http", "tls"):
        string = bus.server.connection_string_for(address=bus.server.addresses[name])
        queue = bus.queue()
        queue.sender(bus.client_with(string)).send_messages(ServiceBusMessage(name))
        assert texts(take(queue.receiver(), 1)) == [name]


@table.behaviour()
async def websocket_over_tls(bus: Bus) -> None:
    host, port = bus.server.addresses["tls"].rsplit(":", 1)
    client = AsyncClient.from_connection_string(
        f"Endpoint=sb://{host};{KEY}",
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"https://{host}:{port}",
        connection_verify=str(bus.server.authority),
    )
    await everyday_async(bus, client)


@table.behaviour(since="7.14")
async def websocket_without_tls(bus: Bus) -> None:
    host, port = bus.server.addresses["http"].rsplit(":", 1)
    client = AsyncClient.from_connection_string(
        f"Endpoint=sb://{host};{KEY};UseDevelopmentEmulator=true",
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"http://{host}:{port}",
    )
    await everyday_async(bus, client)


@table.behaviour()
def websocket_synchronously(bus: Bus) -> None:
    pytest.importorskip("websocket", reason="the synchronous SDK speaks WebSocket through websocket-client")
    host, port = bus.server.addresses["tls"].rsplit(":", 1)
    client = ServiceBusClient.from_connection_string(
        f"Endpoint=sb://{host};{KEY}",
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"https://{host}:{port}",
        connection_verify=str(bus.server.authority),
    )
    everyday(bus, bus.opened(client))
