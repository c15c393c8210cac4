"""What is done over HTTP and WebSocket, by strangers and by those who have a key."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import time

from polybus.amqp.frames import AMQP_HEADER, EMPTY_FRAME
from polybus.limits import LOOP_STEP_MS
from tests.support.siege.attack import Attack, Scene

ENTRY = '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{}</content></entry>'
QUEUE = '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{}</QueueDescription>'


def _flood(scene: Scene, data: bytes) -> None:
    """Sends much, and reads a little of what comes back."""
    with contextlib.suppress(OSError), scene.socket() as client:
        client.settimeout(1)
        client.sendall(data)
        client.recv(65_536)


def long_path(scene: Scene) -> None:
    _flood(scene, b"GET /" + b"a/" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")


def long_path_with_token(scene: Scene) -> None:
    _flood(scene, scene.head("GET /" + "a/" * 40_000 + " HTTP/1.1"))


def encoded_path(scene: Scene) -> None:
    _flood(scene, scene.head("GET /" + "%252F" * 15_000 + " HTTP/1.1"))


def long_query(scene: Scene) -> None:
    _flood(scene, scene.head("GET /q?" + "a=b&" * 20_000 + " HTTP/1.1"))


def many_headers(scene: Scene) -> None:
    _flood(scene, b"GET /health HTTP/1.1\r\n" + b"a:b\r\n" * 19_000 + b"\r\n")


def folded_headers(scene: Scene) -> None:
    _flood(scene, b"GET /health HTTP/1.1\r\na: b\r\n" + b" c\r\n" * 19_000 + b"\r\n")


def one_long_header(scene: Scene) -> None:
    _flood(scene, b"GET /health HTTP/1.1\r\nHost: x\r\na: " + b"b" * 200_000)


def long_host(scene: Scene) -> None:
    _flood(scene, b"GET /health HTTP/1.1\r\nHost: " + b"a." * 40_000 + b"\r\n\r\n")


def long_authorization(scene: Scene) -> None:
    _flood(
        scene, b"GET /q HTTP/1.1\r\nHost: x\r\nAuthorization: SharedAccessSignature " + b"a=b&" * 20_000 + b"\r\n\r\n"
    )


def blank_lines(scene: Scene) -> None:
    _flood(scene, b"\r\n" * 200_000)


def tiny_chunks(scene: Scene) -> None:
    head = b"POST /q/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    _flood(scene, head + b"1\r\na\r\n" * 60_000)


def chunk_extensions(scene: Scene) -> None:
    head = b"POST /q/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    _flood(scene, head + b"1;" + b"a" * 100_000)


def pipelined(scene: Scene) -> None:
    _flood(scene, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 5_000)


def no_http(scene: Scene) -> None:
    for _ in range(20):
        _flood(scene, os.urandom(2_000) + b"\r\n\r\n")


def dripping(scene: Scene) -> None:
    clients = [scene.socket() for _ in range(100)]
    for _ in range(3):
        for client in clients:
            client.sendall(b"G")
        time.sleep(0.05)
    for client in clients:
        client.close()


def lies_about_its_length(scene: Scene) -> None:
    clients = [scene.socket() for _ in range(50)]
    for client in clients:
        client.sendall(scene.head("POST /q/messages HTTP/1.1", "Content-Length: 262144") + b"x" * 1_000)
    time.sleep(0.1)
    for client in clients:
        client.close()


def huge_body(scene: Scene) -> None:
    with contextlib.suppress(OSError), scene.socket() as client:
        client.settimeout(1)
        client.sendall(scene.head("POST /q/messages HTTP/1.1", "Transfer-Encoding: chunked"))
        for _ in range(200):
            client.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def xml(scene: Scene, body: str) -> None:
    scene.ask(scene.head("PUT /victim HTTP/1.1", f"Content-Length: {len(body)}") + body.encode("latin-1"))


def deep_xml(scene: Scene) -> None:
    xml(scene, "<a>" * 40_000)


def wide_xml(scene: Scene) -> None:
    xml(scene, "<entry>" + "<a/>" * 30_000 + "</entry>")


def xml_attributes(scene: Scene) -> None:
    xml(scene, "<entry " + " ".join(f'a{n}="1"' for n in range(10_000)) + "/>")


def xml_entities(scene: Scene) -> None:
    inner = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    xml(scene, f'<!DOCTYPE l [<!ENTITY e0 "x">{inner}]><entry>&e9;</entry>')


def xml_text(scene: Scene) -> None:
    xml(scene, ENTRY.format(QUEUE.format(f"<UserMetadata>{'x' * 120_000}</UserMetadata>")))


def xml_duration(scene: Scene) -> None:
    xml(scene, ENTRY.format(QUEUE.format(f"<LockDuration>P{'1' * 100_000}D</LockDuration>")))


def long_filter(scene: Scene) -> None:
    expression = "(" * 60_000
    _flood(scene, scene.head(f"GET /$Resources/queues?$filter={expression} HTTP/1.1"))


def deep_filter(scene: Scene) -> None:
    expression = "(" * 900 + "startswith(path,'a')%20eq%20true" + ")" * 900
    _flood(scene, scene.head(f"GET /$Resources/queues?$filter={expression} HTTP/1.1"))


def json_batch(scene: Scene) -> None:
    body = "[" * 100_000
    kind = "Content-Type: application/vnd.microsoft.servicebus.json"
    scene.ask(scene.head("POST /victim/messages HTTP/1.1", kind, f"Content-Length: {len(body)}") + body.encode())


def json_messages(scene: Scene) -> None:
    body = "[" + ",".join(['{"Body":"x"}'] * 4_000) + "]"
    kind = "Content-Type: application/vnd.microsoft.servicebus.json"
    scene.ask(scene.head("POST /victim/messages HTTP/1.1", kind, f"Content-Length: {len(body)}") + body.encode())


def properties_as_headers(scene: Scene) -> None:
    headers = [f'p{n}: "{"x" * 600}"' for n in range(100)]
    scene.ask(scene.head("POST /victim/messages HTTP/1.1", *headers, "Content-Length: 1") + b"x")


def broker_properties(scene: Scene) -> None:
    deep = '{"a":' * 10_000
    scene.ask(scene.head("POST /victim/messages HTTP/1.1", f"BrokerProperties: {deep}", "Content-Length: 1") + b"x")


def bulk_numbers(scene: Scene) -> None:
    body = '{"numbers":[' + "1," * 400_000 + "1]}"
    scene.ask(
        scene.head("POST /$polybus/entities/victim/move HTTP/1.1", f"Content-Length: {len(body)}") + body.encode()
    )


def receives_that_wait(scene: Scene) -> None:
    clients = [scene.socket() for _ in range(50)]
    for client in clients:
        client.sendall(scene.head("DELETE /empty/messages/head?timeout=60 HTTP/1.1", "Content-Length: 0"))
    time.sleep(0.2)
    for client in clients:
        client.close()


def _upgrade(origin: str = "", protocol: str = "AMQPWSB10") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /$servicebus/websocket HTTP/1.1",
        "Host: x",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Protocol: {protocol}",
    ]
    return "\r\n".join([*lines, *([f"Origin: {origin}"] if origin else []), "", ""]).encode()


def _opened(scene: Scene) -> socket.socket:
    client = scene.socket()
    client.settimeout(1)
    client.sendall(_upgrade())
    client.recv(4_096)
    return client


def _masked(payload: bytes, code: int = 0x82) -> bytes:
    length = bytes((0x80 | len(payload),)) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
    return bytes((code,)) + length + b"\x00\x00\x00\x00" + payload


def websocket_bytes(scene: Scene) -> None:
    with contextlib.suppress(OSError), _opened(scene) as client:
        client.sendall(b"".join(_masked(bytes((byte,))) for byte in AMQP_HEADER + EMPTY_FRAME * 2_000))
        client.recv(4_096)


def websocket_pings(scene: Scene) -> None:
    with contextlib.suppress(OSError), _opened(scene) as client:
        client.sendall(_masked(b"x" * 100, 0x89) * 5_000)
        client.recv(4_096)


def websocket_fragments(scene: Scene) -> None:
    with contextlib.suppress(OSError), _opened(scene) as client:
        client.sendall(_masked(b"", 0x02) + _masked(b"x", 0x00) * 20_000)
        client.recv(4_096)


def websocket_text(scene: Scene) -> None:
    with contextlib.suppress(OSError), _opened(scene) as client:
        client.sendall(_masked(b"hello", 0x81))
        client.recv(4_096)


def websocket_of_a_page(scene: Scene) -> None:
    answer = scene.ask(_upgrade("http://evil.example"))
    assert answer.startswith(b"HTTP/1.1 403"), answer[:100]


def websocket_protocols(scene: Scene) -> None:
    scene.ask(_upgrade(protocol=",".join(f"p{n}" for n in range(8_000))))


ATTACKS = [
    Attack("a path of 40,000 segments", long_path),
    Attack("the same with a token", long_path_with_token, known=True),
    Attack("a path encoded twice", encoded_path, known=True),
    Attack("a query of 20,000 fields", long_query, known=True),
    Attack("19,000 headers", many_headers),
    Attack("a header of 19,000 lines", folded_headers),
    Attack("a header of 200 KB", one_long_header),
    Attack("a host of 40,000 labels", long_host),
    Attack("an Authorization of 80 KB", long_authorization),
    Attack("200,000 blank lines", blank_lines),
    Attack("60,000 chunks of a byte", tiny_chunks),
    Attack("a chunk extension of 100 KB", chunk_extensions),
    Attack("5,000 requests in one go", pipelined),
    Attack("what is not HTTP", no_http),
    Attack("heads that drip in", dripping, descriptors=120),
    Attack("bodies that never come", lies_about_its_length, known=True, descriptors=70),
    Attack("a body without an end", huge_body, known=True),
    Attack("XML 40,000 deep", deep_xml, known=True),
    Attack("XML of 30,000 elements", wide_xml, known=True),
    Attack("XML of 10,000 attributes", xml_attributes, known=True),
    Attack("XML entities", xml_entities, known=True),
    Attack("a text of 120 KB in XML", xml_text, known=True),
    Attack("a duration of 100,000 digits", xml_duration, known=True),
    Attack("a $filter of 60,000 parentheses", long_filter, known=True),
    Attack("a $filter 900 deep", deep_filter, known=True),
    Attack("JSON 100,000 deep", json_batch, known=True),
    Attack("4,000 messages in a JSON batch", json_messages, known=True, step_ms=1.5 * LOOP_STEP_MS),
    Attack("60 KB of properties as headers", properties_as_headers, known=True),
    Attack("BrokerProperties 10,000 deep", broker_properties, known=True),
    Attack("400,000 numbers to move", bulk_numbers, known=True),
    Attack("50 receives that wait", receives_that_wait, known=True, descriptors=70),
    Attack("a WebSocket byte by byte", websocket_bytes),
    Attack("5,000 pings", websocket_pings),
    Attack("20,000 fragments of a byte", websocket_fragments),
    Attack("a WebSocket that speaks text", websocket_text),
    Attack("a WebSocket of a web page", websocket_of_a_page),
    Attack("8,000 WebSocket protocols", websocket_protocols),
]
