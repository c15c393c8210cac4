"""Entities through the command line, against a bus in a process of its own."""

from __future__ import annotations

import pytest

from tests.system.cli.server import Served, Shell


def test_a_queue_from_creation_to_deletion(shell: Shell) -> None:
    assert (
        shell.run("queue", "create", "life", "--lock-duration", "30s", "--enable-partitioning")
        == "created queue life\n"
    )
    queue = shell.json("queue", "show", "life")
    assert (queue["lock_duration"], queue["enable_partitioning"]) == ("PT30S", True)
    assert queue["counts"] == dict.fromkeys(queue["counts"], 0)
    assert "life" in [each["name"] for each in shell.json("queue", "list")]
    shell.run("queue", "update", "life", "--lock-duration", "PT10S", "--status", "SendDisabled")
    changed = shell.json("queue", "show", "life")
    assert (changed["lock_duration"], changed["status"], changed["enable_partitioning"]) == (
        "PT10S",
        "SendDisabled",
        True,
    )
    assert shell.run("queue", "delete", "life", "--yes") == "deleted queue life\n"
    assert "life" in shell.run("queue", "show", "life", code=1)


def test_every_property_can_be_given(shell: Shell) -> None:
    shell.run("queue", "create", "target")
    options = [
        "--max-size-in-megabytes=2048",
        "--requires-duplicate-detection",
        "--requires-session",
        "--default-message-time-to-live=14d",
        "--dead-lettering-on-message-expiration",
        "--duplicate-detection-history-time-window=5m",
        "--max-delivery-count=3",
        "--no-enable-batched-operations",
        "--status=ReceiveDisabled",
        "--auto-delete-on-idle=never",
        "--forward-dead-lettered-messages-to=target",
        "--user-metadata=mine",
    ]
    made = shell.json("queue", "create", "full", *options)
    shown = shell.json("queue", "show", "full")
    assert shown["status"] == "ReceiveDisabled"
    for name, value in {
        "max_size_in_megabytes": 2048,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "default_message_time_to_live": "P14D",
        "duplicate_detection_history_time_window": "PT5M",
        "dead_lettering_on_message_expiration": True,
        "max_delivery_count": 3,
        "enable_batched_operations": False,
        "user_metadata": "mine",
    }.items():
        assert made[name] == value
        assert shown[name] == value
    assert shown["forward_dead_lettered_messages_to"].endswith("/target")
    shell.run("queue", "update", "full", "--forward-dead-lettered-messages-to", "")
    assert shell.json("queue", "show", "full")["forward_dead_lettered_messages_to"] is None


def test_keys_of_an_entity_open_it_and_are_not_shown(shell: Shell, served: Served) -> None:
    shell.run("queue", "create", "keyed", "--key", "sender=c2VjcmV0:Send")
    assert shell.json("queue", "show", "keyed")["authorization_rules"] == [{"key_name": "sender", "rights": ["Send"]}]
    assert "c2VjcmV0" not in shell.run("queue", "show", "keyed")
    text = served.connection("c2VjcmV0").replace("RootManageSharedAccessKey", "sender")
    Shell(text).run("send", "keyed", "hello")
    Shell(text).run("receive", "keyed", "--wait", "1s", code=1)
    assert shell.json("queue", "show", "keyed")["counts"]["active"] == 1


def test_topics_subscriptions_and_rules(shell: Shell) -> None:
    shell.run("topic", "create", "press", "--default-message-time-to-live", "1h")
    shell.run("subscription", "create", "press", "red", "--max-delivery-count", "2", "--lock-duration", "20s")
    assert shell.json("topic", "show", "press")["subscription_count"] == 1
    assert shell.json("subscription", "show", "press", "red")["max_delivery_count"] == 2
    assert [each["name"] for each in shell.json("subscription", "list", "press")] == ["red"]
    shell.run("rule", "delete", "press", "red", "$Default", "--yes")
    shell.run(
        "rule",
        "create",
        "press",
        "red",
        "color",
        "--sql",
        "color = @c",
        "--parameter",
        "@c=red",
        "--action",
        "SET a = 1",
    )
    shell.run("rule", "create", "press", "red", "label", "--match", "subject=urgent", "--property", "level=3")
    rules = {rule["name"]: rule for rule in shell.json("rule", "list", "press", "red")}
    assert rules["color"]["filter"]["parameters"] == {"@c": "red"}
    assert rules["color"]["action"]["sql_expression"] == "SET a = 1"
    assert rules["label"]["filter"] == {"kind": "correlation", "label": "urgent", "properties": {"level": 3}}
    for color in ("red", "blue"):
        shell.run("send", "press", color, "--property", f"color={color}")
    shell.run("send", "press", "by label", "--subject", "urgent", "--property", "level=3")
    received = shell.lines("receive", "press", "--subscription", "red", "--count", "5", "--wait", "1s")
    assert [(each["body"], each["properties"].get("a")) for each in received] == [("red", 1), ("by label", None)]
    shell.run("rule", "update", "press", "red", "color", "--nothing", "--action", "")
    assert shell.json("rule", "show", "press", "red", "color")["filter"]["kind"] == "false"
    shell.run("subscription", "update", "press", "red", "--status", "Disabled")
    assert shell.json("subscription", "show", "press", "red")["status"] == "Disabled"
    shell.run("subscription", "delete", "press", "red", "--yes")
    shell.run("topic", "delete", "press", "--yes")
    assert "press" in shell.run("topic", "show", "press", code=1)


def test_tables_are_for_people(shell: Shell) -> None:
    shell.run("queue", "create", "seen", "--default-message-time-to-live", "never")
    listed = shell.run("queue", "list")
    assert listed.splitlines()[0].split() == ["name", "status", "active", "dead", "scheduled", "total", "size"]
    assert any(line.startswith("seen") and "Active" in line for line in listed.splitlines())
    shown = shell.run("queue", "show", "seen")
    assert any(line.split() == ["default", "message", "time", "to", "live", "never"] for line in shown.splitlines())


def test_what_the_bus_refuses_is_one_line_and_code_1(shell: Shell) -> None:
    shell.run("queue", "create", "twice")
    assert "already exists" in shell.run("queue", "create", "twice", code=1)
    assert "twice" not in shell.run("queue", "delete", "nothing", code=1)
    shell.run("rule", "create", "no", "such", "topic", "--everything", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "create", "q", "--lock-duration", "soon"),
        ("queue", "list", "--connection", "nonsense"),
        ("queue", "list", "--ca", "/no/such/file"),
        ("rule", "create", "t", "s", "r"),
        ("rule", "create", "t", "s", "r", "--everything", "--sql", "1=1"),
        ("rule", "create", "t", "s", "r", "--match", "colour=red"),
        ("queue", "create", "q", "--key", "nothing"),
        ("send", "q", "x", "--property", "nothing"),
        ("send", "q", "x", "--ttl", "long"),
        ("send", "q", "x", "--at", "noon"),
        ("send", "q", "x", "--file", "y"),
        ("receive", "q", "--session", "a", "--next-session"),
        ("peek", "q", "--dead-letter", "--transfer-dead-letter"),
    ],
    ids=" ".join,
)
def test_what_is_asked_wrongly_is_code_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    shell.run(*arguments, code=2)


def test_nobody_there_is_code_3() -> None:
    shell = Shell(
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=x;"
        "UseDevelopmentEmulator=true;"
    )
    for arguments in (("queue", "list"), ("send", "q", "x"), ("receive", "q"), ("stores",), ("healthcheck",)):
        assert "127.0.0.1:1 does not answer" in shell.run(*arguments, code=3)


def test_a_wrong_key_is_refused(served: Served) -> None:
    shell = Shell(served.connection("wrong"))
    for arguments in (("queue", "list"), ("send", "seen", "x"), ("peek", "seen"), ("stores",)):
        shell.run(*arguments, code=1)


def test_tls_with_the_authority_or_without_asking(served: Served) -> None:
    shell = Shell(served.connection(emulator=False, host="localhost"))
    assert "not trusted" in shell.run("queue", "list", code=2)
    authority = str(served.data / "certificates" / "ca.pem")
    shell.run("queue", "create", "sealed", "--ca", authority)
    shell.run("send", "sealed", "hello", "--ca", authority)
    assert shell.run("receive", "sealed", "--body", "--ca", authority) == "hello\n"
    shell.run("send", "sealed", "again", "--insecure")
    assert shell.run("receive", "sealed", "--body", "--insecure") == "again\n"
    shell.run("healthcheck", "--insecure")
    shell.run("send", "sealed", "dead", "--ca", authority)
    shell.run("receive", "sealed", "--settle", "dead-letter", "--ca", authority)
    assert shell.run("dead-letter", "list", "sealed", "--body", "--ca", authority) == "dead\n"
    assert shell.run("dead-letter", "resubmit", "sealed", "--ca", authority) == "resubmitted 1 of 1\n"
    assert shell.run("tail", "sealed", "--last", "1", "--count", "1", "--body", "--ca", authority) == "dead\n"
    assert shell.run("top", "--count", "1", "--ca", authority)
    assert shell.run("purge", "sealed", "--state", "active", "--yes", "--ca", authority) == "removed 1 of 1\n"
