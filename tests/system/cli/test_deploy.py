"""Templates deployed to a bus, and written from one, with the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polybus.templates.template import resources_of
from tests.system.cli.server import Served, Shell

BICEP = Path(__file__).parents[2] / "unit" / "templates" / "bicep.json"


def write(folder: Path, name: str, document: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def queue(name: str, **properties: Any) -> dict[str, Any]:
    kind = "Microsoft.ServiceBus/namespaces/queues"
    return {"resources": [{"type": kind, "name": f"ns/{name}", "apiVersion": "2021-11-01", "properties": properties}]}


def test_a_bicep_template_from_nothing_to_no_change(shell: Shell, tmp_path: Path) -> None:
    parameters = write(tmp_path, "parameters.json", {"parameters": {"namespaceName": {"value": "Shop"}}})
    planned = shell.json("deploy", str(BICEP), "--parameters", parameters, "--what-if")["what_if"]
    actions = [(row["action"], row["resource"].split("/", 2)[-1]) for row in planned]
    assert actions == [
        ("no change", "sbemulatorns"),
        ("create", "queues/orders"),
        ("create", "queues/invoices"),
        ("create", "topics/shop-events"),
        ("create", "topics/shop-events/subscriptions/audit"),
        ("create", "topics/shop-events/subscriptions/audit/rules/large"),
    ]
    assert "orders" not in [each["name"] for each in shell.json("queue", "list")]
    done = shell.json("deploy", str(BICEP), "-p", parameters)
    assert done == {"created": 5, "updated": 0, "unchanged": 1}
    orders = shell.json("queue", "show", "orders")
    assert (orders["enable_partitioning"], orders["lock_duration"], orders["max_delivery_count"]) == (True, "PT2M", 5)
    assert shell.json("deploy", str(BICEP), "-p", parameters) == {"created": 0, "updated": 0, "unchanged": 6}
    shell.run("queue", "update", "invoices", "--max-delivery-count", "9")
    again = shell.json("deploy", str(BICEP), "-p", "namespaceName=Shop", "--what-if")["what_if"]
    changed = [row for row in again if row["action"] == "update"]
    assert [row["changes"] for row in changed] == [{"maxDeliveryCount": {"from": 9, "to": 6}}]
    assert shell.json("deploy", str(BICEP), "-p", parameters)["updated"] == 1
    for kind, name in (("topic", "shop-events"), ("queue", "orders"), ("queue", "invoices")):
        shell.run(kind, "delete", name, "--yes")


def test_a_template_that_contradicts_what_is_there_does_nothing(shell: Shell, tmp_path: Path) -> None:
    shell.run("queue", "create", "plain")
    document = queue("fresh")
    document["resources"] += queue("plain", enablePartitioning=True, requiresSession=True)["resources"]
    text = shell.run("deploy", write(tmp_path, "t.json", document), code=1)
    assert "enablePartitioning" in text
    assert "nothing was done" in text
    assert "fresh" not in [each["name"] for each in shell.json("queue", "list")]
    shell.run("queue", "delete", "plain", "--yes")


@pytest.mark.parametrize(
    ("document", "words", "code"),
    [
        (queue("a", lockDuration="[nothing('x')]"), "nothing() is not known", 2),
        (queue("a", lockDuration=5), "lockDuration", 1),
        ({"resources": [{"type": "Microsoft.ServiceBus/namespaces/networkRuleSets", "name": "ns/x"}]}, "be had", 2),
    ],
)
def test_what_cannot_be_deployed_is_refused_whole(
    shell: Shell, tmp_path: Path, document: dict[str, Any], words: str, code: int
) -> None:
    assert words in shell.run("deploy", write(tmp_path, "t.json", document), code=code)
    assert "a" not in [each["name"] for each in shell.json("queue", "list")]


def test_an_exported_template_makes_the_same_again(served: Served, shell: Shell, tmp_path: Path) -> None:
    shell.run("queue", "create", "end", "--enable-partitioning", "--max-size-in-megabytes=2048")
    shell.run("queue", "create", "start", "--forward-to", "end", "--lock-duration", "30s")
    shell.run("topic", "create", "news")
    shell.run("subscription", "create", "news", "eu", "--requires-session")
    shell.run("rule", "delete", "news", "eu", "$Default", "--yes")
    shell.run("rule", "create", "news", "eu", "german", "--sql", "country = 'DE'", "--action", "SET seen = 1")
    text = shell.run("export", "--template")
    document = json.loads(text)
    assert [each.path.split("/", 2)[-1] for each in resources_of(document)] == [
        "sbemulatorns",
        "queues/end",
        "topics/news",
        "queues/start",
        "topics/news/subscriptions/eu",
        "topics/news/subscriptions/eu/rules/$Default",
        "topics/news/subscriptions/eu/rules/german",
    ]
    assert "SharedAccessKey" not in text
    path = write(tmp_path, "exported.json", document)
    assert shell.json("deploy", path) == {"created": 1, "updated": 0, "unchanged": 6}
    for kind, name in (("queue", "start"), ("queue", "end"), ("topic", "news")):
        shell.run(kind, "delete", name, "--yes")
    assert shell.json("deploy", path) == {"created": 6, "updated": 0, "unchanged": 1}
    again = shell.json("queue", "show", "end")
    assert (again["enable_partitioning"], again["max_size_in_megabytes"]) == (True, 8192)
    assert [each["name"] for each in shell.json("rule", "list", "news", "eu")] == ["$Default", "german"]
    tried = shell.json("rule", "list", "news", "eu")
    assert "1=0" in json.dumps(tried[0])
