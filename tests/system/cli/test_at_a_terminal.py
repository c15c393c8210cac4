"""What the command line does where a person sits before it: it asks, shows how far it is, and completes names.

A pseudo-terminal stands for the person; nothing else is different from a script's call.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.system.cli.server import Served, Shell

PATIENCE_S = 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A bus of its own: what these tests make stays there."""
    made = Served(tmp_path_factory.mktemp("terminal"))
    yield made
    made.stop()


class Terminal:
    """A command whose input and messages are a terminal; what it prints as a result goes elsewhere."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self._own, theirs = pty.openpty()
        environment = {**os.environ, "POLYBUS_CONNECTION": str(shell.connection), "TERM": "xterm"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "polybus", *words],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        os.close(theirs)
        self.shown = ""

    def reads(self, text: str) -> None:
        """Returns when this has been shown."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self._read()

    def _read(self) -> bool:
        if not select.select([self._own], [], [], 1)[0]:
            return True
        try:
            data = os.read(self._own, 4096)
        except OSError:  # how Linux tells the end of a terminal
            return False
        self.shown += data.decode()
        return bool(data)

    def types(self, text: str) -> None:
        os.write(self._own, text.encode())

    def ends(self) -> tuple[int, str]:
        """Its exit code and what it printed."""
        while self._read():
            pass
        printed, _ = self._process.communicate(timeout=PATIENCE_S)
        os.close(self._own)
        return self._process.returncode, printed


@pytest.fixture
def rule(shell: Shell) -> tuple[str, str, str]:
    if not any(each["name"] == "asked" for each in shell.json("topic", "list")):
        shell.run("topic", "create", "asked")
        shell.run("subscription", "create", "asked", "first")
    return "asked", "first", "$Default"


def test_deleting_a_rule_asks_first(shell: Shell, rule: tuple[str, str, str]) -> None:
    refused = Terminal(shell, "rule", "delete", *rule)
    refused.reads("delete rule asked/first/$Default (the subscription gets nothing then)? [y/N]:")
    refused.types("n\n")
    code, printed = refused.ends()
    assert (code, printed.strip()) == (2, "")
    assert "nothing was done" in refused.shown
    assert [each["name"] for each in shell.json("rule", "list", *rule[:2])] == ["$Default"]
    wanted = Terminal(shell, "rule", "delete", *rule)
    wanted.reads("[y/N]:")
    wanted.types("y\n")
    code, printed = wanted.ends()
    assert (code, printed.strip()) == (0, "deleted rule asked/first/$Default")
    assert shell.json("rule", "list", *rule[:2]) == []


def test_a_script_that_deletes_a_rule_says_so(shell: Shell, rule: tuple[str, str, str]) -> None:
    shell.run("rule", "create", *rule[:2], "kept", "--everything")
    assert "nobody can be asked here; say --yes" in shell.run("rule", "delete", *rule[:2], "kept", code=2)
    assert "kept" in [each["name"] for each in shell.json("rule", "list", *rule[:2])]


def test_a_long_send_shows_how_far_it_is(shell: Shell) -> None:
    shell.run("queue", "create", "long")
    sending = Terminal(shell, "send", "long", "x", "--count", "300")
    sending.reads("of 300")
    code, _ = sending.ends()
    assert code == 0
    assert sending.shown.rstrip().endswith("\x1b[K"), "the line is taken away at the end"
    steps = [int(part.split()[1]) for part in sending.shown.split("\x1b[K") if part.startswith("sent ")]
    assert steps == sorted(steps)
    (made,) = [each for each in shell.json("queue", "list") if each["name"] == "long"]
    assert made["total"] == 300


def test_a_send_in_a_pipe_shows_nothing_but_its_result(shell: Shell) -> None:
    shell.run("queue", "create", "piped")
    command = [sys.executable, "-m", "polybus", "send", "piped", "x", "--count", "50"]
    environment = {**os.environ, "POLYBUS_CONNECTION": str(shell.connection)}
    sent = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert sent.stderr == ""


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("polybus qu", "queue"), ("polybus dead-letter re", "resubmit"), ("polybus peek comple", "completed-orders")],
)
def test_the_shell_completes_commands_and_entities(shell: Shell, typed: str, wanted: str) -> None:
    if wanted == "completed-orders":
        shell.run("queue", "create", wanted)
    environment = {
        **os.environ,
        "POLYBUS_CONNECTION": str(shell.connection),
        "_POLYBUS_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv = ['polybus']; from polybus.cli.main import main; sys.exit(main())",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert wanted in done.stdout.split(), done.stderr
