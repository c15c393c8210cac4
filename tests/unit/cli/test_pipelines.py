"""`polybus pipelines` as a command: what it prints and how it ends, as far as no Spark is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybus.cli.app import app
from polybus.cli.pipelines import _on_signals

FILE = """
bus: {connectionStringEnv: POLYBUS_TEST_BUS}
checkpoints: checkpoints
pipelines:
  - {name: lake, kind: capture, from: orders, to: {path: lake, format: parquet}}
  - {name: again, kind: replay, from: {path: lake}, to: copy}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("POLYBUS_TEST_BUS", raising=False)
    path = tmp_path / "pipelines.yml"
    path.write_text(FILE)
    return path


def called(*words: object) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["pipelines", *(str(word) for word in words)])
    return ran.exit_code, ran.stdout, ran.stderr


def test_check_shows_what_would_run_and_what_is_not_known(file: Path) -> None:
    code, out, _ = called("check", file)
    assert code == 0
    assert "orders to" in out
    assert "lake: the environment variable 'POLYBUS_TEST_BUS'" in out
    code, out, _ = called("check", file, "--json", "--only", "again")
    assert (code, [each["name"] for each in json.loads(out)]) == (0, ["again"])


def test_check_ends_with_two_and_one_line_where_something_is_wrong(file: Path) -> None:
    file.write_text(FILE.replace("format: parquet", "format: parkett"))
    code, out, err = called("check", file)
    assert (code, out) == (2, "")
    place = f"{file}: pipelines[0].to.format: 'parkett' is not allowed; allowed: parquet, avro, delta, iceberg"
    assert err == f"polybus: {place}\n"


@pytest.mark.parametrize("command", ["check", "run", "status"])
def test_each_command_refuses_a_wrong_file_and_an_unknown_name(file: Path, command: str) -> None:
    assert called(command, file.with_name("none.yml"))[0] == 2
    code, _, err = called(command, file, "--only", "other")
    assert code == 2
    assert "there is no pipeline 'other'; there are: lake, again" in err


def test_status_reads_what_there_is(file: Path) -> None:
    code, out, _ = called("status", file)
    assert code == 0
    assert out.count("not running") == 2
    code, out, _ = called("status", file, "--json")
    assert [each["state"] for each in json.loads(out)] == ["not running", "not running"]


def test_compact_of_nothing_and_of_what_is_no_capture(file: Path) -> None:
    code, out, _ = called("compact", file, "lake")
    assert (code, out) == (0, "lake: 0 files became 0 (0 rows)\n")
    code, _, err = called("compact", file, "again")
    assert code == 2
    assert "'again' is no capture" in err


def test_without_spark_one_line_says_what_to_install(file: Path) -> None:
    without = "import sys; sys.modules['pyspark'] = None; from polybus.cli.app import app; app()"
    words = [sys.executable, "-c", without, "pipelines", "check", str(file)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "polybus: pipelines need: pip install 'polybus[pipelines]'\n")


def test_signals_tell_the_runner_to_stop() -> None:
    class Stoppable:
        stopping = threading.Event()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _on_signals(Stoppable())  # type: ignore[arg-type]
        for number in before:
            Stoppable.stopping.clear()
            os.kill(os.getpid(), number)
            assert Stoppable.stopping.wait(10)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
