"""The options of the source and of the sink, read once and checked: a wrong word fails before anything is read.

Names that users know from Kafka's and Event Hubs' connectors are taken as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from polybus.errors import ConfigError
from polybus.limits import CURSOR_LEASE_SECONDS_MAX, CURSOR_NAME_CHARACTERS, SPARK_LEASE_SECONDS, SPARK_RETRY_SECONDS
from polybus.spark.columns import chosen_columns
from polybus.spark.connection import BusConnection

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
STATES: Final = ("active", "deferred", "scheduled", "dead-lettered")
DELIVERIES: Final = ("transactional", "idempotent", "atLeastOnce")
_CONNECTION: Final = {"connectionstring", "connectionstringenv", "entity", "cafile", "retryseconds"}
_SOURCE: Final = _CONNECTION | {
    "cursor",
    "consumergroup",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "maxmessagespertrigger",
    "maxoffsetspertrigger",
    "maxbytespertrigger",
    "targettasks",
    "minpartitions",
    "splithot",
    "failondataloss",
    "includeproperties",
    "includeheaders",
    "includebody",
    "columns",
    "state",
    "leaseseconds",
    "takelease",
    "cursorpercheckpoint",
    "pushfilters",
}
_SINK: Final = _CONNECTION | {"delivery", "producername", "idcolumns", "unknowncolumns", "badrows", "waitseconds"}
_SPARKS_OWN: Final = {
    "path",
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
}
Start = str | dict[int, int]
"""`earliest`, `latest`, or the last position of each partition that counts as read."""


class Given:
    """Options as Spark hands them over, with their types asked for one by one."""

    def __init__(self, options: Mapping[str, str], known: set[str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(self._values) - known - _SPARKS_OWN)
        if unknown:
            raise ConfigError(f"there is no option {', '.join(map(repr, unknown))} of the format 'servicebus'")
        if self.flag("asyncProgressTrackingEnabled", False):
            raise ConfigError(
                "the option 'asyncProgressTrackingEnabled' cannot be used: a batch counts as read when the next"
                " one begins, and that must mean that it is in the checkpoint"
            )

    def text(self, *names: str) -> str | None:
        """The value of an option under the first of its names that was used."""
        for name in names:
            value = self._values.get(name.lower())
            if value is not None and value.strip():
                return value.strip()
        return None

    def flag(self, name: str, default: bool, *others: str) -> bool:
        text = self.text(name, *others)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"the option '{name}' must be true or false, not {text!r}")
        return text.lower() == "true"

    def number(self, name: str, *others: str, least: int = 1, most: int = 1 << 62) -> int | None:
        text = self.text(name, *others)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
            raise ConfigError(f"the option '{name}' must be a whole number from {least} to {most}, not {text!r}")
        return int(text)

    def size(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        found = _SIZE.fullmatch(text)
        if found is None or int(found[1]) == 0:
            raise ConfigError(f"the option '{name}' must be a size such as 256m, not {text!r}")
        return int(found[1]) * _UNITS[found[2].lower()]

    def word(self, name: str, words: tuple[str, ...], default: str) -> str:
        text = self.text(name) or default
        for word in words:
            if word.lower() == text.lower():
                return word
        raise ConfigError(f"the option '{name}' must be one of {', '.join(words)}, not {text!r}")


@dataclass(frozen=True)
class BusEntity:
    """Which entity of which bus. The connection string may stay where it is until it is needed."""

    entity: str
    connection_string: str
    ca_file: str | None
    retry_seconds: int

    def __repr__(self) -> str:
        return f"Place({self.entity})"

    def connect(self) -> BusConnection:
        return BusConnection(self.connection_string, self.ca_file)


@dataclass(frozen=True)
class SourceOptions:
    place: BusEntity
    columns: tuple[str, ...]
    cursor: str
    start: Start
    start_time: str | None
    end: Start
    end_time: str | None
    max_messages: int | None
    max_bytes: int | None
    tasks: int
    min_partitions: int
    split_hot: bool
    fail_on_data_loss: bool
    states: tuple[str, ...]
    lease_seconds: int
    take_lease: bool
    cursor_per_checkpoint: bool
    push_filters: bool


@dataclass(frozen=True)
class SinkOptions:
    place: BusEntity
    delivery: str
    producer: str | None
    id_columns: tuple[str, ...]
    unknown_to_properties: bool
    bad_rows: str | None
    wait_seconds: int


def source_options(options: Mapping[str, str], table: bool = False) -> SourceOptions:
    given = Given(options, _SINK | _SOURCE if table else _SOURCE)
    states = _states(given.text("state"))
    cursor = given.text("cursor", "consumerGroup") or "spark"
    if len(cursor) > CURSOR_NAME_CHARACTERS or not cursor.isascii() or not cursor.isprintable():
        raise ConfigError(f"the option 'cursor' must have 1 to {CURSOR_NAME_CHARACTERS} printable ASCII characters")
    return SourceOptions(
        place=_place(given),
        columns=chosen_columns(
            given.text("columns"),
            body=given.flag("includeBody", True),
            properties=given.flag("includeProperties", True, "includeHeaders"),
            state=len(states) > 1,
        ),
        cursor=cursor,
        start=_offsets("startingOffsets", given.text("startingOffsets"), "earliest"),
        start_time=_time("startingTimestamp", given.text("startingTimestamp")),
        end=_offsets("endingOffsets", given.text("endingOffsets"), "latest"),
        end_time=_time("endingTimestamp", given.text("endingTimestamp")),
        max_messages=given.number("maxMessagesPerTrigger", "maxOffsetsPerTrigger"),
        max_bytes=given.size("maxBytesPerTrigger"),
        tasks=given.number("targetTasks") or os.cpu_count() or 1,
        min_partitions=given.number("minPartitions") or 0,
        split_hot=given.flag("splitHot", False),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        states=states,
        lease_seconds=given.number("leaseSeconds", least=3, most=CURSOR_LEASE_SECONDS_MAX) or SPARK_LEASE_SECONDS,
        take_lease=given.flag("takeLease", False),
        cursor_per_checkpoint=given.flag("cursorPerCheckpoint", False),
        push_filters=given.flag("pushFilters", False),
    )


def sink_options(options: Mapping[str, str], table: bool = False) -> SinkOptions:
    """A table has one set of options for what is read from it and for what is inserted into it."""
    given = Given(options, _SINK | _SOURCE if table else _SINK)
    columns = given.text("idColumns")
    return SinkOptions(
        place=_place(given),
        delivery=given.word("delivery", DELIVERIES, "transactional"),
        producer=given.text("producerName"),
        id_columns=tuple(name.strip() for name in columns.split(",")) if columns else (),
        unknown_to_properties=given.word("unknownColumns", ("error", "properties"), "error") == "properties",
        bad_rows=given.text("badRows"),
        wait_seconds=given.number("waitSeconds", least=0, most=60) or 0,
    )


def _place(given: Given) -> BusEntity:
    text = given.text("connectionString")
    variable = given.text("connectionStringEnv")
    if text is None and variable is not None:
        text = os.environ.get(variable)
        if not text:
            raise ConfigError(
                f"the environment variable {variable!r}, named by 'connectionStringEnv', is not set here"
            )
    if text is None:
        raise ConfigError("the option 'connectionString' (or 'connectionStringEnv') is missing")
    entity = given.text("entity") or BusConnection(text).entity_path
    if not entity:
        raise ConfigError("the option 'entity' is missing: a queue, a topic, or topic/Subscriptions/name")
    retry = given.number("retrySeconds", least=0, most=3_600)
    return BusEntity(entity.strip("/"), text, given.text("caFile"), SPARK_RETRY_SECONDS if retry is None else retry)


def _offsets(name: str, text: str | None, default: str) -> Start:
    text = text or default
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        told = json.loads(text)
        found = {int(index): int(position) for index, position in told.items()}
    except (ValueError, TypeError, AttributeError):
        found = {}
    if not found or min(found) < 0 or min(found.values()) < 0:
        raise ConfigError(
            f"the option '{name}' must be earliest, latest or positions such as {{\"0\": 41}}, not {text!r}"
        )
    return found


def _time(name: str, text: str | None) -> str | None:
    """A time as the bus reads it, from ISO text (UTC unless it says) or from milliseconds since 1970."""
    if text is None:
        return None
    try:
        if text.isascii() and text.isdigit():
            moment = datetime.fromtimestamp(int(text) / 1000, UTC)
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"the option '{name}' must be an ISO time or milliseconds since 1970, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _states(text: str | None) -> tuple[str, ...]:
    names = tuple(part.strip().lower() for part in re.split(r"[|,]", text or "active"))
    unknown = [name for name in names if name not in STATES]
    if unknown or len(set(names)) != len(names):
        raise ConfigError(f"the option 'state' must be one or several of {', '.join(STATES)}, not {text!r}")
    return names
