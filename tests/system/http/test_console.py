"""The console's side of the bus: its page without a key, its files, its policy, sessions and live figures."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from polybus.client.sas import make_token
from polybus.console import assets
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.namespace.entities.tiers import Tier, TierName
from tests.system.http.kit import KEY, KEY_NAME, Server

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def server(own_server: Server) -> Server:
    """One for each test: they look at all that there is."""
    return own_server


LISTENER = ("listener", "listen key")
SENDER = ("sender", "send key")


def token(server: Server, pair: tuple[str, str] = (KEY_NAME, KEY), path: str = "") -> dict[str, str]:
    return {"Authorization": make_token(f"{server.url}/{path}", *pair, int(time.time()) + 600)}


def live(server: Server, headers: dict[str, str], query: str = "", events: int = 1) -> list[dict[str, Any]]:
    """The first events of the stream."""
    found: list[dict[str, Any]] = []
    with httpx.stream("GET", f"{server.url}/$polybus/console/live{query}", headers=headers, timeout=30) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                if len(found) == events:
                    return found
    raise AssertionError(f"the stream ended after {len(found)} events")


def test_a_browser_gets_the_log_in_page_without_a_key(server: Server) -> None:
    for path in ("/", "/$polybus/console", "/$polybus/console/"):
        answer = httpx.get(f"{server.url}{path}", headers=HTML)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "<title>Polybus</title>" in answer.text
    assert httpx.head(f"{server.url}/", headers=HTML).content == b""
    assert httpx.post(f"{server.url}/$polybus/console").status_code == 405


def test_whoever_does_not_ask_for_a_page_gets_what_he_got_before(server: Server) -> None:
    for headers in ({}, {"Accept": "application/xml"}, {**HTML, **token(server)}):
        answer = httpx.get(f"{server.url}/", headers=headers)
        assert "html" not in answer.headers["content-type"]
    assert "html" not in httpx.get(f"{server.url}/?api-version=2021-05", headers=HTML).headers["content-type"]


def test_the_policy_lets_in_nothing_but_the_consoles_own_files(server: Server) -> None:
    answer = httpx.get(f"{server.url}/", headers=HTML)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", answer.text) is None


def test_files_are_kept_for_good_under_their_version_and_nothing_else_is_served(server: Server) -> None:
    page = httpx.get(f"{server.url}/", headers=HTML)
    paths = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(paths) == 4
    for path in paths:
        answer = httpx.get(f"{server.url}{path}")
        assert answer.status_code == 200, path
        assert "immutable" in answer.headers["cache-control"]
    base = paths[0].rsplit("/", 1)[0]
    others = (
        f"{base}/nothing.js",
        f"{base}/../assets.py",
        f"{base}/%2e%2e/assets.py",
        f"{base}/..%2fassets.py",
        f"{base}/index.html",
        "/$polybus/console/assets/0123456789abcdef/main.js",
        "/$polybus/console/nothing",
    )
    for path in others:
        assert httpx.get(f"{server.url}{path}").status_code in (400, 404), path
    assert page.headers["cache-control"] == "no-cache"


def test_the_session_says_what_the_key_may_do_and_what_the_namespace_allows(server: Server) -> None:
    url = f"{server.url}/$polybus/console/session"
    assert httpx.get(url).status_code == 401
    told = httpx.get(url, headers=token(server)).json()
    assert told["rights"] == ["Manage", "Send", "Listen"]
    assert told["namespace"] == "sbemulatorns"
    assert told["tier"]["sizes_mb"] == [1024, 2048, 3072, 4096, 5120]
    assert told["tier"]["may_partition"] is True
    assert told["faults"] is False
    assert httpx.get(url, headers=token(server, LISTENER)).json()["rights"] == ["Listen"]
    assert httpx.get(url, headers=token(server, SENDER)).json()["rights"] == ["Send"]
    assert httpx.get(url, headers=token(server, ("sender", "wrong"))).status_code == 401


def test_live_figures_need_a_key_and_tell_of_every_entity(server: Server) -> None:
    assert httpx.get(f"{server.url}/$polybus/console/live").status_code == 401
    server.wait(server.namespace.management.create(QueueDescription(path="orders", enable_partitioning=True)))
    server.wait(server.namespace.management.create(TopicDescription(path="events")))
    server.wait(
        server.namespace.management.create_subscription(SubscriptionDescription(topic="events", name="audit"))
    )
    sent = httpx.post(f"{server.url}/orders/messages", content=b"x", headers=token(server))
    assert sent.status_code == 201
    (frame,) = live(server, token(server, LISTENER), "?focus=orders")
    figures = {each["path"]: each for each in frame["entities"]}
    assert list(figures) == ["orders", "events", "events/Subscriptions/audit"]
    assert figures["orders"]["active"] == figures["orders"]["in"] == 1
    assert figures["orders"]["partitions"] == 16
    assert figures["orders"]["max_bytes"] == 16 << 30
    assert [each["state"] for each in frame["stores"]] == ["open"] * 4
    partitions = frame["focus"]["partitions"]
    assert sum(each["entered"] for each in partitions) == sum(each["counts"]["active"] for each in partitions) == 1
    assert len(frame["history"]) == 1
    assert frame["node"]["uptime_s"] >= 0


def test_an_entity_that_goes_while_somebody_watches_is_no_longer_told(server: Server) -> None:
    server.wait(server.namespace.management.create(QueueDescription(path="short-lived")))
    url = f"{server.url}/$polybus/console/live?focus=short-lived"
    with httpx.stream("GET", url, headers=token(server), timeout=30) as answer:
        frames = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        assert [each["path"] for each in next(frames)["entities"]] == ["short-lived"]
        server.wait(server.namespace.management.delete("short-lived"))
        after = next(frames)
        assert (after["entities"], after["focus"]) == ([], None)


def test_only_so_many_may_watch_and_a_place_is_free_again_when_one_goes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polybus import limits

    monkeypatch.setattr(limits, "LIVE_STREAMS", 1)
    url = f"{server.url}/$polybus/console/live"
    with httpx.stream("GET", url, headers=token(server), timeout=30) as first:
        lines = first.iter_lines()
        assert next(lines) == "event: figures"
        with httpx.stream("GET", url, headers=token(server), timeout=30) as second:
            assert second.status_code == 503
        assert next(lines).startswith("data: ")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with httpx.stream("GET", url, headers=token(server), timeout=30) as again:
            if again.status_code == 200:
                return
    raise AssertionError("the place of a page that was closed stayed taken")


def test_what_only_managers_may_know_is_not_told_to_others(server: Server) -> None:
    (frame,) = live(server, token(server))
    assert "url" in frame["stores"][0]
    (frame,) = live(server, token(server, SENDER))
    assert {"url", "last_error", "id"} & set(frame["stores"][0]) == set()
    assert httpx.get(f"{server.url}/$polybus/console/config.json", headers=token(server, LISTENER)).status_code == 401


def test_the_key_of_one_entity_sees_that_one(server: Server) -> None:
    from polybus.namespace.entities.description import AccessRight, AuthorizationRule

    rule = AuthorizationRule(key_name="own", rights=(AccessRight.LISTEN,), primary_key="own key", secondary_key="")
    described = QueueDescription(path="mine", authorization_rules=(rule,))
    server.wait(server.namespace.management.create(described))
    server.wait(server.namespace.management.create(QueueDescription(path="other")))
    headers = token(server, ("own", "own key"), "mine")
    assert httpx.get(f"{server.url}/$polybus/console/session", headers=headers).status_code == 401
    told = httpx.get(f"{server.url}/$polybus/console/session?entity=mine", headers=headers).json()
    assert (told["rights"], told["entity"]) == (["Listen"], "mine")
    (frame,) = live(server, headers, "?entity=mine&focus=other")
    assert [each["path"] for each in frame["entities"]] == ["mine"]
    assert frame["focus"] is None
    refused = httpx.get(f"{server.url}/$polybus/console/live?entity=other", headers=headers)
    assert refused.status_code == 401


def test_a_stream_ends_with_its_token(server: Server) -> None:
    headers = {"Authorization": make_token(f"{server.url}/", KEY_NAME, KEY, int(time.time()) + 2)}
    with httpx.stream("GET", f"{server.url}/$polybus/console/live", headers=headers, timeout=30) as answer:
        text = answer.read().decode()
    assert text.rstrip().splitlines()[-2] == "event: refused"
    assert "ExpiredToken" in text


def test_a_live_namespace_is_exported_as_a_file_that_declares_it(server: Server) -> None:
    from polybus.gateway.config.file import load

    described = QueueDescription(path="orders", enable_partitioning=True, max_size_in_megabytes=5120)
    server.wait(server.namespace.management.create(described))
    server.wait(server.namespace.management.create(TopicDescription(path="events")))
    server.wait(
        server.namespace.management.create_subscription(SubscriptionDescription(topic="events", name="audit"))
    )
    answer = httpx.get(f"{server.url}/$polybus/console/config.json", headers=token(server))
    assert answer.status_code == 200
    assert KEY not in answer.text
    loaded = load(answer.text, "config.json", Tier(TierName.STANDARD)).namespaces[0]
    assert [(queue.path, queue.enable_partitioning) for queue in loaded.queues] == [("orders", True)]
    assert [each.description.name for each in loaded.topics[0].subscriptions] == ["audit"]


def test_what_is_not_ours_is_what_its_page_says() -> None:
    table = (assets.FOLDER / "vendor" / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+\.js)` \|.*\| `([0-9a-f]{64})` \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == ["preact.js", "hooks.js", "htm.js"]
    for name, digest in rows:
        assert hashlib.sha256((assets.FOLDER / "vendor" / name).read_bytes()).hexdigest() == digest
    assert {path.name for path in (assets.FOLDER / "vendor").glob("LICENSE*")} == {"LICENSE-preact", "LICENSE-htm"}


def _scripts() -> Iterator[Path]:
    yield from (path for path in assets.FOLDER.rglob("*.js") if path.parent.name != "vendor")


@pytest.mark.parametrize("path", list(_scripts()), ids=lambda path: path.name)
def test_no_script_makes_markup_of_text_or_asks_anybody_else(path: Path) -> None:
    text = path.read_text()
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "new Function",
        "srcdoc",
    ):
        assert forbidden not in text
    outside = re.findall(r"https?://[\w.]+", text)
    names = {"http://schemas.microsoft.com", "http://www.w3.org"}  # names of XML, which nobody asks
    assert set(outside) <= names


def test_the_start_prints_where_the_console_is(tmp_path: Path) -> None:
    from polybus.testing.server import ServerProcess

    with ServerProcess(tmp_path, "--store", "memory:") as bus:
        (line,) = [line for line in bus.output if line.startswith("console: ")]
        assert httpx.get(line.split()[1], headers=HTML).status_code == 200
