"""AMQP over WebSocket: with the official SDK over TLS, and by hand where it must be refused."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient

from polybus.namespace.entities.description import QueueDescription
from tests.system.http.kit import KEY, KEY_NAME, Server

PATH = "/$servicebus/websocket"
HEADER = b"AMQP\x03\x01\x00\x00"
WAIT_S = 30


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_S * 2))


def client(server: Server) -> ServiceBusClient:
    connection = f"Endpoint=sb://localhost:{server.secure_port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"
    return ServiceBusClient.from_connection_string(
        connection,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://localhost:{server.secure_port}",
        connection_verify=server.authority,
        retry_total=0,
    )


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_sdk_sends_and_receives(server: Server, partitioned: bool) -> None:
    name = f"q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, enable_partitioning=partitioned)))
    bodies = {f"m{number}" for number in range(50)} | {"x" * 200_000}

    async def scenario() -> set[str]:
        found: set[str] = set()
        async with client(server) as bus:
            async with bus.get_queue_sender(name) as sender:
                for body in bodies:
                    await sender.send_messages(ServiceBusMessage(body))
            async with bus.get_queue_receiver(name, max_wait_time=WAIT_S) as receiver:
                while len(found) < len(bodies):
                    for message in await receiver.receive_messages(10, max_wait_time=WAIT_S):
                        found.add(str(message))
                        await receiver.complete_message(message)
        return found

    assert run(scenario()) == bodies
    assert server.do(lambda: server.namespace.entity(name).counts().result()).total == 0


async def connect(server: Server, path: str = PATH, **options: Any) -> aiohttp.ClientWebSocketResponse:
    """A WebSocket over plain HTTP; the session is closed with it."""
    session = aiohttp.ClientSession()
    try:
        socket = await session.ws_connect(f"{server.url}{path}", **options)
    except BaseException:
        await session.close()
        raise
    socket.session = session  # type: ignore[attr-defined]
    return socket


async def finish(socket: aiohttp.ClientWebSocketResponse) -> None:
    await socket.close()
    await socket.session.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", [PATH, f"{PATH}/", "/%24ServiceBus/WebSocket"])
@pytest.mark.parametrize("asked", ["AMQPWSB10", "amqp", "AMQP"])
def test_the_protocol_is_echoed_and_amqp_speaks(server: Server, path: str, asked: str) -> None:
    async def scenario() -> tuple[str | None, bytes]:
        socket = await connect(server, path, protocols=("other", asked))
        await socket.send_bytes(HEADER[:3])
        await socket.send_bytes(HEADER[3:])
        answer = b""
        while len(answer) < 8:
            answer += await socket.receive_bytes(timeout=WAIT_S)
        await finish(socket)
        return socket.protocol, answer

    protocol, answer = run(scenario())
    assert protocol == asked
    assert answer.startswith(HEADER)


def test_the_connection_is_counted_and_forgotten(server: Server) -> None:
    async def scenario() -> None:
        server.wait_until(lambda: not server.gateway.connections)
        socket = await connect(server, protocols=("AMQPWSB10",))
        server.wait_until(lambda: len(server.gateway.connections) == 1)
        await finish(socket)
        server.wait_until(lambda: not server.gateway.connections)

    run(scenario())


def test_what_is_not_amqp_ends_the_socket(server: Server) -> None:
    async def scenario(send: Any) -> aiohttp.WSMessage:
        socket = await connect(server, protocols=("AMQPWSB10",))
        await send(socket)
        while True:
            message = await socket.receive(timeout=WAIT_S)
            if message.type is not aiohttp.WSMsgType.BINARY:
                await finish(socket)
                return message

    text = run(scenario(lambda socket: socket.send_str("AMQP")))
    assert (text.type, text.data) == (aiohttp.WSMsgType.CLOSE, 1003)
    garbage = run(scenario(lambda socket: socket.send_bytes(b"GET / HTTP/1.1\r\n\r\n")))
    assert garbage.type is aiohttp.WSMsgType.CLOSE


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/", {}, 404),
        ("/orders", {}, 404),
        ("/$servicebus", {}, 404),
        (f"{PATH}/x", {}, 404),
        (PATH, {"protocols": ("mqtt",)}, 400),
        (PATH, {"origin": "https://evil.example"}, 403),
        (PATH, {"origin": "null"}, 403),
        (PATH, {"origin": "http://127.0.0.1:1"}, 403),
    ],
)
def test_others_are_refused_before_the_handshake(
    server: Server, path: str, options: dict[str, Any], status: int
) -> None:
    async def scenario() -> aiohttp.WSServerHandshakeError:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connect(server, path, **options)
        return refused.value

    assert run(scenario()).status == status


def test_the_own_origin_is_allowed(server: Server) -> None:
    async def scenario() -> None:
        await finish(await connect(server, origin=server.url, protocols=("AMQPWSB10",)))

    run(scenario())


def test_a_plain_request_to_the_path_is_told_what_is_wrong(server: Server) -> None:
    with server.client() as http:
        assert http.get(PATH).status_code == 400


def test_tls_is_verified_with_our_authority(server: Server) -> None:
    async def scenario() -> None:
        context = ssl.create_default_context(cafile=server.authority)
        async with aiohttp.ClientSession() as session:
            url = f"wss://localhost:{server.secure_port}{PATH}"
            async with session.ws_connect(url, ssl=context, protocols=("AMQPWSB10",)) as socket:
                assert socket.protocol == "AMQPWSB10"

    run(scenario())
