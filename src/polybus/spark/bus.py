"""The bulk API of a bus, as the pipeline uses it: one entity, its log, its cursors, its stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from polybus.errors import EntityNotFound
from polybus.spark.connection import BusConnection
from polybus.spark.planning import PartitionEnd, Range
from polybus.spark.transport import BulkTransport, Patience, Query

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
Stage = dict[str, Any]
"""What the bus says about rows that it has staged; it wants the same back to publish them."""


@dataclass(frozen=True)
class LogState:
    """Where the log of an entity begins and ends now."""

    entity_id: str
    ends: list[PartitionEnd]
    at_time: dict[int, int]
    """The first position at or after the time that was asked for."""


@dataclass(frozen=True)
class CursorState:
    entity_id: str
    positions: dict[int, int]
    truncated: dict[int, int]
    """Partition to the position up to which kept messages were dropped, because the cursor lagged over its limit."""
    fencing: int
    ends: list[PartitionEnd] = field(default_factory=list)
    """How far the log goes now, where the cursor was just moved on."""

    def lost_to(self, index: int) -> int:
        """Nothing at or below this position is kept for the cursor."""
        return max(self.positions.get(index, 0), self.truncated.get(index, 0))


class BusClient:
    """One entity of a bus. Not for several threads at once."""

    def __init__(self, connection: BusConnection, entity: str, retry_seconds: float) -> None:
        self.entity = entity
        self._transport = BulkTransport(connection, retry_seconds)
        self._retry_seconds = retry_seconds
        self._path = f"/$polybus/entities/{quote(entity, safe='')}"

    def close(self) -> None:
        self._transport.close()

    def repeat(self, work: Callable[[], Any]) -> Any:
        """Opens a stream, again where the bus is away."""
        return self._transport.repeat(work)

    def patience(self) -> Patience:
        return Patience(self._retry_seconds)

    # The log

    def log(self, time: str | None = None) -> LogState:
        told = self._transport.json("GET", f"{self._path}/log", query=None if time is None else {"time": time})
        ends = [_end(each) for each in told["partitions"]]
        at_time = {each["partition"]: each["at_time"] for each in told["partitions"] if "at_time" in each}
        return LogState(told["entity_id"], ends, at_time)

    def open_records(self, ranges: list[Range], entity_id: str | None) -> Any:
        """Messages of several ranges as they are stored: `records` makes columns of them."""
        named = ",".join(f"{each.partition}:{each.first}-{each.last}" for each in ranges)
        query: Query = {"format": "records", "ranges": named}
        if entity_id is not None:
            query["entity_id"] = entity_id
        return self._transport.stream(f"{self._path}/range", query)

    def open_rows(self, query: Query) -> Any:
        """Messages of one range with the columns that the bus makes of them."""
        return self._transport.stream(f"{self._path}/range", {**query, "format": "arrow"})

    def open_browse(self, query: Query) -> Any:
        return self._transport.stream(f"{self._path}/browse", {**query, "format": "arrow"})

    # The cursor

    def create_cursor(self, name: str, body: dict[str, Any]) -> CursorState:
        """A new cursor, or the one that there is."""
        return _cursor(self._transport.json("PUT", self._cursor_path(name), body))

    def cursor(self, name: str) -> CursorState | None:
        try:
            return _cursor(self._transport.json("GET", self._cursor_path(name)))
        except EntityNotFound:
            self.log()  # the entity itself must be there
            return None

    def delete_cursor(self, name: str) -> None:
        self._transport.json("DELETE", self._cursor_path(name))

    def lease(self, name: str, body: dict[str, Any]) -> CursorState:
        return _cursor(self._transport.json("POST", f"{self._cursor_path(name)}/lease", body))

    def release(self, name: str, fencing: int) -> None:
        self._transport.json("DELETE", f"{self._cursor_path(name)}/lease", query={"fencing": fencing})

    def advance(
        self, name: str, positions: dict[int, int], fencing: int, entity_id: str | None = None
    ) -> CursorState:
        """Moves a cursor on; refused where the entity is not the one that is meant."""
        body = {"positions": {str(index): position for index, position in positions.items()}, "fencing": fencing}
        query: Query | None = None if entity_id is None else {"entity_id": entity_id}
        return _cursor(self._transport.json("POST", f"{self._cursor_path(name)}/advance", body, query))

    def _cursor_path(self, name: str) -> str:
        return f"{self._path}/cursors/{quote(name, safe='')}"

    # Stages

    def stage(self, content: bytes, query: Query) -> Stage:
        return self._transport.send("POST", f"{self._path}/stage", query, content, ARROW_TYPE)

    def publish(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._transport.json("POST", f"{self._path}/publish", body)

    def abort(self, stages: list[Stage]) -> None:
        self._transport.json("POST", f"{self._path}/abort", {"stages": stages})

    # Messages by number, and what happened to them

    def move(self, body: dict[str, Any]) -> dict[str, list[int]]:
        """Takes messages out and sends them elsewhere; asking again is safe, and tells them as missing."""
        return self._transport.json("POST", f"{self._path}/move", body)

    def events(self, partition: int, first: int, limit: int) -> dict[str, Any]:
        query: Query = {"partition": partition, "first": first, "limit": limit}
        return self._transport.json("GET", f"{self._path}/events", query=query)

    def keep_events(self) -> None:
        self._transport.json("PUT", f"{self._path}/events", {"enabled": True})

    def partitions(self) -> list[dict[str, Any]]:
        """Each partition with its store and counts; needs the right to manage."""
        found: list[dict[str, Any]] = self._transport.json("GET", f"{self._path}/partitions")["partitions"]
        return found

    def tell_pipeline(self, name: str, told: dict[str, Any]) -> None:
        """Says how a pipeline is, for those who look at the bus."""
        self._transport.json("PUT", f"{self._path}/pipelines/{quote(name, safe='')}", told)

    def cursors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._transport.json("GET", f"{self._path}/cursors")["cursors"]
        return found


def _end(told: dict[str, Any]) -> PartitionEnd:
    if not told["available"]:
        return PartitionEnd(told["partition"], 1, 0, available=False)
    messages = told.get("messages", 0)
    average = told["bytes"] / messages if messages else 0.0
    return PartitionEnd(told["partition"], told.get("earliest", 1), told["stable_end"], average_bytes=average)


def _cursor(told: dict[str, Any]) -> CursorState:
    ends = [_end(each) for each in told.get("log", ())]
    positions, truncated = _by_index(told["positions"]), _by_index(told["truncated"])
    return CursorState(told["entity_id"], positions, truncated, told["fencing"], ends)


def _by_index(told: dict[str, int]) -> dict[int, int]:
    return {int(index): position for index, position in told.items()}
