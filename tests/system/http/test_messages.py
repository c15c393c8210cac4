"""Messages over HTTP, with plain HTTP clients, on plain and partitioned entities."""

from __future__ import annotations

import base64
import json
import random
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.system.http.kit import Server

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def queue(request: pytest.FixtureRequest, server: Server) -> str:
    name = f"Q-{uuid.uuid4().hex}"
    description = QueueDescription(path=name, enable_partitioning=request.param, max_delivery_count=3)
    server.wait(server.namespace.management.create(description))
    return name


@pytest.fixture
def plain(server: Server) -> str:
    name = f"q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name)))
    return name


def properties(response: httpx.Response) -> dict[str, Any]:
    found = json.loads(response.headers["BrokerProperties"])
    assert isinstance(found, dict)
    return found


def path_of(url: str) -> str:
    return httpx.URL(url).raw_path.decode()


@pytest.mark.parametrize("verb", ["POST", "DELETE"])
def test_an_empty_answer_is_no_answer_where_no_store_can_be_asked(own_server: Server, verb: str) -> None:
    server = own_server
    description = QueueDescription(path="q", enable_partitioning=True)
    server.wait(server.namespace.management.create(description))
    with server.client() as http:
        for number in range(len(server.disks)):
            assert http.request(verb, "/q/messages/head?timeout=0").status_code == 204
            server.take_down(number)
        assert http.request(verb, "/q/messages/head?timeout=0").status_code == 503
        server.bring_up(1)
        assert http.request(verb, "/q/messages/head?timeout=0").status_code == 204


def test_a_message_goes_in_and_comes_out(server: Server, http: httpx.Client, queue: str) -> None:
    given = {
        "MessageId": "m-1",
        "CorrelationId": "c",
        "Label": "subject",
        "To": "to",
        "ReplyTo": "reply",
        "ReplyToSessionId": "rs",
        "SessionId": "s",
        "PartitionKey": "s",
        "TimeToLive": 90.5,
    }
    headers = {"BrokerProperties": json.dumps(given), "Content-Type": "text/plain"}
    sent = http.post(f"/{queue}/messages", content=b"body", headers=headers)
    assert (sent.status_code, sent.content, sent.headers["Content-Type"]) == (201, b"", "text/plain")
    got = http.post(f"/{queue}/messages/head?timeout=0")
    assert (got.status_code, got.content, got.headers["Content-Type"]) == (201, b"body", "text/plain")
    shown = properties(got)
    assert {name: shown[name] for name in given} == given
    assert (shown["DeliveryCount"], shown["State"]) == (1, "Active")
    assert shown["SequenceNumber"] & 0xFFFFFFFFFFFF == 1
    assert parsedate_to_datetime(shown["LockedUntilUtc"]) > parsedate_to_datetime(shown["EnqueuedTimeUtc"])
    assert list(shown) == sorted(shown)
    location = got.headers["Location"]
    messages = f"{server.url}/{queue.lower()}/messages"
    assert location == f"{messages}/{shown['SequenceNumber']}/{shown['LockToken']}"
    assert http.delete(path_of(location)).status_code == 200
    assert http.post(f"/{queue}/messages/head?timeout=0").status_code == 204
    assert http.delete(path_of(location)).status_code == 404


def test_a_message_without_anything_has_an_id_and_the_default_type(http: httpx.Client, queue: str) -> None:
    assert http.post(f"/{queue}/messages").status_code == 201
    got = http.delete(f"/{queue}/messages/head?timeout=0")
    assert (got.status_code, got.content) == (200, b"")
    assert got.headers["Content-Type"] == "application/atom+xml;type=entry;charset=utf-8"
    shown = properties(got)
    assert len(shown["MessageId"]) == 32
    assert "LockToken" not in shown
    assert "LockedUntilUtc" not in shown


def test_custom_properties_keep_type_and_case(http: httpx.Client, queue: str) -> None:
    given = {
        "Priority-Of-Mine": '"high"',
        "Count": "42",
        "Ratio": "1.5",
        "IsNew": "true",
        "When": '"Fri, 04 Mar 2011 08:49:37 GMT"',
        "Quoted": '"say \\"hi\\" to C:\\\\x"',
        "Umlaut": '"gr\u00fc\u00dfe \u20ac"'.encode(),
        "Bare": "bare words",
        "Digits": '"42"',
    }
    http.post(f"/{queue}/messages", content=b"x", headers=list(given.items()))  # type: ignore[arg-type]
    got = http.delete(f"/{queue}/messages/head?timeout=0")
    raw = {name.decode(): value for name, value in got.headers.raw}
    expected = {name: value if isinstance(value, bytes) else value.encode() for name, value in given.items()}  # type: ignore[attr-defined]
    expected["Bare"] = b'"bare words"'
    assert {name: raw[name] for name in given} == expected


def test_properties_arrive_typed(server: Server, http: httpx.Client, plain: str) -> None:
    headers = {"A": "42", "B": "4.0", "C": "false", "D": '"Fri, 04 Mar 2011 08:49:37 GMT"', "E": '"x"'}
    http.post(f"/{plain}/messages", content=b"x", headers=headers)
    entity = server.namespace.entity(plain)
    entry = server.do(lambda: next(iter(entity.partitions[0].require().logs[0].memory.values())))
    found = entry.loaded().application_properties()
    assert found == {"A": 42, "B": 4.0, "C": False, "D": 1299228577000, "E": "x"}
    assert [type(found[name]).__name__ for name in "ABCDE"] == ["int", "float", "bool", "Timestamp", "str"]


def test_headers_of_http_are_no_properties_and_no_property_becomes_one(
    server: Server, http: httpx.Client, queue: str
) -> None:
    items = [
        {
            "Body": "x",
            "UserProperties": {
                "Set-Cookie": "a=b",
                "Access-Control-Allow-Origin": "*",
                "Location": "elsewhere",
                "Content-Length": 5,
                "new\r\nline": "x",
                "injected": "x\r\nEvil: 1",
                "fine": "yes",
                "": "nameless",
            },
        }
    ]
    assert http.post(f"/{queue}/messages", content=json.dumps(items), headers=BATCH).status_code == 201
    got = http.delete(f"/{queue}/messages/head?timeout=0")
    assert got.headers["fine"] == '"yes"'
    for name in ("set-cookie", "access-control-allow-origin", "location", "evil", "injected"):
        assert name not in got.headers
    assert got.headers["content-length"] == "1"


def test_a_batch_is_stored_whole(http: httpx.Client, queue: str) -> None:
    items = [
        {"Body": "one", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": base64.b64encode(b"\x00\xff").decode(), "IsBodyBase64": True, "UserProperties": {"Priority": "Low"}},
    ]
    assert http.post(f"/{queue}/messages", content=json.dumps(items), headers=BATCH).status_code == 201
    first = http.delete(f"/{queue}/messages/head?timeout=0")
    second = http.delete(f"/{queue}/messages/head?timeout=0")
    assert (first.content, second.content) == (b"one", b"\x00\xff")
    assert (properties(first)["Label"], properties(first)["TimeToLive"]) == ("M1", 40)
    assert second.headers["Priority"] == '"Low"'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"[1]",
        b'[{"Body": 1}]',
        b'[{"BrokerProperties": {}}]',
        b'[{"Body": "%%%", "IsBodyBase64": true}]',
        b'[{"Body": "x"}, {"Body": "y", "UserProperties": {"a": [1]}}]',
        b'[{"Body": "x"}, {"Body": "y", "UserProperties": {"a": 99999999999999999999}}]',
        b'[{"Body": "x", "BrokerProperties": {"MessageId": {}}}]',
        b'[{"Body": "x", "BrokerProperties": {"MessageId": "\\ud800"}}]',
        b'[{"Body": NaN}]',
        b"[" * 20_000,
    ],
)
def test_a_batch_that_is_wrong_stores_nothing(http: httpx.Client, plain: str, body: bytes) -> None:
    refused = http.post(f"/{plain}/messages", content=body, headers=BATCH)
    assert refused.status_code == 400
    assert refused.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert http.get(f"/{plain}/messages").status_code == 204


def test_a_batch_with_two_keys_is_refused_by_a_partitioned_queue(server: Server, http: httpx.Client) -> None:
    name = f"q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, enable_partitioning=True)))
    items = [{"Body": "x", "BrokerProperties": {"PartitionKey": key}} for key in ("a", "b")]
    assert http.post(f"/{name}/messages", content=json.dumps(items), headers=BATCH).status_code == 400
    assert http.get(f"/{name}/messages").status_code == 204


def test_unlocking_brings_a_message_back_and_counts(http: httpx.Client, queue: str) -> None:
    http.post(f"/{queue}/messages", content=b"x")
    for attempt in (1, 2, 3):
        got = http.post(f"/{queue}/messages/head?timeout=0")
        assert properties(got)["DeliveryCount"] == attempt
        assert http.put(path_of(got.headers["Location"])).status_code == 200
    assert http.post(f"/{queue}/messages/head?timeout=0").status_code == 204
    dead = http.delete(f"/{queue}/$DeadLetterQueue/messages/head?timeout=0")
    assert dead.headers["DeadLetterReason"] == '"MaxDeliveryCountExceeded"'
    assert properties(dead)["DeadLetterSource"] == queue


def test_a_lock_can_be_renewed_until_it_is_lost(server: Server, http: httpx.Client, queue: str) -> None:
    http.post(f"/{queue}/messages", content=b"x")
    got = http.post(f"/{queue}/messages/head?timeout=0")
    location = path_of(got.headers["Location"])

    def pass_s(seconds: int) -> None:
        server.do(lambda: server.clock.advance(seconds * 1000))
        server.do(server.bus.clock_moved)

    pass_s(50)
    renewed = http.post(location)
    assert (renewed.status_code, renewed.content) == (200, b"")
    until = parsedate_to_datetime(properties(renewed)["LockedUntilUtc"])
    assert until > parsedate_to_datetime(properties(got)["LockedUntilUtc"])
    pass_s(50)
    assert http.post(location).status_code == 200
    pass_s(61)
    for method in ("POST", "PUT", "DELETE"):
        lost = http.request(method, location)
        assert lost.status_code == 404
        assert lost.headers["Content-Type"] == "application/xml; charset=utf-8"
    again = http.post(f"/{queue}/messages/head?timeout=5")
    assert properties(again)["DeliveryCount"] == 2


def test_a_delivery_is_settled_by_id_or_number_and_by_no_other(http: httpx.Client, queue: str) -> None:
    for message_id in ("with/slash and space", "plain"):
        http.post(f"/{queue}/messages", headers={"BrokerProperties": json.dumps({"MessageId": message_id})})
        got = http.post(f"/{queue}/messages/head?timeout=0")
        token = properties(got)["LockToken"]
        assert http.delete(f"/{queue}/messages/other/{token}").status_code == 404
        assert http.delete(f"/{queue}/messages/{'a' * 8}/{uuid.uuid4()}").status_code == 404
        assert http.delete(f"/{queue}/messages/x/not-a-token").status_code == 404
        quoted = message_id.replace("/", "%2F").replace(" ", "%20")
        assert http.delete(f"/{queue}/messages/{quoted}/{token}").status_code == 200


def test_a_lock_of_another_queue_settles_nothing(server: Server, http: httpx.Client, plain: str, queue: str) -> None:
    http.post(f"/{plain}/messages", content=b"x")
    http.post(f"/{queue}/messages", content=b"y")
    shown = properties(http.post(f"/{plain}/messages/head?timeout=0"))
    path = f"{shown['SequenceNumber']}/{shown['LockToken']}"
    assert http.delete(f"/{queue}/messages/{path}").status_code == 404
    assert http.delete(f"/{plain}/$DeadLetterQueue/messages/{path}").status_code == 404
    assert http.delete(f"/{plain}/messages/{path}").status_code == 200


def test_a_scheduled_message_waits(server: Server, http: httpx.Client, queue: str) -> None:
    due = "Sat, 01 Jan 2400 00:00:00 GMT"
    headers = {"BrokerProperties": json.dumps({"ScheduledEnqueueTimeUtc": due})}
    assert http.post(f"/{queue}/messages", content=b"later", headers=headers).status_code == 201
    assert http.post(f"/{queue}/messages/head?timeout=0").status_code == 204
    seen = http.get(f"/{queue}/messages")
    assert (properties(seen)["State"], properties(seen)["ScheduledEnqueueTimeUtc"]) == ("Scheduled", due)


def test_browsing_reaches_every_message_and_changes_nothing(http: httpx.Client, queue: str) -> None:
    sent = {f"m{number}".encode() for number in range(20)}
    for body in sent:
        http.post(f"/{queue}/messages", content=body)
    seen = []
    url = f"/{queue}/messages?timeout=5&api-version=2015-01"
    while True:
        got = http.get(url)
        if got.status_code == 204:
            break
        assert "LockToken" not in properties(got)
        assert properties(got)["DeliveryCount"] == 0
        seen.append(got.content)
        url = path_of(got.headers["Next-Message"])
    assert set(seen) == sent
    assert len(seen) == len(sent)
    received = {http.delete(f"/{queue}/messages/head?timeout=0").content for _ in sent}
    assert received == sent


def test_repeated_receives_get_every_message_over_kept_and_over_new_connections(
    server: Server, http: httpx.Client, queue: str
) -> None:
    sent = {f"m{number}".encode() for number in range(24)}
    for body in sent:
        http.post(f"/{queue}/messages", content=body)
    got = {http.delete(f"/{queue}/messages/head?timeout=0").content for _ in range(12)}
    headers = {"Authorization": server.token(), "Connection": "close"}
    for _ in range(12):
        got.add(httpx.delete(f"{server.url}/{queue}/messages/head?timeout=0", headers=headers).content)
    assert got == sent


def test_a_topic_is_sent_to_and_its_subscription_received_from(server: Server, http: httpx.Client) -> None:
    name = f"T-{uuid.uuid4().hex}"
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path=name, enable_partitioning=True)))
    server.wait(management.create_subscription(SubscriptionDescription(topic=name, name="Sub")))
    assert http.post(f"/{name}/messages", content=b"x").status_code == 201
    got = http.post(f"/{name}/subscriptions/Sub/messages/head?timeout=0")
    location = got.headers["Location"]
    assert f"/{name.lower()}/subscriptions/sub/messages/" in location
    assert http.delete(path_of(location)).status_code == 200
    for method, path in (
        ("POST", f"/{name}/messages/head"),
        ("GET", f"/{name}/messages"),
        ("POST", f"/{name}/subscriptions/Sub/messages"),
    ):
        assert http.request(method, path).status_code == 400
    for method, path in (
        ("POST", f"/{name}/subscriptions/other/messages/head"),
        ("DELETE", f"/{name}/subscriptions/other/messages/head"),
        ("POST", f"/{name}-missing/messages"),
        ("DELETE", f"/{name}-missing/messages/1/{uuid.uuid4()}"),
    ):
        gone = http.request(method, path)
        assert gone.status_code == 410
        assert "SubCode=41000" in gone.text


def test_sessions_are_sent_to_but_not_received_from(server: Server, http: httpx.Client) -> None:
    name = f"s-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, requires_session=True)))
    headers = {"BrokerProperties": json.dumps({"SessionId": "one"})}
    assert http.post(f"/{name}/messages", headers=headers).status_code == 201
    assert http.post(f"/{name}/messages").status_code == 400
    refused = http.post(f"/{name}/messages/head?timeout=0")
    assert refused.status_code == 400
    assert "session" in refused.text


def test_a_disabled_queue_refuses(server: Server, http: httpx.Client, plain: str) -> None:
    from dataclasses import replace

    from polybus.namespace.entities.description import EntityStatus

    entity = server.namespace.entity(plain)
    disabled = replace(entity.description, status=EntityStatus.DISABLED)
    server.wait(server.namespace.management.update(disabled))
    assert http.post(f"/{plain}/messages").status_code == 400
    assert http.post(f"/{plain}/messages/head?timeout=0").status_code == 400


def test_sizes_have_their_limit(http: httpx.Client, queue: str) -> None:
    fits = b"x" * (255 * 1024)
    assert http.post(f"/{queue}/messages", content=fits).status_code == 201
    assert http.delete(f"/{queue}/messages/head?timeout=0").content == fits
    for size in (256 * 1024, 257 * 1024, 4 * 1024 * 1024):
        refused = http.post(f"/{queue}/messages", content=b"x" * size)
        assert refused.status_code == 403
        assert "SubCode=40300" in refused.text
    assert http.get(f"/{queue}/messages").status_code == 204


# Waiting


def start_receive(
    server: Server, pool: ThreadPoolExecutor, path: str, method: str = "POST"
) -> Future[httpx.Response]:
    """A receive that is known to wait at its source when this returns."""
    before = len(server.gateway.connections)

    def receive() -> httpx.Response:
        headers = {"Authorization": server.token()}
        return httpx.request(method, f"{server.url}{path}?timeout=300", headers=headers, timeout=60)

    future = pool.submit(receive)
    server.wait_until(lambda: len(server.gateway.connections) > before)
    return future


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_receive_waits_for_its_message(server: Server, http: httpx.Client, queue: str, method: str) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = start_receive(server, pool, f"/{queue}/messages/head", method)
        http.post(f"/{queue}/messages", content=b"at last")
        assert waiting.result(30).content == b"at last"
    assert not server.gateway.connections


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_client_that_goes_away_loses_no_message(
    server: Server, http: httpx.Client, queue: str, method: str
) -> None:
    request = f"{method} /{queue}/messages/head?timeout=300 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(f"{request}Authorization: {server.token()}\r\n\r\n".encode())
    server.wait_until(lambda: bool(server.gateway.connections))
    client.close()
    server.wait_until(lambda: not server.gateway.connections)
    http.post(f"/{queue}/messages", content=b"kept")
    got = http.post(f"/{queue}/messages/head?timeout=0")
    assert got.content == b"kept"
    assert properties(got)["DeliveryCount"] == 1


def test_a_message_that_meets_a_leaving_client_goes_back_at_once(
    server: Server, http: httpx.Client, queue: str
) -> None:
    """Delivery and hang-up happen in one turn of the server's loop."""
    client = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST /{queue}/messages/head?timeout=300 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    client.sendall(f"{head}Authorization: {server.token()}\r\n\r\n".encode())
    server.wait_until(lambda: bool(server.gateway.connections))
    http.post(f"/{queue}-none/messages")
    entity = server.namespace.entity(queue)

    def meet() -> None:
        from polybus.message.message import build
        from polybus.promise import Promise

        client.close()
        server.namespace.send(entity, [build(b"kept")], Promise().reply, None)

    server.do(meet)
    server.wait_until(lambda: not server.gateway.connections and entity.counts().result().active == 1)
    got = http.post(f"/{queue}/messages/head?timeout=0")
    if got.status_code == 204:
        # The answer left before the hang-up was seen: then the message comes back when its lock ends.
        server.do(lambda: server.clock.advance(61_000))
        server.do(server.bus.clock_moved)
        got = http.post(f"/{queue}/messages/head?timeout=5")
    assert got.content == b"kept"


def test_waiting_receivers_hear_that_their_queue_is_gone(server: Server, http: httpx.Client, queue: str) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = start_receive(server, pool, f"/{queue}/messages/head")
        server.wait(server.namespace.management.delete(queue))
        assert waiting.result(30).status_code == 410


def test_waiting_receivers_hear_that_the_bus_stops(server: Server, http: httpx.Client, queue: str) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = start_receive(server, pool, f"/{queue}/messages/head")
        server.do(lambda: [each.shut_down() for each in list(server.gateway.connections)])
        stopped = waiting.result(30)
    assert stopped.status_code == 503
    assert stopped.headers["Retry-After"] == "1"


@pytest.mark.parametrize("seed", range(4))
def test_receives_that_are_cut_off_lose_nothing(server: Server, http: httpx.Client, queue: str, seed: int) -> None:
    """Clients hang up while messages arrive; whatever they were given comes back, at once or with its lock."""
    chance = random.Random(seed)
    sent = {f"m{number}".encode() for number in range(30)}
    head = f"POST /{queue}/messages/head?timeout=300 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    waiting = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for client in waiting:
        client.sendall(f"{head}Authorization: {server.token()}\r\n\r\n".encode())
    server.wait_until(lambda: len(server.gateway.connections) == 20)
    for body in sent:
        http.post(f"/{queue}/messages", content=body)
        if waiting and chance.random() < 0.7:
            waiting.pop(chance.randrange(len(waiting))).close()
    for client in waiting:
        client.close()
    server.wait_until(lambda: not server.gateway.connections)
    assert server.do(lambda: server.namespace.entity(queue).counts().result()).active == 30
    server.do(lambda: server.clock.advance(61_000))
    server.do(server.bus.clock_moved)
    found = [http.delete(f"/{queue}/messages/head?timeout=5").content for _ in sent]
    assert sorted(found) == sorted(sent)
