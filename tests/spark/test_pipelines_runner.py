"""The runner with real queries: the user's own functions, failures, restarts, signals, and the command around it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.checking import check_pipelines
from polybus.pipelines.runner import PipelineFailed, Runner
from polybus.pipelines.status import pipeline_states
from tests.spark.kit import Kit
from tests.spark.pipelines_kit import declared, run

WAIT_SECONDS = 300
"""No test waits so long; a machine that is busy with other things may."""

FUNCTIONS = """
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.types import StringType


def shouted(text):
    return text.upper()


def loud(frame):
    shout = F.udf(shouted, StringType())
    return frame.select(shout(frame.body.cast("string")).alias("body"), "message_id")


def broken_once(frame, batch):
    mark = Path(__file__).with_name("mark")
    if not mark.exists():
        mark.write_text("")
        raise ValueError("not yet; SharedAccessKey=hush")
    with Path(__file__).with_name("seen").open("a") as out:
        out.write("".join(f"{batch} {bytes(row.body).decode()}\\n" for row in frame.select("body").collect()))


def broken(frame, batch):
    raise ValueError("never")
"""


def functions(kit: Kit) -> str:
    """A module of its own for each test, beside the declaration."""
    name = f"functions_{abs(hash(kit.folder))}"
    (kit.folder / f"{name}.py").write_text(FUNCTIONS)
    return name


def python(kit: Kit, name: str, entry: str, queue: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "python", "entry": entry, "from": queue, **fields}


def bodies(kit: Kit, queue: str) -> list[str]:
    return sorted(bytes(row.body).decode() for row in kit.read(queue).collect())


def test_checking_asks_the_bus_for_the_entities(kit: Kit) -> None:
    there = declared(kit, {"name": "a", "kind": "capture", "from": kit.queue(), "to": {"path": "lake"}})
    assert [each["remarks"] for each in check_pipelines(there, connect=True)] == [[]]
    nowhere = declared(kit, {"name": "a", "kind": "capture", "from": "nowhere", "to": {"path": "lake"}})
    with pytest.raises(ConfigError, match="pipeline 'a': there is no entity 'nowhere' on the bus"):
        check_pipelines(nowhere, connect=True)


def test_a_function_of_the_users_own_stands_between_two_entities_also_in_the_workers(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    module = functions(kit)
    sent = kit.fill(origin, 20)
    to = {"entity": target, "options": {"waitSeconds": 30}}
    run(kit, python(kit, "loud", f"{module}:loud", origin, to=to))
    assert bodies(kit, target) == sorted(body.upper() for body in sent)


def test_a_pipeline_that_fails_goes_on_from_its_checkpoint_and_the_others_do_not_notice(kit: Kit) -> None:
    queue, other = kit.queue("-a"), kit.queue("-b")
    module = functions(kit)
    sent, more = kit.fill(queue, 10), kit.fill(other, 10)
    lines: list[str] = []
    told = declared(
        kit,
        python(kit, "once", f"{module}:broken_once", queue, each="batch"),
        python(kit, "never", f"{module}:broken", queue, each="batch"),
        python(kit, "fine", f"{module}:loud", other, to={"path": "out", "format": "json"}),
        restart={"first": "10ms", "most": "20ms", "attempts": 2},
    )
    with Runner(told, kit.spark, once=True, say=lines.append) as runner:
        assert not runner.run()
        assert not runner.healthy()
        states = {each["name"]: each["state"] for each in runner.status()}
    assert states == {"once": "done", "never": "given up", "fine": "done"}
    assert runner.metrics.get("polybus_pipeline_restarts_total", pipeline="once") == 1
    assert runner.metrics.get("polybus_pipeline_restarts_total", pipeline="fine") is None
    seen = (kit.folder / "seen").read_text().splitlines()
    assert sorted(seen) == sorted(f"0 {body}" for body in sent)
    found = [json.loads(line)["body"] for path in (kit.folder / "out").glob("*.json") for line in path.open()]
    assert sorted(found) == sorted(body.upper() for body in more)
    assert not any("hush" in line for line in lines)
    assert any(line.startswith("once: failed, starts again in ") and "not yet" in line for line in lines)


def test_a_folder_that_another_runner_has_is_refused_and_a_failed_run_is_told(kit: Kit) -> None:
    queue = kit.queue()
    module = functions(kit)
    kit.fill(queue, 1)
    told = declared(kit, python(kit, "never", f"{module}:broken", queue, each="batch"))
    with (
        Runner(told, kit.spark, once=True),
        pytest.raises(ConfigError, match="another runner has this pipeline"),
        Runner(told, kit.spark, once=True),
    ):
        pass
    with pytest.raises(PipelineFailed, match=r"never: .*ValueError: never"):
        run(kit, python(kit, "never", f"{module}:broken", queue, each="batch"))


def test_a_resident_runner_tells_of_each_batch_until_it_is_stopped(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 30)
    told = declared(kit, {"name": "cap", "kind": "capture", "from": queue, "to": {"path": "lake"}, "every": "1s"})
    lines: list[str] = []
    rows = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        rows.set()

    with Runner(told, kit.spark, once=False, say=say) as runner:
        running = threading.Thread(target=runner.run)
        running.start()
        assert rows.wait(WAIT_SECONDS)
        assert lines[0].startswith("cap: batch 0: 30 rows, lag 0, ")
        rows.clear()
        kit.fill(queue, 12, first=30)
        while runner.metrics.get("polybus_pipeline_rows_total", pipeline="cap") < 42:  # type: ignore[operator]  # perhaps in two batches
            assert rows.wait(WAIT_SECONDS)
            rows.clear()
        runner.stopping.set()
        running.join(WAIT_SECONDS)
        assert pipeline_states(told)[0]["state"] == "running"
    assert runner.metrics.get("polybus_pipeline_rows_total", pipeline="cap") == 42
    assert kit.spark.streams.active == []
    (state,) = pipeline_states(told)
    assert (state["state"], sum(state["positions"][0].values())) == ("not running", 42)


def test_a_capture_that_rests_begins_early_when_enough_waits(kit: Kit) -> None:
    queue = kit.queue()
    fields = {"every": "1h", "maxMessages": 20}
    told = declared(kit, {"name": "cap", "kind": "capture", "from": queue, "to": {"path": "lake"}, **fields})
    kit.fill(queue, 5)
    batches = threading.Semaphore(0)

    with Runner(told, kit.spark, once=False, say=lambda line: batches.release()) as runner:
        running = threading.Thread(target=runner.run)
        running.start()
        assert batches.acquire(timeout=WAIT_SECONDS), "the first comes at once"
        kit.fill(queue, 20, first=5)
        assert batches.acquire(timeout=WAIT_SECONDS), "an hour is not over, but as much waits as a batch may have"
        runner.stopping.set()
        running.join(WAIT_SECONDS)
    assert runner.metrics.get("polybus_pipeline_rows_total", pipeline="cap") == 25


class Command:
    """`polybus pipelines run` in a process of its own, and the lines that it prints."""

    def __init__(self, file: Path, *options: str) -> None:
        words = [sys.executable, "-m", "polybus", "pipelines", "run", str(file), *options]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        """Whatever a test that failed has left."""
        if self.process.poll() is None:
            self.end(signal.SIGKILL)

    def line(self, part: str) -> str:
        """The next line that has this in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if part in line:
                return line.strip()
        raise AssertionError(f"the command ended without a line with {part!r}")

    def end(self, number: int) -> int:
        """Sends the signal to the command (a kill also to everything it has started) and waits."""
        if number == signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code = self.process.wait(WAIT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def asked(address: str, path: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_is_ended_in_the_middle_and_whoever_goes_on_has_every_row_once(kit: Kit, number: int) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 400)
    to = {"path": "lake"}
    pipeline = {"name": "cap", "kind": "capture", "from": queue, "to": to, "every": "1s", "maxMessages": 40}
    file = kit.folder / "pipelines.yml"
    settings = {"bus": {"connectionString": kit.server.connection_string}, "checkpoints": "checkpoints"}
    file.write_text(json.dumps({**settings, "pipelines": [pipeline]}))
    with Command(file) as command:
        address = command.line("metrics http://").removeprefix("metrics http://").partition("/")[0]
        command.line("cap: batch 1: ")
        assert 'polybus_pipeline_up{pipeline="cap"} 1' in asked(address, "/metrics").splitlines()
        assert json.loads(asked(address, "/health")) == {"healthy": True}
        (state,) = pipeline_states(declared(kit, pipeline))
        assert (state["state"], state["runner"], state["batch"] >= 1) == ("running", address, True)
        assert command.end(number) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert pipeline_states(declared(kit, pipeline))[0]["state"].startswith("not running")
    run(kit, pipeline)
    found = kit.spark.read.parquet(str(kit.folder / "lake")).select("body").collect()
    assert sorted(bytes(row.body).decode() for row in found) == sorted(sent)
