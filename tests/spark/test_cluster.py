"""A standalone cluster of a master and two workers, from the very package that pip installs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from tests.spark.kit import Kit

pytestmark = pytest.mark.slow
SPARK = Path(pyspark.__file__).parent
SECONDS = 480


def spark_environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }


class Member:
    """A master, a worker or a server; its log says when it is there, and is read on so that it never has to wait."""

    def __init__(self, folder: Path, *words: str) -> None:
        command = [str(SPARK / "bin" / "spark-class"), *words]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=spark_environment(folder)
        )
        self._reading = threading.Thread(target=self._read_on, daemon=True)

    def wait_for(self, pattern: str) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(pattern, line):
                self._reading.start()
                return found[0]
        raise AssertionError(f"it ended without saying {pattern!r}")

    def _read_on(self) -> None:
        assert self._process.stderr is not None
        for _ in self._process.stderr:
            pass

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._reading.ident is not None:
            self._reading.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    with ExitStack() as running:
        deploy = "org.apache.spark.deploy"
        at = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = Member(tmp_path, f"{deploy}.master.Master", *at)
        running.callback(master.end)
        address = master.wait_for(r"spark://127\.0\.0\.1:\d+")
        for _ in range(2):
            worker = Member(tmp_path, f"{deploy}.worker.Worker", *at, "--cores", "1", "--memory", "1g", address)
            running.callback(worker.end)
            worker.wait_for("Successfully registered with master")
        yield address


def test_two_workers_read_and_write_a_bus(kit: Kit, cluster: str) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    sent = kit.fill(origin, 1_000)
    command = [sys.executable, "-m", "tests.spark.cluster_driver", cluster, str(kit.folder), origin, target]
    environment = {**spark_environment(kit.folder), "BUS": kit.server.connection_string}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["count"] == 1_000
    assert told["executors"] == 2
    assert told["batches"] >= 4
    assert sorted(bytes(row.body).decode() for row in kit.read(target).collect()) == sorted(sent)
