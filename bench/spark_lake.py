"""What captures cost: to an object store on loopback against local files, and with typed bodies against raw ones.

Part of `scripts/bench spark`: `--only store`, `--only typed`, `--only hot`, and, never by itself, `--only ten-million`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench.spark import FILE_ROWS, PARTITIONS, SparkBench, Work
from polybus.pipelines.declaration import parse
from polybus.pipelines.runner import Runner
from polybus.spark.planning import Range, grouped, levelled
from polybus.spark.staging import encoded

STORE_GOAL, TYPED_GOAL = 70, 60
HUNDREDTHS = 100


class LakeBench(SparkBench):
    def _capture(self, path: str, stores: dict[str, Any], form: str = "parquet", **more: Any) -> Work:
        """One capture of everything, with a checkpoint, a cursor and a table of its own."""
        self._runs += 1
        folder = self._folder / f"capture{self._runs}"
        folder.mkdir()
        told = {
            "bus": {"connectionString": self._server.connection_string},
            "checkpoints": "checkpoints",
            "stores": stores,
            "pipelines": [
                {
                    "name": f"cap{self._runs}",
                    "kind": "capture",
                    "from": {"entity": "source", "options": {"targetTasks": 2}},
                    "to": {"path": f"{path}/t{self._runs}", "format": form, "layout": ["date"]},
                    "maxMessages": self._batch,
                    **more,
                }
            ],
        }
        declaration = parse(json.dumps(told), "bench", folder)
        with Runner(declaration, self._spark, once=True, say=lambda _: None) as runner:
            assert runner.run(), runner.failed()[0].error
            (run,) = runner.pipelines[0].history.runs()
        assert run.rows == self._messages
        return Work(run.rows, run.rows * 1000 / run.ms)

    def store(self) -> None:
        from tests.lake.servers import Versity, versitygw

        if versitygw() is None:
            self.table.note("capture to an object store: not measured (scripts/test lake installs the server)")
            return
        server = Versity(Path(tempfile.mkdtemp(dir=self._folder)))
        server.start()
        server.make_bucket()
        try:
            with self.serving("store", source=self._messages):
                self._compare(
                    "capture to an object store",
                    STORE_GOAL,
                    lambda: self._capture(str(self._folder / "local"), {}),
                    lambda: self._capture("s3://lake", server.declared()),
                    labels=("to local files", "to an object store"),
                )
        finally:
            server.stop()

    def typed(self) -> None:
        """Bodies of JSON with a given schema, whose fields become columns."""
        body = {"as": "json", "schema": "id BIGINT, city STRING, total DOUBLE, note STRING"}
        with self.serving("typed", source=0):
            self._fill_json("source")
            self._compare(
                "capture with typed JSON",
                TYPED_GOAL,
                lambda: self._capture(str(self._folder / "raw"), {}),
                lambda: self._capture(str(self._folder / "typed"), {}, body=body),
                labels=("raw", "typed"),
            )

    def _fill_json(self, queue: str) -> None:
        bus = self._bus(queue)
        stages = []
        for start in range(0, self._messages, FILE_ROWS):
            numbers = range(start, min(start + FILE_ROWS, self._messages))
            bodies = [
                json.dumps({"id": n, "city": f"city {n % 100}", "total": n / 7, "note": "n" * 900}).encode()
                for n in numbers
            ]
            keys = [f"key {n % 1000}" for n in numbers]
            stages.append(bus.stage(encoded(pa.RecordBatch.from_pydict({"body": bodies, "partition_key": keys})), {}))
        bus.publish({"stages": stages, "wait_seconds": 60})
        while sum(end.stable_end for end in bus.log().ends) < self._messages:
            continue
        bus.close()

    def hot(self) -> None:
        """One partition of sixteen has nine tenths of the messages: how evenly tasks are loaded."""
        rows = self._messages
        ranges = [Range(0, 1, rows * 9 // 10)]
        ranges += [Range(index, 1, max(rows // 10 // (PARTITIONS - 1), 1)) for index in range(1, PARTITIONS)]
        for tasks in (2, 4, 8):
            loads = [
                sum(each.last - each.first + 1 for each in group) for group in grouped(levelled(ranges, tasks), tasks)
            ]
            self.table.at_least(
                f"one hot partition: least of {tasks} tasks against the mean",
                HUNDREDTHS * min(loads) * len(loads) / sum(loads) * len(loads) / tasks,
                50,
                "%",
            )

    def ten_million(self) -> None:
        """10 million messages of 1 KiB, in rounds that the bus lets go of; memory of the bus and of this side."""
        rounds, peak_bus, peak_spark = 10_000_000 // self._messages, 0, 0
        with self.serving("large", source=0):
            told = {
                "bus": {"connectionString": self._server.connection_string},
                "checkpoints": str(self._folder / "large-checkpoints"),
                "pipelines": [
                    {
                        "name": "large",
                        "kind": "capture",
                        "from": "source",
                        "to": {"path": str(self._folder / "large-lake")},
                        "maxMessages": self._batch,
                    }
                ],
            }
            declaration, rows = parse(json.dumps(told), "bench", self._folder), 0
            for number in range(rounds):
                self._fill("source", self._messages)
                with Runner(declaration, self._spark, once=True, say=lambda _: None) as runner:
                    assert runner.run(), runner.failed()[0].error
                    rows += runner.pipelines[0].history.runs()[-1].rows
                peak_bus = max(peak_bus, psutil.Process(self._server.pid).memory_info().rss)
                peak_spark = max(peak_spark, self._spark_memory())
                print(
                    f"round {number + 1} of {rounds}: {rows:,} rows, bus {peak_bus >> 20} MB, Spark {peak_spark >> 20} MB"
                )
            assert rows == rounds * self._messages
        self.table.say("capture of many, rows", rows, "")
        self.table.say("capture of many, memory of the bus at most", peak_bus >> 20, "MB")
        self.table.say("capture of many, memory of Spark and its workers at most", peak_spark >> 20, "MB")

    def _spark_memory(self) -> int:
        here = psutil.Process()
        processes = [here, *(each for each in here.children(recursive=True) if each.pid != self._server.pid)]
        return sum(each.memory_info().rss for each in processes if each.is_running())
