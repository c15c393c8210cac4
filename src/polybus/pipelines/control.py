"""What a person does to a pipeline: pause it, let it go on, set it back to a time.

A pause is a file in the pipeline's folder, so it works whether a runner is there or not, and outlives it. Setting back
moves the cursor on the bus and puts the checkpoint aside; it needs the folder for itself.
"""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from polybus.errors import ConfigError
from polybus.pipelines.folders import STREAM, Folder
from polybus.pipelines.kind import PipelineKind, StreamKind
from polybus.spark.bus import BusClient

_PAUSED: Final = "paused.json"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_LEASE_SECONDS: Final = 10


class PauseMark:
    """Whether a pipeline is paused."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _PAUSED

    def __bool__(self) -> bool:
        return self._path.exists()

    def since(self) -> str | None:
        try:
            return str(json.loads(self._path.read_text())["since"])
        except (OSError, ValueError, KeyError):
            return None

    def set(self) -> bool:
        """False where it was paused before."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self:
            return False
        self._path.write_text(json.dumps({"since": datetime.now(UTC).isoformat(timespec="seconds")}))
        return True

    def clear(self) -> bool:
        """False where it was not paused."""
        there = bool(self)
        self._path.unlink(missing_ok=True)
        return there


def reset(kind: PipelineKind, checkpoints: Path, to: str) -> dict[str, Any]:
    """Lets a stream begin anew at a time, or at the log's begin or end; tells where each cursor is now.

    What was written stays: rows after that time come once more.
    """
    if not isinstance(kind, StreamKind):
        raise ConfigError(f"{kind.name!r} is no stream but {kind.kind!r}: there is nothing to set back")
    body = {"start": to} if to in (EARLIEST, LATEST) else {"start": EARLIEST, "time": moment(to)}
    folder = Folder(checkpoints / kind.name)
    folder.hold("")
    try:
        told = {}
        for entity, cursor in kind.cursors():
            bus = entity.open()
            try:
                _delete(bus, cursor)
                state = bus.create_cursor(cursor, body)
                told[cursor] = {str(index): at for index, at in sorted(state.positions.items())}
            finally:
                bus.close()
        _put_aside(folder.path)
    finally:
        folder.leave()
    return told


def _delete(bus: BusClient, cursor: str) -> None:
    """The last run's lease may outlive it; who has the pipeline's folder may take it over."""
    if bus.cursor(cursor) is not None:
        held = bus.lease(cursor, {"holder": uuid.uuid4().hex, "ttl_seconds": _LEASE_SECONDS, "force": True})
        bus.release(cursor, held.fencing)
        bus.delete_cursor(cursor)


def _put_aside(folder: Path) -> None:
    """The old checkpoint stays for who wants to look at it."""
    stream = folder / STREAM
    if stream.exists():
        stream.rename(folder / f"{STREAM}.before-{time.time_ns() // 1_000_000}")


def moment(text: str) -> str:
    """A time as the bus reads it; ConfigError where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no time in ISO 8601, such as 2026-01-31T12:00:00Z") from None
    utc = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
