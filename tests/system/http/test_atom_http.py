"""The management API on the wire: what the SDKs do not show, and what other SDKs than Python's send."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from polybus.namespace.entities.tiers import BASIC, PREMIUM, Tier, TierName
from tests.system.http.kit import Server
from tests.system.http.test_refusals import ATOM, SB, XSI, check, entry, queue

ENTRY = "application/atom+xml;type=entry;charset=utf-8"
FEED = "application/atom+xml;type=feed;charset=utf-8"


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"e-{uuid.uuid4().hex}"


def value(response: httpx.Response, element: str) -> str | None:
    found = re.search(f"<{element}>(.*?)</{element}>", response.text)
    return None if found is None else found[1]


def test_statuses_types_and_etags(http: httpx.Client, name: str) -> None:
    created = http.put(f"/{name}?api-version=2021-05", content=queue())
    assert (created.status_code, created.headers["content-type"]) == (201, ENTRY)
    assert "<AccessedAt>" not in created.text
    assert "<CountDetails" not in created.text
    read = http.get(f"/{name}?api-version=2021-05")
    assert (read.status_code, read.headers["content-type"]) == (200, ENTRY)
    assert re.fullmatch(r"\d{18}", read.headers["etag"])
    assert "<CountDetails xmlns:d2p1=" in read.text
    updated = http.put(f"/{name}", content=queue(), headers={"If-Match": "*"})
    assert (updated.status_code, updated.headers["content-type"]) == (200, ENTRY)
    assert "<published>" not in updated.text
    listed = http.get("/$Resources/Queues")
    assert (listed.status_code, listed.headers["content-type"]) == (200, FEED)
    deleted = http.delete(f"/{name}")
    assert (deleted.status_code, deleted.content) == (200, b"")
    assert deleted.headers["content-length"] == "0"
    assert "content-type" not in deleted.headers


def test_ids_repeat_how_the_client_reached_us(server: Server, http: httpx.Client, name: str) -> None:
    http.put(f"/dir%2F{name}", content=queue())
    for host in ("bus.example:5300", "10.1.2.3", "[::1]:80", "sbemulatorns"):
        shown = http.get(f"/dir/{name}?api-version=2021-05&enrich=False", headers={"Host": host})
        assert f"<id>http://{host}/dir/{name}?api-version=2021-05&amp;enrich=False</id>" in shown.text


def test_partitioning_needs_the_api_version_that_knows_it(http: httpx.Client, name: str) -> None:
    """A6: before 2013-10 the element does not exist, so an update with such a version leaves it as it is."""
    body = queue("<EnablePartitioning>true</EnablePartitioning>")
    for number, query in enumerate(("?api-version=2013-10", "")):
        made = http.put(f"/{name}-{number}{query}", content=body)
        assert value(made, "EnablePartitioning") == "true"
        other = queue("<EnablePartitioning>false</EnablePartitioning>")
        old = http.put(f"/{name}-{number}?api-version=2012-03", content=other, headers={"If-Match": "*"})
        assert (old.status_code, value(old, "EnablePartitioning")) == (200, "true")


def test_message_sizes_show_since_their_version(http: httpx.Client, name: str) -> None:
    assert value(http.put(f"/{name}?api-version=2017-04", content=queue()), "MaxMessageSizeInKilobytes") is None
    assert value(http.get(f"/{name}?api-version=2021-05"), "MaxMessageSizeInKilobytes") == "256"
    back = queue("<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>")
    assert http.put(f"/{name}?api-version=2021-05", content=back, headers={"If-Match": "*"}).status_code == 200


def test_a_partitioned_size_is_shown_as_a_whole_and_taken_either_way(http: httpx.Client, name: str) -> None:
    partitioned = "<EnablePartitioning>true</EnablePartitioning>"
    made = http.put(f"/{name}", content=queue(f"{partitioned}<MaxSizeInMegabytes>2048</MaxSizeInMegabytes>"))
    assert value(made, "MaxSizeInMegabytes") == "32768"
    assert value(made, "SupportOrdering") == "false"
    for sent in ("32768", "2048"):
        body = queue(f"<MaxSizeInMegabytes>{sent}</MaxSizeInMegabytes>{partitioned}")
        again = http.put(f"/{name}", content=body, headers={"If-Match": "*"})
        assert value(again, "MaxSizeInMegabytes") == "32768"


def test_the_javascript_way_of_subscriptions_and_pages(http: httpx.Client, name: str) -> None:
    http.put(f"/{name}", content=entry("TopicDescription"))
    rule = (
        f'<DefaultRuleDescription><Filter p4:type="SqlFilter" xmlns:p4="{XSI}"><SqlExpression>a = 1</SqlExpression>'
        "</Filter><Name>first</Name></DefaultRuleDescription>"
    )
    for each in ("a", "b", "c"):
        body = (
            f'<entry xmlns="{ATOM}"><updated>2026-01-01T00:00:00.000Z</updated><content type="application/xml">'
            f'<SubscriptionDescription xmlns="{SB}" xmlns:i="{XSI}">{rule}</SubscriptionDescription>'
            "</content></entry>"
        )
        made = http.put(f"/{name}/Subscriptions/{each}?api-version=2021-05", content=body)
        assert made.status_code == 201
        assert f"/{name}/Subscriptions/{each}?" in made.text
    rules = http.get(f"/{name}/Subscriptions/a/Rules/")
    assert re.findall('<title type="text">(.*?)</title>', rules.text) == ["Rules", "first"]
    found: list[str] = []
    url = f"/{name}/Subscriptions/?%24skip=0&%24top=1&api-version=2021-05"
    while True:
        page = http.get(url)
        found += re.findall('<title type="text">([abc])</title>', page.text)
        assert page.text.count('<link rel="self"') == 2
        following = re.search('<link rel="next" href="http://[^/]*([^"]*)"/>', page.text)
        if following is None:
            break
        url = following[1].replace("&amp;", "&")
        assert "%24skip=" in url
        assert "%24top=1" in url
    assert found == ["a", "b", "c"]


def test_keywords_are_read_in_any_case(http: httpx.Client, name: str) -> None:
    http.put(f"/{name}", content=entry("TopicDescription"))
    assert http.put(f"/{name}/SUBSCRIPTIONS/s", content=entry("SubscriptionDescription")).status_code == 201
    for path in (f"/{name.upper()}/subscriptions/S", f"/{name}/Subscriptions/s/"):
        assert f'<title type="text">{"s"}</title>' in http.get(path).text
    for path in ("/$resources/topics", "/$Resources/Topics", "/%24Resources/topics/", "/$RESOURCES/TOPICS"):
        assert f'<title type="text">{name}</title>' in http.get(path).text


def test_an_update_that_is_under_way_keeps_another_out(server: Server, http: httpx.Client, name: str) -> None:
    http.put(f"/{name}", content=queue())
    management = server.namespace.management
    server.do(lambda: management._busy.__setitem__(name, None))
    refused = http.put(f"/{name}", content=queue(), headers={"If-Match": "*"})
    assert refused.status_code == 409
    assert refused.text.count("SubCode=40901.") == 1
    check(refused, 409, "SubCode=40901.")
    server.do(lambda: management._busy.pop(name))
    assert http.delete(f"/{name}").status_code == 200


@pytest.mark.parametrize(
    ("tier", "sku", "outcomes"),
    [
        (BASIC, "Basic", {"queue": 201, "topic": 400, "session": 400, "partitioned": 201, "large": 400}),
        (PREMIUM, "Premium", {"queue": 201, "topic": 201, "session": 201, "partitioned": 400, "large": 201}),
        (
            Tier(TierName.PREMIUM, premium_partitions=2),
            "Premium",
            {"queue": 201, "topic": 201, "session": 201, "partitioned": 201, "large": 201},
        ),
    ],
)
def test_tiers(certificates: Path, tier: Tier, sku: str, outcomes: dict[str, int]) -> None:
    server = Server(certificates, tier=tier).start()
    bodies = {
        "queue": queue(),
        "topic": entry("TopicDescription"),
        "session": queue("<RequiresSession>true</RequiresSession>"),
        "partitioned": queue("<EnablePartitioning>true</EnablePartitioning>"),
        "large": queue("<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>"),
    }
    with server.client() as http:
        assert value(http.get("/$namespaceinfo"), "MessagingSKU") == sku
        answers = {each: http.put(f"/{each}", content=body).status_code for each, body in bodies.items()}
    server.stop()
    assert answers == outcomes


def titles(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return re.findall(r'<entry [^>]*>.*?<title type="text">(.*?)</title>', response.text)


@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_lists_are_filtered_and_their_pages_keep_the_filter(http: httpx.Client, name: str, kind: str) -> None:
    body = queue("<EnablePartitioning>true</EnablePartitioning>" if kind == "partitioned" else "")
    for part in ("a", "b", "c"):
        http.put(f"/{name}-{part}?api-version=2021-05", content=body)
    http.post(f"/{name}-b/messages", content="x")
    mine = f"startswith(path, '{name}') eq true"
    listed = http.get("/$Resources/Queues", params={"$filter": mine})
    assert titles(listed) == [f"{name}-a", f"{name}-b", f"{name}-c"]
    full = http.get("/$Resources/Queues", params={"$filter": f"{mine} and messageCount gt 0"})
    assert titles(full) == [f"{name}-b"]
    page = http.get("/$Resources/Queues", params={"$filter": mine, "$top": "2", "api-version": "2021-05"})
    assert titles(page) == [f"{name}-a", f"{name}-b"]
    following = re.search(r'<link rel="next" href="([^"]*)"', page.text)
    assert following is not None
    rest = http.get(following[1].replace("&amp;", "&"))
    assert titles(rest) == [f"{name}-c"]
    assert 'rel="next"' not in rest.text
    assert titles(http.get("/$Resources/Topics", params={"$filter": mine})) == []


def test_subscriptions_are_filtered(http: httpx.Client, name: str) -> None:
    http.put(f"/{name}", content=entry("TopicDescription"))
    for part in ("audit", "billing"):
        http.put(f"/{name}/subscriptions/{part}", content=entry("SubscriptionDescription"))
    listed = http.get(f"/{name}/Subscriptions", params={"$filter": "startswith(name, 'aud') eq false"})
    assert titles(listed) == ["billing"]


def test_a_filter_that_cannot_be_read(http: httpx.Client) -> None:
    check(http.get("/$Resources/Queues", params={"$filter": "colour eq 'red'"}), 400, "SubCode=40000.")
