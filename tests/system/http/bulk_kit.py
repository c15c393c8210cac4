"""A client of the bulk API, as a pipeline would write it."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.ipc

ARROW = "application/vnd.apache.arrow.stream"


class Bulk:
    """Calls on one entity, or on a part of it that has a log."""

    def __init__(self, http: httpx.Client, path: str) -> None:
        self.http = http
        self.base = f"/$polybus/entities/{path}"

    def get(self, what: str, **query: Any) -> Any:
        return self._checked(self.http.get(f"{self.base}/{what}", params=query))

    def post(self, what: str, body: dict[str, Any]) -> Any:
        return self._checked(self.http.post(f"{self.base}/{what}", json=body))

    def put(self, what: str, body: dict[str, Any]) -> Any:
        return self._checked(self.http.put(f"{self.base}/{what}", json=body))

    def delete(self, what: str, **query: Any) -> Any:
        return self._checked(self.http.delete(f"{self.base}/{what}", params=query))

    def _checked(self, response: httpx.Response) -> Any:
        assert response.is_success, response.text
        return response.json() if response.content else None

    def log(self, **query: Any) -> dict[int, dict[str, Any]]:
        return {log["partition"]: log for log in self.get("log", **query)["partitions"]}

    def range(self, **query: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Rows and summary of a range in Arrow."""
        return read_arrow(self.http.get(f"{self.base}/range", params=query))

    def browse(self, **query: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return read_arrow(self.http.get(f"{self.base}/browse", params=query))

    def everything(self) -> list[dict[str, Any]]:
        rows = []
        for partition in self.log():
            rows += self.range(partition=partition)[0]
        return rows

    def stage(self, rows: list[dict[str, Any]], **query: Any) -> Any:
        """Stages rows as Arrow."""
        response = self.http.post(
            f"{self.base}/stage", params=query, content=arrow(rows), headers={"Content-Type": ARROW}
        )
        return self._checked(response)

    def publish(self, producer: str, query: str, epoch: int, stages: list[Any], **more: Any) -> Any:
        body = {"producer": producer, "query": query, "epoch": epoch, "stages": stages, "wait_seconds": 60, **more}
        return self.post("publish", body)


def read_arrow(response: httpx.Response) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    rows: list[dict[str, Any]] = []
    end: dict[str, Any] | None = None
    with pa.ipc.open_stream(io.BytesIO(response.content)) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            assert end is None, "something follows the end"
            rows += batch.to_pylist()
            if metadata is not None:
                end = json.loads(metadata[b"polybus.end"])
    assert end is not None, "the stream has no end"
    return rows, end


def read_lines(response: httpx.Response) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert response.status_code == 200, response.text
    *rows, end = [json.loads(line) for line in response.text.splitlines()]
    for row in rows:
        if "body" in row:
            row["body"] = base64.b64decode(row["body"])
    return rows, end["end"]


def arrow(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> bytes:
    table = pa.Table.from_pylist(rows, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
