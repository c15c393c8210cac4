"""Hostile XML and hostile HTTP: refused, and others are served as before."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator

import httpx
import pytest

from polybus.namespace.entities.description import QueueDescription
from tests.system.http.kit import Server
from tests.system.http.test_refusals import ATOM, SB, check, queue

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "lol">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + "]><entry>&j;</entry>"
)
BLOW_UP = f'<!DOCTYPE b [<!ENTITY a "{"a" * 50_000}">]><entry>{"&a;" * 5_000}</entry>'
DEEP = "<a>" * 20_000
XMLS: dict[str, bytes] = {
    "billion laughs": LAUGHS.encode(),
    "quadratic blow-up": BLOW_UP.encode(),
    "external entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><entry>&e;</entry>',
    "parameter entity": b'<!DOCTYPE x [<!ENTITY % e SYSTEM "http://127.0.0.1:1/x">%e;]><entry/>',
    "document type": b'<!DOCTYPE entry SYSTEM "http://127.0.0.1:1/x.dtd"><entry/>',
    "levels": DEEP.encode(),
    "elements": f"<entry>{'<a/>' * 10_000}</entry>".encode(),
    "attributes": ("<entry " + " ".join(f'a{n}="1"' for n in range(5_000)) + "/>").encode(),
    "token": b"<entry a='" + b"x" * 100_000,
    "UTF-16": queue().encode("utf-16"),
    "UTF-32": queue().encode("utf-32"),
    "UTF-7": b"<?xml version='1.0' encoding='utf-7'?>" + queue().encode(),
    "odd encoding": b"<?xml version='1.0' encoding='unicode_escape'?>" + queue().encode(),
    "bad UTF-8": b"<entry>\xff\xfe\xfa</entry>",
    "NUL": b"<entry>\x00</entry>",
    "control": b"<entry>&#x1;</entry>",
    "XInclude": (
        f'<entry xmlns="{ATOM}"><content><QueueDescription xmlns="{SB}"><UserMetadata>'
        '<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="file:///etc/passwd" parse="text"/>'
        "</UserMetadata><LockDuration>x</LockDuration></QueueDescription></content></entry>"
    ).encode(),
    "stylesheet": b'<?xml-stylesheet href="http://127.0.0.1:1/"?><entry/>',
    "nothing": b"",
    "garbage": bytes(range(256)),
}


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    server.wait(server.namespace.management.create(QueueDescription(path="fine")))
    with server.client() as client:
        yield client


@pytest.mark.parametrize("name", XMLS)
def test_hostile_xml_is_refused(server: Server, http: httpx.Client, name: str) -> None:
    check(http.put("/victim", content=XMLS[name]), 400, "SubCode=40000.")
    assert server.namespace.find("victim") is None
    assert "root:" not in http.get("/victim").text


def test_a_large_body_is_refused_before_it_is_read(http: httpx.Client) -> None:
    check(http.put("/victim", content=b"<entry>" + b" " * 200_000), 413, "SubCode=41300.")
    # More than is drained: the answer still comes, and the connection goes.
    check(http.put("/victim", content=b" " * 30_000_000), 413, "SubCode=41300.")
    assert http.get("/fine").status_code == 200


def test_a_compressed_body_is_refused(http: httpx.Client) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    for encoding in ("gzip", "deflate", "br", "GZIP", "gzip, identity"):
        refused = http.put("/victim", content=bomb, headers={"Content-Encoding": encoding})
        check(refused, 415, "must not be compressed")
    assert http.put("/plain", content=queue(), headers={"Content-Encoding": "identity"}).status_code == 201


def raw(server: Server, request: bytes) -> bytes:
    """What comes back for the bytes of a request, until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        parts = []
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def head(server: Server, *lines: str) -> bytes:
    text = "\r\n".join([*lines, f"Authorization: {server.token()}", "Connection: close", "", ""])
    return text.encode()


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def test_smuggled_requests_are_refused(server: Server, http: httpx.Client) -> None:
    body = b"5\r\nhello\r\n0\r\n\r\n"
    both = ["POST /fine/messages HTTP/1.1", "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked"]
    twice = ["POST /fine/messages HTTP/1.1", "Host: x", "Content-Length: 5", "Content-Length: 6"]
    odd = ["POST /fine/messages HTTP/1.1", "Host: x", "Transfer-Encoding: xchunked"]
    obs_fold = [
        "POST /fine/messages HTTP/1.1",
        "Host: x",
        "X: a",
        " Transfer-Encoding: chunked",
        "Content-Length : 5",
    ]
    for lines in (both, twice, odd, obs_fold):
        answer = raw(server, head(server, *lines) + body)
        assert status(answer) in (400, 501), answer
        assert b"<Error>" in answer
    assert http.get("/fine/messages").status_code == 204


def test_requests_that_are_not_http_are_refused(server: Server) -> None:
    for request in (
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /fine HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n",
        b"GET /fine HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /fine HTTP/1.1\r\n\r\n",
    ):
        answer = raw(server, request)
        assert status(answer) == 400
        assert b"content-type: application/xml; charset=utf-8" in answer.lower()
        assert b"<Error><Code>400</Code>" in answer


def test_floods_of_headers_end_the_connection(server: Server, http: httpx.Client) -> None:
    """Whoever goes on writing may find the connection gone before the answer is read."""
    for request in (
        b"GET /fine HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 400_000,
        b"GET /" + b"x" * 400_000,
        b"GET /fine HTTP/1.1\r\nHost: x\r\n" + b"X-A: y\r\n" * 50_000,
    ):
        try:
            answer = raw(server, request)
        except OSError:
            continue
        assert status(answer) == 400
    assert http.get("/fine").status_code == 200


def test_hosts_are_not_believed(server: Server) -> None:
    for host in ("a b", "<script>", "x/../y", "x@y", "x?y", "x:port", "[::1", '"x"', "x" * 300):
        answer = raw(server, head(server, "GET /fine HTTP/1.1", f"Host: {host}"))
        assert status(answer) == 400
        assert b"<script>" not in answer


def test_headers_and_queries_are_bounded(http: httpx.Client) -> None:
    many = {f"X-{number}": "1" for number in range(130)}
    check(http.get("/fine", headers=many), 431, "SubCode=43100.")
    check(http.get(f"/fine?x={'y' * 9_000}"), 414, "SubCode=41400.")
    check(http.get(f"/{'a/' * 1_100}"), 414, "SubCode=41400.")
    check(http.get("/fine?" + "&".join(f"a{number}=1" for number in range(40))), 400, "query")
    check(http.get("/fine?a=%FF"), 400, "query")
    check(http.get("/fine", headers={"Authorization": "SharedAccessSignature " + "a" * 5_000}), 401, "SubCode=40105.")


@pytest.mark.parametrize(
    "path",
    [
        "/fine/../fine",
        "/./fine",
        "/fine/.",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/fine%00.txt",
        "/fine%0d%0aX: y",
        "/fine\\..\\x",
        "/fine;x=y",
        "/%252e%252e/fine",
        "/fine/%2f%2f/x",
        "/~root/../../x",
        "/\u0661",
    ],
)
def test_paths_are_taken_by_the_letter(server: Server, path: str) -> None:
    encoded = path.encode("utf-8").decode("latin-1")
    answer = raw(server, head(server, f"GET {encoded} HTTP/1.1".replace(" X: y", "%20X:%20y"), "Host: x"))
    assert status(answer) == 400, answer
    assert b"X: y" not in answer.split(b"\r\n\r\n")[0]


def test_a_url_in_the_request_line_is_a_path(server: Server) -> None:
    answer = raw(server, head(server, "GET http://elsewhere.example/fine HTTP/1.1", "Host: x"))
    assert status(answer) == 200
    assert b"<title" in answer


def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(server: Server, http: httpx.Client) -> None:
    for _ in range(20):
        request = head(server, "POST /fine/messages HTTP/1.1", "Host: x", "Content-Length: 1000")
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(request + b"half")
    assert http.get("/fine/messages").status_code == 204


def test_a_body_that_never_comes_is_not_waited_for(
    server: Server, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is shortened to nothing; what is left is that somebody else's request goes through meanwhile."""
    from polybus import limits
    from polybus.gateway.http import request as http_request

    defaults = http_request.HttpCall.body.__defaults__
    monkeypatch.setattr(http_request.HttpCall.body, "__defaults__", (None, 0.01))
    monkeypatch.setattr(limits, "HTTP_DRAIN_SECONDS", 0.01)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(head(server, "PUT /slow HTTP/1.1", "Host: x", "Content-Length: 1000") + b"<")
        assert http.get("/fine").status_code == 200
        answer = client.recv(65_536)
    assert defaults != (None, 0.01)
    assert status(answer) == 408
    assert b"connection: close" in answer.lower()


def test_pipelined_requests_get_their_own_answers(server: Server) -> None:
    one = head(server, "GET /fine HTTP/1.1", "Host: x").replace(b"Connection: close\r\n", b"")
    two = head(server, "GET /nowhere HTTP/1.1", "Host: x")
    answer = raw(server, one + two)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b'<title type="text">fine') < answer.index(b"Publicly Listed Services")


def test_names_and_texts_come_out_escaped(http: httpx.Client) -> None:
    evil = "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert http.put("/evil", content=queue(f"<UserMetadata>{evil}</UserMetadata>")).status_code == 201
    shown = http.get("/evil?x=<script>&api-version=<b>")
    assert "<script>" not in shown.text
    assert "&lt;script&gt;alert(1)" in shown.text
    refused = http.get("/<script>alert(1)</script>")
    assert refused.status_code == 400
    assert "<script>" not in refused.text
    assert refused.headers["content-type"] == "application/xml; charset=utf-8"
