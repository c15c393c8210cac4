"""Dead letters, scheduled and deferred messages, sessions, purge, tail, top, bench: each against a real bus."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.system.cli.server import Served, Shell

_names = itertools.count(1)


@pytest.fixture
def queue(shell: Shell) -> str:
    name = f"many-{next(_names)}"
    shell.run("queue", "create", name, "--enable-partitioning")
    return name


def active(shell: Shell, queue: str) -> int:
    count: int = shell.json("queue", "show", queue)["counts"]["active"]
    return count


def died(shell: Shell, queue: str, count: int) -> list[int]:
    """Dead letters, and their numbers."""
    shell.run("send", queue, "broken", "--count", str(count), "--property", "tenant=6")
    settle = ("--settle", "dead-letter", "--reason", "unreadable")
    received = shell.lines("receive", queue, "--count", str(count), "--wait", "5s", *settle)
    assert len(received) == count
    return [each["sequence_number"] for each in received]


def test_dead_letters_are_listed_with_their_reason(shell: Shell, queue: str) -> None:
    assert shell.run("dead-letter", "list", queue) == f"no dead letters in {queue}/$DeadLetterQueue\n"
    numbers = died(shell, queue, 2)
    header, *rows = shell.run("dead-letter", "list", queue).splitlines()
    assert "reason" in header.split()
    assert [row.split()[0] for row in rows] == [str(number) for number in sorted(numbers)]
    assert all("unreadable" in row for row in rows)
    assert [each["dead_letter_reason"] for each in shell.lines("dead-letter", "list", queue)] == ["unreadable"] * 2


def test_dead_letters_are_resubmitted_by_number_and_all(shell: Shell, queue: str) -> None:
    first, *_ = died(shell, queue, 3)
    assert shell.run("dead-letter", "resubmit", queue, str(first)) == "resubmitted 1 of 1\n"
    assert active(shell, queue) == 1
    (back,) = shell.lines("receive", queue, "--wait", "5s")
    assert back["properties"] == {"tenant": 6}
    assert shell.run("dead-letter", "resubmit", queue, "--dry-run") == "2 would be resubmitted\n"
    assert shell.run("dead-letter", "resubmit", queue, "--filter", "tenant = 7") == "resubmitted 0 of 0\n"
    assert shell.run("dead-letter", "resubmit", queue) == "resubmitted 2 of 2\n"
    assert active(shell, queue) == 2


def test_dead_letters_go_into_a_file_and_away(shell: Shell, queue: str, tmp_path: Path) -> None:
    numbers = died(shell, queue, 2)
    file = tmp_path / "letters.jsonl"
    assert shell.json("dead-letter", "export", queue, "--to", str(file))["written"] == 2
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(each["sequence_number"] for each in written) == sorted(numbers)
    assert "nobody can be asked" in shell.run("dead-letter", "purge", queue, code=2)
    assert shell.run("dead-letter", "purge", queue, "--yes") == "removed 2 of 2\n"
    assert shell.run("dead-letter", "purge", queue) == "there is nothing to do\n"


def test_scheduled_messages_are_listed_and_cancelled(shell: Shell, queue: str) -> None:
    told, next_command = shell.run("send", queue, "later", "--at", "+1d").splitlines()
    assert told.startswith("scheduled 1 for ")
    number = next_command.split()[-1]
    assert next_command == f"polybus scheduled cancel {queue} {number}"
    (listed,) = shell.lines("scheduled", "list", queue)
    assert str(listed["sequence_number"]) == number
    assert "due" in shell.run("scheduled", "list", queue).splitlines()[0].split()
    shell.run("scheduled", "cancel", queue, number)
    assert shell.run("scheduled", "list", queue) == f"no scheduled messages in {queue}\n"
    shell.run("send", queue, "later", "--at", "+1d", "--count", "3")
    assert shell.run("scheduled", "cancel", queue, "--all", "--yes") == "cancelled 3 of 3\n"


def test_deferred_messages_are_received_by_number_and_restored(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "put aside", "--count", "3")
    shell.run("receive", queue, "--count", "3", "--settle", "defer")
    first, *rest = (each["sequence_number"] for each in shell.lines("deferred", "list", queue))
    assert len(rest) == 2
    (received,) = shell.lines("deferred", "receive", queue, str(first))
    assert received["body"] == "put aside"
    assert shell.run("deferred", "restore", queue) == "restored 2 of 2\n"
    assert shell.run("deferred", "list", queue) == f"no deferred messages in {queue}\n"
    assert len(shell.lines("receive", queue, "--count", "2", "--wait", "5s")) == 2


def test_purging_counts_and_asks_first(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "x", "--count", "5", "--property", "n=1")
    assert "5 messages: nobody can be asked here" in shell.run("purge", queue, "--state", "active", code=2)
    assert shell.run("purge", queue, "--state", "active", "--filter", "n = 2", "--yes") == "removed 0 of 0\n"
    assert shell.run("purge", queue, "--state", "active", "--yes") == "removed 5 of 5\n"
    assert active(shell, queue) == 0


def test_sessions_are_listed(shell: Shell) -> None:
    shell.run("queue", "create", "talks", "--requires-session")
    assert shell.run("sessions", "talks") == "no sessions in talks\n"
    shell.run("send", "talks", "x", "--session", "a", "--count", "2")
    (listed,) = shell.json("sessions", "talks")["sessions"]
    assert (listed["session_id"], listed["messages"]) == ("a", 2)
    assert shell.run("sessions", "talks").splitlines()[1].split()[0] == "a"


def test_a_tail_shows_what_arrives_and_takes_nothing(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "--lines", stdin=b"one\ntwo")
    assert shell.run("tail", queue, "--last", "5", "--count", "2", "--body") == "one\ntwo\n"
    (row,) = shell.lines("tail", queue, "--last", "5", "--count", "1")
    assert row["body"] == "one"
    assert active(shell, queue) == 2


def test_top_shows_entities_partitions_and_stores(shell: Shell, queue: str) -> None:
    shell.run("send", queue, "x", "--count", "3")
    (frame,) = shell.lines("top", queue, "--count", "1")
    assert len(frame["stores"]) == 2
    assert sum(each["counts"]["total"] for each in frame["focus"]["partitions"]) == 3
    picture = shell.run("top", queue, "--count", "2")
    assert any(line.split()[:1] == [queue] for line in picture.splitlines())


def test_a_bench_moves_its_messages_and_leaves_others_alone(shell: Shell, queue: str) -> None:
    measured = shell.json("bench", queue, "--messages", "20", "--size", "100", "--batch", "5")
    assert measured["received"] == 20
    assert measured["sent_per_second"] > 0
    shell.run("send", queue, "somebody's")
    assert f"{queue} is not empty" in shell.run("bench", queue, "--messages", "1", code=1)
    assert active(shell, queue) == 1


def test_lists_fit_a_terminal_of_80_columns(shell: Shell, queue: str) -> None:
    died(shell, queue, 1)
    shell.run("send", queue, "a body that is longer than what is left for it " * 3, "--subject", "something to say")
    for command in (
        ("queue", "list"),
        ("peek", queue),
        ("dead-letter", "list", queue),
        ("partitions", queue),
        ("stores",),
        ("top", queue, "--count", "1"),
    ):
        narrow = Shell(shell.connection, columns=80).run(*command)
        assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80, narrow
        assert "active" in narrow or "state" in narrow


def test_deleting_an_entity_asks_first(shell: Shell) -> None:
    shell.run("queue", "create", "kept")
    shell.run("send", "kept", "x")
    refused = shell.run("queue", "delete", "kept", code=2)
    assert refused == "polybus: delete queue kept with 1 message: nobody can be asked here; say --yes"
    assert shell.run("queue", "delete", "kept", "--yes") == "deleted queue kept\n"


def test_refusals_name_the_bus_the_key_and_the_next_command(shell: Shell, served: Served) -> None:
    wrong = Shell(served.connection("wrong"))
    for arguments in (("queue", "list"), ("send", "seen", "x"), ("peek", "seen"), ("stores",)):
        said = wrong.run(*arguments, code=1)
        assert f"{served.authority} refuses the key 'RootManageSharedAccessKey'" in said
    for arguments in (
        ("send", "nothing", "x"),
        ("peek", "nothing"),
        ("queue", "show", "nothing"),
        ("sessions", "nothing"),
    ):
        said = shell.run(*arguments, code=1)
        assert said.endswith(
            f"there is no 'nothing' on {served.authority}; make it with: polybus queue create nothing"
        )
        assert "TrackingId" not in said
    assert "TrackingId" in shell.run("partitions", "nothing", "--verbose", code=1)
    shell.run("topic", "create", "without-subscriptions")
    said = shell.run("peek", "without-subscriptions", "--subscription", "s", code=1)
    assert said.endswith("polybus subscription create without-subscriptions s")
    alone = Shell("Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;")
    assert alone.run("queue", "list", code=3).endswith("is a bus running there? polybus serve starts one")


def test_contexts_are_saved_connections(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shell = Shell(None)
    assert shell.run("contexts", "list").startswith("no contexts; ")
    shell.run("contexts", "add", "here", "--connection", served.connection())
    shell.run(
        "contexts",
        "add",
        "away",
        "--connection",
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;",
    )
    saved = tmp_path / "polybus" / "contexts.json"
    assert saved.stat().st_mode & 0o777 == 0o600
    listed = {each["name"]: each for each in shell.json("contexts", "list")}
    assert (listed["here"]["current"], listed["away"]["current"]) == (True, False)
    assert "SAS_KEY_VALUE" not in shell.run("contexts", "list")
    shell.run("stores")
    shell.run("stores", "--context", "away", code=3)
    shell.run("contexts", "use", "away")
    shell.run("stores", code=3)
    shell.run("stores", "--context", "here")
    assert "there is no context 'nowhere'" in shell.run("stores", "--context", "nowhere", code=2)
    shell.run("contexts", "remove", "away")
    assert [each["name"] for each in shell.json("contexts", "list")] == ["here"]


def test_entity_names_are_completed(shell: Shell, queue: str) -> None:
    from polybus.cli.completing import entity_names

    class Given:
        params = {"connection": shell.connection}

    assert queue in entity_names(Given(), "many-")  # type: ignore[arg-type]
    assert entity_names(Given(), "nothing like it") == []  # type: ignore[arg-type]
    Given.params = {"connection": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;"}
    assert entity_names(Given(), "") == []  # type: ignore[arg-type]


def test_the_doctor_looks_at_the_machine(shell: Shell, served: Served, tmp_path: Path) -> None:
    found = {each["what"]: each for each in shell.json("doctor", "--data", str(served.data))}
    assert {"version", "build", "port 5672", "free space", "sync time", "data", "Java"} <= set(found)
    assert found["certificate ca.pem"]["verdict"] == "ok"
    assert found["data"]["verdict"] == "ok"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    assert Shell(None).outcome("doctor", "--data", str(tmp_path / "open"))[0] == 1


def test_the_version_is_an_option_too(shell: Shell) -> None:
    assert shell.run("--version") == shell.run("version")
