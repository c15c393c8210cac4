"""The log of a bus that refuses: each refusal says why and where, and nothing in it is a body, a token or a key.

The whole table of who may do what is asked on every protocol, and messages with a known body are sent, received and
refused, on plain and partitioned queues; then the log is read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.system.access.cases import CASES, NAMESPACE_KEYS, OWN_KEYS, ROOT, ROOT_KEY, token
from tests.system.access.conftest import serving
from tests.system.access.drivers import over_amqp, over_http, over_websocket

CANARY = "canary-in-a-body"
PROPERTY = "canary-in-a-property"
SIGNATURE = re.compile(r"\bsig=([^&\s]+)")
REFUSALS = ("refused", "rejected", "detached")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Everything that a bus has written while it was asked for what it must not give."""
    with serving(tmp_path_factory.mktemp("logs"), "--verbose", "--log", "json") as server:
        for case in CASES.values():
            for driver in (over_amqp, over_websocket, over_http):
                driver(server, case)
        for partitioned in (False, True):
            _send(server, "split" if partitioned else "whole", partitioned)
    return server.output


def _send(server: ServerProcess, queue: str, partitioned: bool) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as admin:
        admin.create_queue(queue, enable_partitioning=partitioned, requires_session=True)
    _send_over_amqp(server, queue)
    _send_over_http(server, queue)


def _send_over_amqp(server: ServerProcess, queue: str) -> None:
    properties = {"p": PROPERTY}
    with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            good = ServiceBusMessage(CANARY, session_id="s", application_properties=properties)
            sender.send_messages(good)
            for refused in (
                ServiceBusMessage(CANARY, application_properties=properties),
                ServiceBusMessage(CANARY, session_id="s", application_properties={"p": PROPERTY * 4_000}),
            ):
                with pytest.raises((ServiceBusError, ValueError)):
                    sender.send_messages(refused)
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=20)
            receiver.dead_letter_message(message, reason=PROPERTY, error_description=PROPERTY)


def _send_over_http(server: ServerProcess, queue: str) -> None:
    url = f"{server.http_url}/{queue}/messages"
    good = {"Authorization": token(queue), "P": f'"{PROPERTY}"'}
    requests: list[tuple[dict[str, str], Any]] = [
        ({}, CANARY),
        ({"BrokerProperties": "{" + PROPERTY}, CANARY),
        ({"BrokerProperties": '{"TimeToLive": "' + PROPERTY + '"}'}, CANARY),
        ({"BrokerProperties": '{"SessionId": "a", "PartitionKey": "b"}'}, CANARY),
        ({"Content-Type": "application/vnd.microsoft.servicebus.json"}, f'[{{"Body": "{CANARY}", "x": }}]'),
        ({"Content-Type": "application/vnd.microsoft.servicebus.json"}, f'[{{"Body": ["{CANARY}"]}}]'),
        ({}, CANARY * 100_000),
    ]
    for headers, body in requests:
        answer = httpx.post(url, headers={**good, **headers}, content=body, timeout=30)
        assert 400 <= answer.status_code < 500, (headers, answer.text)
    for text in (f"<{CANARY}/>", f"<entry>{CANARY}</entry>", CANARY):
        answer = httpx.put(f"{server.http_url}/other-{queue}", headers=good, content=text)
        assert 400 <= answer.status_code < 500, answer.text


def lines(output: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output if line.startswith("{")]


def test_nothing_failed_inside(output: list[str]) -> None:
    assert [line for line in lines(output) if line["level"] not in ("info", "warning")] == []


def test_there_is_no_body_and_no_property_of_a_message(output: list[str]) -> None:
    for secret in (CANARY, PROPERTY):
        assert [line for line in output if secret in line] == []


def test_there_is_no_key(output: list[str]) -> None:
    keys = {text.partition("=")[2].split(":")[0] for text in NAMESPACE_KEYS}
    keys |= {key for rules in OWN_KEYS.values() for _, _, *own in rules for key in own}
    assert ROOT_KEY in keys
    for key in keys:
        assert [line for line in output if key in line] == [], key


def test_there_is_no_token(output: list[str]) -> None:
    tokens = [case.token for case in CASES.values() if case.token] + [token("whole")]
    signatures = {found for text in tokens for found in SIGNATURE.findall(text) if len(found) > 8}
    assert len(signatures) > 20
    everything = "".join(output)
    for signature in signatures:
        for form in (signature, unquote(signature), quote(unquote(signature), safe="")):
            assert form not in everything
    assert "sig=" not in everything
    passwords = [case.login[1].rsplit(b"\0", 1)[-1] for case in CASES.values() if case.login[0] == "PLAIN"]
    long = [password.decode("latin-1") for password in passwords if len(password) > 8 and password != ROOT.encode()]
    assert long
    assert [password for password in long if password in everything] == []


def test_each_refusal_says_why_and_where(output: list[str]) -> None:
    refusals = [line for line in lines(output) if line["message"].partition(":")[0].endswith(REFUSALS)]
    assert len(refusals) > 200
    for line in refusals:
        what, _, why = line["message"].partition(": ")
        assert why.strip(), line
        assert line["connection"], line
        assert line.get("tracking_id"), line
        if not what.startswith("a login"):
            assert isinstance(line["entity"], str), line
        if what in ("a link was refused", "a send was rejected", "a token was refused"):
            assert line["link"], line
    kinds = {line["message"].partition(": ")[0] for line in refusals}
    expected = {"a link was refused", "a send was rejected", "a token was refused", "a request was refused"}
    assert expected <= kinds
    assert len({line["tracking_id"] for line in refusals}) == len(refusals)


def test_a_client_gets_the_tracking_id_that_the_log_has(tmp_path: Path) -> None:
    with serving(tmp_path, "--verbose", "--log", "json") as server:
        answer = httpx.post(f"{server.http_url}/orders/messages", content=CANARY)
        found = re.search(r"TrackingId:([^,]+),", answer.text)
        assert found is not None
    assert [line["status"] for line in lines(server.output) if line.get("tracking_id") == found[1]] == [401]
