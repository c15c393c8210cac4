"""Reading logs in bulk: ranges by position, what is there now, events, moves."""

from __future__ import annotations

import builtins
import datetime
import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.system.http.bulk_kit import ARROW, Bulk, read_arrow, read_lines
from tests.system.http.kit import Server

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def queue(request: pytest.FixtureRequest, server: Server) -> str:
    name = f"dir/q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, enable_partitioning=request.param)))
    return name


@pytest.fixture
def plain(server: Server) -> str:
    name = f"q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name)))
    return name


def send(http: httpx.Client, path: str, *bodies: str, **properties: Any) -> None:
    for body in bodies:
        items = [{"Body": body, "BrokerProperties": {"MessageId": body, **properties}}]
        assert http.post(f"/{path}/messages", content=json.dumps(items), headers=BATCH).status_code == 201


def complete(http: httpx.Client, path: str) -> httpx.Response:
    got = http.delete(f"/{path}/messages/head?timeout=0")
    assert got.status_code == 200
    return got


def test_a_log_says_where_it_begins_and_ends(http: httpx.Client, queue: str) -> None:
    bulk = Bulk(http, queue)
    empty = bulk.log()
    nothing = {"available": True, "earliest": 1, "stable_end": 0, "messages": 0, "bytes": 0}
    assert all(log == {"partition": index, **nothing} for index, log in empty.items())
    send(http, queue, *(f"m{number}" for number in range(32)))
    ends = [log["stable_end"] for log in bulk.log().values()]
    assert ends == ([2] * 16 if len(ends) == 16 else [32])
    assert [log["earliest"] for log in bulk.log().values()] == [1] * len(ends)


def test_a_range_has_every_message_of_its_partition_in_order(http: httpx.Client, queue: str) -> None:
    bulk = Bulk(http, queue)
    sent = [f"m{number}" for number in range(40)]
    send(http, queue, *sent)
    seen = []
    for index, log in bulk.log().items():
        rows, end = bulk.range(partition=index, first=1, last=log["stable_end"])
        assert end == {"complete_to": log["stable_end"], "missing": []}
        assert [row["position"] for row in rows] == list(range(1, log["stable_end"] + 1))
        assert all(row["partition"] == index and row["sequence_number"] >> 48 == index for row in rows)
        seen += [row["body"].decode() for row in rows]
    assert sorted(seen) == sorted(sent)


def test_a_row_has_all_that_a_message_has(server: Server, http: httpx.Client, plain: str) -> None:
    given = {
        "MessageId": "m",
        "SessionId": "s",
        "PartitionKey": "s",
        "Label": "subject",
        "CorrelationId": "c",
        "To": "to",
        "ReplyTo": "reply",
        "ReplyToSessionId": "rs",
        "TimeToLive": 60,
    }
    headers = {
        "BrokerProperties": json.dumps(given),
        "Content-Type": "text/plain",
        "Number": "5",
        "Yes": "true",
        "Text": '"x"',
        "When": '"Fri, 04 Mar 2011 08:49:37 GMT"',
    }
    http.post(f"/{plain}/messages", content=b"\x00\xff", headers=headers)
    (row,), end = Bulk(http, plain).range(partition=0)
    assert end == {"complete_to": 1, "missing": []}
    enqueued, expires = row.pop("enqueued_time"), row.pop("expires_at")
    assert expires - enqueued == datetime.timedelta(seconds=60)
    assert dict(row.pop("properties")) == {
        "Number": "5",
        "Yes": "true",
        "Text": "x",
        "When": "2011-03-04T08:49:37.000Z",
    }
    assert row == {
        "partition": 0,
        "position": 1,
        "sequence_number": 1,
        "state": "active",
        "message_id": "m",
        "session_id": "s",
        "partition_key": "s",
        "subject": "subject",
        "correlation_id": "c",
        "content_type": "text/plain",
        "to": "to",
        "reply_to": "reply",
        "reply_to_session_id": "rs",
        "scheduled_enqueue_time": None,
        "delivery_count": 0,
        "dead_letter_reason": None,
        "dead_letter_description": None,
        "dead_letter_source": None,
        "body": b"\x00\xff",
    }


def test_json_lines_tell_the_same_as_arrow(http: httpx.Client, plain: str) -> None:
    send(http, plain, "a", "b", "\u20ac")
    url = f"/$polybus/entities/{plain}/range"
    query = {"partition": 0, "columns": "position,message_id,body,enqueued_time"}
    rows, end = read_lines(http.get(url, params={**query, "format": "json"}))  # type: ignore[dict-item]
    by_header = read_lines(http.get(url, params=query, headers={"Accept": "application/x-ndjson, application/json"}))  # type: ignore[arg-type]
    assert by_header == (rows, end)
    arrow_rows, arrow_end = read_arrow(http.get(url, params=query, headers={"Accept": ARROW}))  # type: ignore[arg-type]
    assert end == arrow_end
    for row in rows:
        row["enqueued_time"] = datetime.datetime.fromisoformat(row["enqueued_time"])
    assert rows == arrow_rows


def test_columns_are_chosen(http: httpx.Client, plain: str) -> None:
    send(http, plain, "a")
    bulk = Bulk(http, plain)
    (row,), _ = bulk.range(partition=0, body="false", properties="false")
    assert "body" not in row
    assert "properties" not in row
    assert "message_id" in row
    (row,), _ = bulk.range(partition=0, columns="body, position")
    assert row == {"body": b"a", "position": 1}


def test_parts_of_a_range_and_its_edges(http: httpx.Client, plain: str) -> None:
    send(http, plain, *(f"m{number}" for number in range(1, 11)))
    bulk = Bulk(http, plain)
    rows, end = bulk.range(partition=0, first=4, last=6)
    assert [row["body"] for row in rows] == [b"m4", b"m5", b"m6"]
    assert end == {"complete_to": 6, "missing": []}
    rows, end = bulk.range(partition=0, first=9, last=100)
    assert [row["body"] for row in rows] == [b"m9", b"m10"]
    assert end["complete_to"] == 10
    rows, end = bulk.range(partition=0, first=11, last=20)
    assert (rows, end) == ([], {"complete_to": 10, "missing": []})


def test_what_was_settled_without_a_cursor_is_told_as_missing(http: httpx.Client, plain: str) -> None:
    send(http, plain, *(f"m{number}" for number in range(1, 8)))
    for _ in range(2):
        complete(http, plain)
    locked = http.post(f"/{plain}/messages/head?timeout=0")
    complete(http, plain)
    assert http.delete(httpx.URL(locked.headers["Location"]).raw_path.decode()).status_code == 200
    send(http, plain, "m8")
    bulk = Bulk(http, plain)
    rows, end = bulk.range(partition=0, first=1, last=8)
    assert [row["position"] for row in rows] == [5, 6, 7, 8]
    assert end == {"complete_to": 8, "missing": [[1, 4]]}
    assert bulk.log()[0]["earliest"] == 5
    for _ in range(4):
        complete(http, plain)
    assert bulk.range(partition=0, first=3, last=8) == ([], {"complete_to": 8, "missing": [[3, 8]]})
    assert bulk.log()[0]["earliest"] == 9


def test_large_and_many_messages_are_read_whole(server: Server, http: httpx.Client, plain: str) -> None:
    """Steps end by bytes and by rows, and messages of every size are stored in their own way."""
    sizes = [1, 300, 5_000, 31_000, 33_000, 100_000, 200_000]
    items = [[{"Body": "x" * size}] for _ in range(6) for size in sizes]
    items += [[{"Body": f"{number}"} for number in range(500)]] * 2
    for batch in items:
        assert http.post(f"/{plain}/messages", content=json.dumps(batch), headers=BATCH).status_code == 201
    total = 6 * len(sizes) + 1000
    rows, end = Bulk(http, plain).range(partition=0)
    assert end == {"complete_to": total, "missing": []}
    assert [len(row["body"]) for row in rows[: 6 * len(sizes)]] == sizes * 6
    assert [row["body"] for row in rows[-500:]] == [str(number).encode() for number in range(500)]


def test_a_time_is_found(server: Server, http: httpx.Client, plain: str) -> None:
    bulk = Bulk(http, plain)
    times = []
    for number in range(1, 21):
        send(http, plain, f"m{number}")
        server.do(lambda: server.clock.advance(60_000))
        (row,), _ = bulk.range(partition=0, first=number, last=number)
        times.append(row["enqueued_time"])
    for place, time in enumerate(times, 1):
        assert bulk.log(time=time.isoformat())[0]["at_time"] == place
        after = int((time + datetime.timedelta(milliseconds=1)).timestamp() * 1000)
        assert bulk.log(time=after)[0]["at_time"] == place + 1
    assert bulk.log(time="2001-01-01T00:00:00Z")[0]["at_time"] == 1


def test_a_subscription_and_a_dead_letter_queue_have_logs_of_their_own(server: Server, http: httpx.Client) -> None:
    name = f"t-{uuid.uuid4().hex}"
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path=name, enable_partitioning=True)))
    server.wait(management.create_subscription(SubscriptionDescription(topic=name, name="s", max_delivery_count=1)))
    send(http, name, *(f"m{number}" for number in range(20)))
    subscription = Bulk(http, f"{name}/Subscriptions/s")
    assert len(subscription.everything()) == 20
    for _ in range(20):
        got = http.post(f"/{name}/subscriptions/s/messages/head?timeout=0")
        http.put(httpx.URL(got.headers["Location"]).raw_path.decode())
    dead = Bulk(http, f"{name}/Subscriptions/s/$DeadLetterQueue")
    rows = dead.everything()
    assert len(rows) == 20
    assert {row["dead_letter_reason"] for row in rows} == {"MaxDeliveryCountExceeded"}
    assert {row["dead_letter_source"] for row in rows} == {f"{name}/Subscriptions/s"}
    assert [log["stable_end"] for log in Bulk(http, name).log().values()] == [0] * 16
    browsed, end = subscription.browse(state="dead-lettered")
    assert sorted(row["sequence_number"] for row in browsed) == sorted(row["sequence_number"] for row in rows)
    assert {row["state"] for row in browsed} == {"dead-lettered"}
    assert end == {"unreachable": []}


def test_browsing_chooses_by_state(server: Server, http: httpx.Client, queue: str) -> None:
    send(http, queue, *(f"a{number}" for number in range(300)))
    send(http, queue, *(f"s{number}" for number in range(20)), ScheduledEnqueueTimeUtc="2400-01-01T00:00:00Z")
    bulk = Bulk(http, queue)
    active, _ = bulk.browse()
    scheduled, _ = bulk.browse(state="scheduled")
    both, _ = bulk.browse(state="active,scheduled")
    assert {row["body"].decode()[0] for row in active} == {"a"}
    assert {row["body"].decode()[0] for row in scheduled} == {"s"}
    assert (len(active), len(scheduled), len(both)) == (300, 20, 320)
    assert {row["position"] for row in active} == {None}
    one, _ = bulk.browse(partition=0, state="active,scheduled,deferred")
    expected = [row["sequence_number"] for row in both if row["partition"] == 0]
    assert sorted(row["sequence_number"] for row in one) == sorted(expected)


def test_an_unreachable_partition_is_told(own_server: Server) -> None:
    server = own_server
    server.wait(server.namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
    with server.client() as http:
        send(http, "q", *(f"m{number}" for number in range(32)))
        server.take_down(1)
        bulk = Bulk(http, "q")
        down = [index for index, log in bulk.log().items() if not log["available"]]
        assert len(down) == 4
        assert bulk.log()[down[0]]["stable_end"] is None
        refused = http.get("/$polybus/entities/q/range", params={"partition": down[0]})
        assert refused.status_code == 503
        rows, end = bulk.browse()
        assert (len(rows), end) == (24, {"unreachable": down})
        server.bring_up(1)
        assert len(bulk.everything()) == 32


def test_a_store_that_fails_during_a_read_ends_it_and_says_so(own_server: Server) -> None:
    server = own_server
    server.wait(server.namespace.management.create(QueueDescription(path="q")))
    with server.client() as http:
        for _ in range(3):
            items = [{"Body": f"{number}"} for number in range(400)]
            http.post("/q/messages", content=json.dumps(items), headers=BATCH)
        for disk in server.disks:
            disk.store.faults.fail_nth("scan", 4)
        rows, end = Bulk(http, "q").range(partition=0)
        assert 0 < len(rows) < 1200
        assert end["complete_to"] == rows[-1]["position"]
        assert "error" in end


def test_events_are_kept_where_somebody_asks(http: httpx.Client, queue: str) -> None:
    bulk = Bulk(http, queue)
    send(http, queue, "before")
    assert bulk.get("events", partition=0) == {"enabled": False, "events": [], "next": 1}
    assert bulk.put("events", {"enabled": True}) == {"enabled": True}
    send(http, queue, "x", SessionId="same")
    complete(http, queue)
    complete(http, queue)
    found = [bulk.get("events", partition=index) for index in bulk.log()]
    events = [event for each in found for event in each["events"]]
    assert sorted(event["change"] for event in events) == ["completed", "completed", "enqueued"]
    busiest = max(range(len(found)), key=lambda index: len(found[index]["events"]))
    first = found[busiest]["events"][0]
    one = bulk.get("events", partition=busiest, limit=1)
    assert one["events"] == [first]
    assert one["next"] == first["event"] + 1
    rest = bulk.get("events", partition=busiest, first=one["next"])
    assert rest["events"] == found[busiest]["events"][1:]
    bulk.put("events", {"enabled": False})
    send(http, queue, "after")
    assert [bulk.get("events", partition=index)["events"] for index in bulk.log()] == [
        each["events"] for each in found
    ]


def test_dead_letters_are_moved_back_by_number(server: Server, http: httpx.Client, queue: str) -> None:
    send(http, queue, *(f"m{number}" for number in range(12)))
    for _ in range(12):
        for _ in range(10):
            got = http.post(f"/{queue}/messages/head?timeout=0")
            if got.status_code == 204:
                break
            http.put(httpx.URL(got.headers["Location"]).raw_path.decode())
    dead = Bulk(http, f"{queue}/$DeadLetterQueue")
    rows = dead.everything()
    assert len(rows) == 12
    numbers = [row["sequence_number"] for row in rows]
    held = http.post(f"/{queue}/$DeadLetterQueue/messages/head?timeout=0")
    locked = json.loads(held.headers["BrokerProperties"])["SequenceNumber"]
    changed = next(number for number in numbers if number != locked)
    body = {
        "numbers": [*numbers, 1 << 40],
        "to": queue,
        "changes": {str(changed): {"body": "repaired", "message_id": "new", "properties": {"fixed": True}}},
    }
    report = dead.post("move", body)
    assert sorted(report["moved"]) == sorted(set(numbers) - {locked})
    assert (report["locked"], report["missing"], report["unreachable"]) == ([locked], [1 << 40], [])
    entity = server.namespace.entity(queue)
    server.wait_until(lambda: entity.counts().result().active == 11 and entity.counts().result().transfer == 0)
    back = [complete(http, queue) for _ in range(11)]
    bodies = {got.content for got in back}
    assert b"repaired" in bodies
    assert len(bodies) == 11
    repaired = next(got for got in back if got.content == b"repaired")
    assert repaired.headers["fixed"] == "true"
    assert dead.post("move", body)["moved"] == []


def test_a_move_edits_messages_and_is_no_duplicate_where_the_id_was_seen(server: Server, http: httpx.Client) -> None:
    name = f"q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, requires_duplicate_detection=True)))
    http.post(f"/{name}/messages", content=b"bad", headers={"BrokerProperties": '{"MessageId": "m1"}', "tenant": "5"})
    bulk = Bulk(http, name)
    edits = {"1": {"body": "good", "content_type": "text/plain", "properties": {"fixed": True, "none": None}}}
    assert bulk.post("move", {"numbers": [1], "to": name, "edits": edits})["moved"] == [1]
    entity = server.namespace.entity(name)
    server.wait_until(lambda: entity.counts().result().active == 1 and entity.counts().result().transfer == 0)
    (row,) = bulk.everything()
    assert (row["body"], row["message_id"], row["content_type"]) == (b"good", "m1", "text/plain")
    assert dict(row["properties"]) == {"tenant": "5", "fixed": "true"}
    got = complete(http, name)
    assert (got.content, got.headers["tenant"]) == (b"good", "5")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"partition_key": "k"}, "cannot be altered"),
        ({"subject": 5}, "must be a string"),
        ({"session_id": "x" * 129}, "more than 128"),
        ({"body": None}, "'body' must be"),
        ({"properties": {"a": [1]}}, "plain value"),
        ({"properties": {"a": "x" * 70_000}}, "may take"),
        ({"properties": {"a": "x" * 40_000}}, "larger than"),
        ({"properties": {"a": "x" * 30_000, "b": "x" * 30_000, "c": "x" * 30_000}}, "The properties take"),
        ({"body": "x" * 300_000}, "the limit is"),
    ],
)
def test_an_edit_that_cannot_be_moves_nothing(http: httpx.Client, plain: str, edit: dict[str, Any], why: str) -> None:
    send(http, plain, "x")
    request = {"numbers": [1], "to": plain, "edits": {"1": edit}}
    refused = http.post(f"/$polybus/entities/{plain}/move", json=request, headers={"Accept": "application/json"})
    assert refused.status_code in (400, 403)
    assert why in refused.json()["error"]["detail"]
    both = {"numbers": [1], "to": plain, "edits": {"1": {}}, "changes": {"1": {"body": "x"}}}
    assert http.post(f"/$polybus/entities/{plain}/move", json=both).status_code == 400
    large = {"numbers": [1], "to": plain, "changes": {"1": {"body": "x" * 300_000}}}
    assert http.post(f"/$polybus/entities/{plain}/move", json=large).status_code == 403
    assert len(Bulk(http, plain).everything()) == 1


def test_a_move_goes_to_one_subscription(server: Server, http: httpx.Client, plain: str) -> None:
    name = f"t-{uuid.uuid4().hex}"
    management = server.namespace.management
    server.wait(management.create(TopicDescription(path=name)))
    for each in ("one", "two"):
        server.wait(management.create_subscription(SubscriptionDescription(topic=name, name=each)))
    send(http, plain, "x")
    Bulk(http, plain).post("move", {"numbers": [1], "to": f"{name}/Subscriptions/one"})
    entity = server.namespace.entity(name)
    server.wait_until(lambda: entity.counts(1).result().active == 1)
    assert entity.counts(2).result().active == 0
    assert complete(http, f"{name}/subscriptions/one").content == b"x"


def test_without_pyarrow_the_answer_says_what_to_install(
    server: Server, http: httpx.Client, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    refused = http.get(f"/$polybus/entities/{plain}/range", params={"partition": 0})
    staged = http.post(f"/$polybus/entities/{plain}/stage", content=b"x", headers={"Content-Type": ARROW})
    lines = http.get(f"/$polybus/entities/{plain}/range", params={"partition": 0, "format": "json"})
    monkeypatch.undo()
    for response in (refused, staged):
        assert response.status_code == 501
        assert "pip install 'polybus[arrow]'" in response.text.replace("&#x27;", "'")
    assert lines.status_code == 200


def test_the_description_names_every_route(server: Server) -> None:
    from polybus.gateway.bulk import routes as http_bulk

    document = httpx.get(f"{server.url}/$polybus/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    for pattern, handlers in http_bulk._ROUTES:
        names = iter([str(pattern[0]).removesuffix("s")])
        words = [f"{{{next(names)}}}" if word is None else word for word in pattern]
        for method in handlers:
            assert ("/".join(["/$polybus/entities/{entity}", *words]), method.lower()) in described
