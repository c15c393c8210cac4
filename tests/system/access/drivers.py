"""The same question on each protocol: may this client do that? Anything but a clear yes or no is a failure."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx

from polybus.testing.server import ServerProcess
from tests.system.access.cases import HOST, Case, Do
from tests.system.access.client import PATIENCE_S, AmqpClient, Refused, SocketStream, Stream, WebSocketStream
from tests.system.http.test_refusals import queue
from tests.unit.gateway.amqp_kit import text

DESTINATION = "other"
EVER = 253_402_300_800_000
_BULK = {
    Do.READ_IN_BULK: ("GET", "browse?format=json"),
    Do.WRITE_IN_BULK: ("POST", "stage"),
    Do.SESSIONS: ("GET", "log"),
}
IN_AN_HOUR = datetime.now(UTC) + timedelta(hours=1)
Driver = Callable[[ServerProcess, Case], bool]


def over_amqp(server: ServerProcess, case: Case) -> bool:
    return _verdict(SocketStream(server.addresses["amqp"]), case)


def over_websocket(server: ServerProcess, case: Case) -> bool:
    return _verdict(WebSocketStream(server.addresses["http"]), case)


def _verdict(stream: Stream, case: Case) -> bool:
    client = AmqpClient(stream)
    try:
        come_in(client, case)
        _act(client, case)
    except Refused:
        return False
    finally:
        client.close()
    return True


def come_in(client: AmqpClient, case: Case) -> None:
    """Logs in, opens the connection and shows the token, if there is one."""
    mechanism, response = case.login
    if mechanism is not None:
        client.log_in(mechanism, response)
    client.open()
    if case.token is not None:
        client.put_token(case.audience or HOST + case.path, case.token)


def _act(client: AmqpClient, case: Case) -> None:
    if case.do is Do.SEND:
        client.send(client.sender(case.path))
    elif case.do is Do.LISTEN:
        client.receiver(case.path)
    elif case.do is Do.DEAD_LETTERS:
        client.receiver(f"{case.path}/$DeadLetterQueue")
    elif case.do is Do.PEEK:
        client.ask(case.path, "peek-message", {"from-sequence-number": 0, "message-count": 1})
    elif case.do is Do.SCHEDULE:
        entry = {"message-id": "x", "message": text("x", scheduled_ms=int(IN_AN_HOUR.timestamp() * 1000))}
        client.ask(case.path, "schedule-message", {"messages": [entry]})
    elif case.do is Do.READ_IN_BULK:
        client.ask(case.path, "peek-message", {"from-sequence-number": 0, "message-count": 100})
    elif case.do is Do.WRITE_IN_BULK:
        handle = client.sender(case.path)
        for _ in range(2):
            client.send(handle)
    elif case.do is Do.SESSIONS:
        client.ask(case.path, "get-message-sessions", {"last-updated-time": EVER, "skip": 0, "top": 10})
    elif case.do is Do.SEND_ON:
        client.sender(case.path, DESTINATION)
    else:
        client.ask(case.path, "enumerate-rules", {"top": 10, "skip": 0})


def over_http(server: ServerProcess, case: Case) -> bool:
    method, path, headers = _request(case)
    # What an entity forwards to already may be told again, so each verdict has a destination of its own.
    forwards = queue(f"<ForwardTo>{DESTINATION if case.allowed else 'orders2'}</ForwardTo>").encode()
    content = forwards if case.do is Do.SEND_ON else b'{"body": "x"}'
    content = b"" if method == "GET" else content
    url = f"{server.http_url}/{path}"
    response = httpx.request(method, url, headers=headers, content=content, timeout=PATIENCE_S)
    assert response.status_code in (200, 201, 204, 401), (response.status_code, response.text)
    return response.status_code != 401


def _request(case: Case) -> tuple[str, str, dict[str, str]]:
    headers = _authorization(case)
    if case.do is Do.SCHEDULE:
        headers["BrokerProperties"] = f'{{"ScheduledEnqueueTimeUtc": "{IN_AN_HOUR:%a, %d %b %Y %H:%M:%S} GMT"}}'
    if case.do is Do.SEND_ON:
        return "PUT", f"{case.path}?api-version=2021-05", {**headers, "If-Match": "*"}
    if case.do in _BULK:
        method, tail = _BULK[case.do]
        return method, f"$polybus/entities/{quote(case.path, safe='')}/{tail}", headers
    method, tail = {
        Do.SEND: ("POST", "messages"),
        Do.SCHEDULE: ("POST", "messages"),
        Do.LISTEN: ("DELETE", "messages/head?timeout=0"),
        Do.DEAD_LETTERS: ("DELETE", "$DeadLetterQueue/messages/head?timeout=0"),
        Do.PEEK: ("GET", "messages"),
        Do.RULES: ("GET", "Rules?api-version=2021-05"),
    }[case.do]
    return method, f"{case.path}/{tail}", headers


def _authorization(case: Case) -> dict[str, str]:
    """The token, else what a login would say, as the header that says it."""
    response = case.login[1]
    if case.token is not None:
        return {"Authorization": case.token.strip()}
    if response:
        return {"Authorization": f"Basic {base64.b64encode(response.strip(bytes(1))).decode()}"}
    return {}
