"""Messages through the command line: sent, looked at, received, settled."""

from __future__ import annotations

import base64
import itertools
import re
from pathlib import Path

import pytest

from tests.system.cli.server import Shell

_names = itertools.count(1)


@pytest.fixture
def queue(shell: Shell) -> str:
    name = f"messages-{next(_names)}"
    shell.run("queue", "create", name)
    return name


@pytest.fixture
def talks(shell: Shell) -> str:
    name = f"talks-{next(_names)}"
    shell.run("queue", "create", name, "--requires-session")
    return name


def bodies(shell: Shell, *arguments: str) -> list[str]:
    return [each["body"] for each in shell.lines(*arguments)]


def test_everything_about_a_message_arrives(shell: Shell, queue: str) -> None:
    options = {
        "message_id": "m",
        "session": "s",
        "subject": "about",
        "correlation_id": "c",
        "content_type": "text/plain",
        "to": "you",
        "reply_to": "me",
        "reply_to_session": "r",
        "ttl": "1h",
    }
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    properties = ["--property=n=1", "--property=f=1.5", "--property=b=true", '--property=t="7"', "--property=s=x=y"]
    assert shell.run("send", queue, "hello", *given, *properties) == f"sent 1 message to {queue}\n"
    (message,) = shell.lines("receive", queue)
    expected = {"message_id": "m", "session_id": "s", "subject": "about", "correlation_id": "c", "to": "you"}
    expected |= {"content_type": "text/plain", "reply_to": "me", "reply_to_session_id": "r", "body": "hello"}
    assert {name: message[name] for name in expected} == expected
    assert message["time_to_live"] == "PT1H"
    assert message["properties"] == {"n": 1, "f": 1.5, "b": True, "t": "7", "s": "x=y"}
    assert shell.json("queue", "show", queue)["counts"]["total"] == 0


def test_bodies_come_from_arguments_files_and_standard_input(shell: Shell, queue: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\x00\xff")
    shell.run("send", queue, "argument")
    shell.run("send", queue, "--file", str(tmp_path / "body"))
    shell.run("send", queue, stdin=b"whole\ninput")
    shell.run("send", queue, "--lines", stdin=b"one\ntwo\n")
    received = shell.lines("receive", queue, "--count", "9", "--wait", "1s")
    assert [each.get("body") for each in received] == ["argument", None, "whole\ninput", "one", "two"]
    assert base64.b64decode(received[1]["body_base64"]) == b"\x00\xff"


def test_many_at_once_have_ids_of_their_own(shell: Shell, queue: str) -> None:
    assert shell.json("send", queue, "x", "--count", "7", "--message-id", "m", "--batch", "3")["sent"] == 7
    peeked = shell.lines("peek", queue, "--count", "5")
    assert [each["message_id"] for each in peeked] == [f"m-{number}" for number in range(1, 6)]
    further = shell.lines("peek", queue, "--from", str(peeked[-1]["sequence_number"] + 1))
    assert [each["message_id"] for each in further] == ["m-6", "m-7"]
    assert shell.json("queue", "show", queue)["counts"]["active"] == 7


def test_peeking_is_a_table_for_people(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "line one\nline two", "--message-id", "shown")
    header, row = shell.run("peek", queue).splitlines()
    assert header.split() == ["number", "state", "enqueued", "id", "tries", "body"]
    assert "shown" in row
    assert "line one⏎line two" in row


def test_bodies_alone(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "--lines", stdin=b"one\ntwo")
    assert shell.run("peek", queue, "--body") == "one\ntwo\n"
    assert shell.run("receive", queue, "--body", "--count", "2") == "one\ntwo\n"


def test_a_message_is_shown_with_its_facts(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "hello", "--subject", "about", "--property", "n=1")
    facts, body = shell.run("receive", queue).splitlines()
    assert facts.startswith("#1 state=active")
    assert "subject=about" in facts
    assert "n:1" in facts
    assert re.search(r" enqueued=\d\d:\d\d:\d\d ", facts)
    assert body == "hello"


def test_each_way_to_settle(shell: Shell, queue: str) -> None:
    for body in ("abandon", "defer", "dead-letter", "nothing"):
        shell.run("send", queue, body)
    assert bodies(shell, "receive", queue, "--settle", "abandon") == ["abandon"]
    (again,) = shell.lines("receive", queue)
    assert (again["body"], again["delivery_count"]) == ("abandon", 1)
    (deferred,) = shell.lines("receive", queue, "--settle", "defer")
    shell.run("receive", queue, "--settle", "dead-letter", "--reason", "bad")
    assert bodies(shell, "receive", queue, "--settle", "nothing") == ["nothing"]
    number = str(deferred["sequence_number"])
    assert bodies(shell, "receive", queue, "--number", number) == ["defer"]
    shell.run("receive", queue, "--number", number, code=1)
    (dead,) = shell.lines("receive", queue, "--dead-letter")
    assert (dead["body"], dead["dead_letter_reason"]) == ("dead-letter", "bad")
    assert shell.json("queue", "show", queue)["counts"]["total"] == 1


def test_receive_and_delete(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "x", "--count", "3")
    assert bodies(shell, "receive", queue, "--delete", "--count", "2", "--wait", "1s") == ["x", "x"]
    assert shell.json("queue", "show", queue)["counts"]["active"] == 1


def test_nothing_to_receive_is_no_failure(shell: Shell, queue: str) -> None:
    assert shell.run("receive", queue, "--wait", "100ms") == ""
    assert shell.lines("receive", queue, "--wait", "100ms") == []


def test_scheduled_messages(shell: Shell, queue: str) -> None:
    made = shell.json("send", queue, "later", "--at", "+1h", "--count", "2")
    assert len(made["sequence_numbers"]) == 2
    assert "scheduled 1 for " in shell.run("send", queue, "later", "--at", "2999-01-01T00:00:00Z")
    assert shell.json("queue", "show", queue)["counts"]["scheduled"] == 3
    assert {each["state"] for each in shell.lines("peek", queue)} == {"scheduled"}


def test_sessions(shell: Shell, talks: str) -> None:
    for session in ("a", "b"):
        shell.run("send", talks, f"of {session}", "--session", session)
    shell.run("send", talks, "no session", code=1)
    assert bodies(shell, "peek", talks, "--session", "b") == ["of b"]
    assert bodies(shell, "receive", talks, "--session", "b", "--wait", "1s") == ["of b"]
    assert bodies(shell, "receive", talks, "--next-session", "--wait", "1s") == ["of a"]


def test_subscriptions_have_addresses_of_their_own(shell: Shell) -> None:
    shell.run("topic", "create", "wire")
    shell.run("subscription", "create", "wire", "one")
    shell.run("send", "wire", "news")
    assert bodies(shell, "peek", "wire/Subscriptions/one") == ["news"]
    assert bodies(shell, "receive", "wire", "--subscription", "one", "--settle", "dead-letter") == ["news"]
    assert bodies(shell, "receive", "wire/Subscriptions/one/$DeadLetterQueue") == ["news"]


def test_an_unknown_queue_is_refused(shell: Shell) -> None:
    for arguments in (("send", "nowhere", "x"), ("receive", "nowhere"), ("peek", "nowhere")):
        shell.run(*arguments, code=1)
