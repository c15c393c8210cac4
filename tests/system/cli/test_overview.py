"""Where everything lies, through HTTP: partitions, stores, health; and a namespace written to a file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.system.cli.server import Served, Shell


def test_the_partitions_of_a_queue(shell: Shell) -> None:
    shell.run("queue", "create", "spread", "--enable-partitioning")
    shell.run("send", "spread", "x", "--count", "8")
    shell.run("send", "spread", "x", "--count", "4", "--partition-key", "k")
    data = shell.json("partitions", "spread")
    assert (data["name"], data["kind"], data["availability"]) == ("spread", "queue", "Available")
    assert [each["index"] for each in data["partitions"]] == [0, 1, 2, 3]
    assert sum(each["counts"]["active"] for each in data["partitions"]) == 12
    assert max(each["counts"]["active"] for each in data["partitions"]) == 6
    assert len({each["store"] for each in data["partitions"]}) == 2
    assert all(each["available"] for each in data["partitions"])
    lines = shell.run("partitions", "spread").splitlines()
    assert lines[0].strip() == "spread: queue, available"
    assert max(line.count("█") for line in lines) == 12
    assert sorted(line.count("█") for line in lines)[-2] == 4


def test_the_partitions_of_a_topic_and_of_one_subscription(shell: Shell) -> None:
    shell.run("topic", "create", "fan/out")
    for name in ("one", "two"):
        shell.run("subscription", "create", "fan/out", name)
    shell.run("send", "fan/out", "x", "--count", "3")
    (both,) = shell.json("partitions", "fan/out")["partitions"]
    (one,) = shell.json("partitions", "fan/out", "--subscription", "one")["partitions"]
    assert (both["counts"]["active"], one["counts"]["active"]) == (6, 3)
    shell.run("partitions", "fan/out", "--subscription", "three", code=1)


def test_the_stores(shell: Shell, served: Served) -> None:
    shell.run("queue", "create", "committed")
    shell.run("send", "committed", "x")
    data = shell.json("stores")
    assert [each["state"] for each in data["stores"]] == ["open", "open"]
    assert all(each["url"].startswith(f"rocksdb:{served.data}") for each in data["stores"])
    assert sum(each["commits"] for each in data["stores"]) > 0
    assert "open" in shell.run("stores")


def test_overviews_are_for_managers(shell: Shell, served: Served) -> None:
    shell.run("queue", "create", "private", "--key", "reader=a2V5:Listen")
    reader = Shell(served.connection("a2V5").replace("RootManageSharedAccessKey", "reader"))
    reader.run("partitions", "private", code=1)
    reader.run("stores", code=1)


def test_an_unknown_entity_has_no_partitions(shell: Shell) -> None:
    assert "nowhere" in shell.run("partitions", "nowhere", code=1)


def test_health(shell: Shell) -> None:
    assert shell.run("healthcheck") == "Polybus is ready.\n"
    assert shell.json("healthcheck")["status"] == "healthy"


def test_what_is_exported_makes_the_same_namespace(tmp_path: Path) -> None:
    first = Served(tmp_path / "first")
    try:
        shell = Shell(first.connection())
        _declare(shell)
        shell.run("export", "--to", str(tmp_path / "config.json"))
        text = (tmp_path / "config.json").read_text()
        assert shell.run("export") == text
        with_keys = shell.run("export", "--keys")
        before = _everything(shell)
    finally:
        assert first.stop()[0] == 0
    assert "c2VjcmV0" not in text
    assert "c2VjcmV0" in with_keys
    second = Served(tmp_path / "second", "--config", str(tmp_path / "config.json"))
    try:
        assert _everything(Shell(second.connection())) == before
    finally:
        assert second.stop()[0] == 0


def _declare(shell: Shell) -> None:
    shell.run("queue", "create", "plain")
    shell.run(
        "queue",
        "create",
        "large",
        "--enable-partitioning",
        "--max-size-in-megabytes",
        "2048",
        "--key",
        "k=c2VjcmV0:Send",
    )
    shell.run("queue", "create", "on", "--forward-to", "plain", "--lock-duration", "5s", "--user-metadata", "mine")
    shell.run("topic", "create", "t/u", "--requires-duplicate-detection", "--default-message-time-to-live", "2h")
    shell.run("subscription", "create", "t/u", "all")
    shell.run("subscription", "create", "t/u", "some", "--requires-session", "--max-delivery-count", "4")
    shell.run("rule", "delete", "t/u", "some", "$Default", "--yes")
    shell.run(
        "rule", "create", "t/u", "some", "sql", "--sql", "a = @x", "--parameter", "@x=3", "--action", "SET b = 1"
    )
    shell.run("rule", "create", "t/u", "some", "match", "--match", "label=x", "--property", "n=1.5")
    shell.run("subscription", "create", "t/u", "none")
    shell.run("rule", "delete", "t/u", "none", "$Default", "--yes")
    shell.run("rule", "create", "t/u", "none", "never", "--nothing")


def _everything(shell: Shell) -> object:
    changing = ("created_at_utc", "updated_at_utc", "accessed_at_utc")
    found = [shell.json("queue", "show", name) for name in ("plain", "large", "on")]
    found.append(shell.json("topic", "show", "t/u"))
    for name in ("all", "some", "none"):
        found.append(shell.json("subscription", "show", "t/u", name))
        found += shell.json("rule", "list", "t/u", name)
    plain = [{name: value for name, value in each.items() if name not in changing} for each in found]
    # Forwards come back as the client wrote them, with its own address in them.
    return json.loads(json.dumps(plain).replace(shell.connection.split("//")[1].split(";")[0], "HERE"))
