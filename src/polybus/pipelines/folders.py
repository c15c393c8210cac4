"""The folder of one pipeline: who runs it now, and what Spark has journaled there.

A runner holds a lock of the operating system on it, which no crash leaves behind. Whoever asks for the state finds
in `runner.json` where the runner can be asked, and else reads the journal itself.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from polybus.errors import ConfigError
from polybus.spark.offsets import Offset, offset_from

_LOCK: Final = "lock"
_RUNNER: Final = "runner.json"
STREAM: Final = "stream"


@dataclass(frozen=True)
class CheckpointState:
    """What a query has in its checkpoint."""

    query: str
    planned: int
    """Number of the last batch that was begun; -1 where none was."""
    done: int
    """Number of the last batch that is done; -1 where none is."""
    ends: list[Offset]
    """How far each source of ours is read by the batches that are done, or begun."""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    # Who runs it

    def hold(self, address: str) -> None:
        """Takes the folder for this process; ConfigError where another one has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ConfigError(f"{self.path}: another runner has this pipeline") from None
        self._lock = lock
        (self.path / _RUNNER).write_text(json.dumps({"pid": os.getpid(), "address": address}))

    def leave(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            (self.path / _RUNNER).unlink(missing_ok=True)
            os.close(lock)

    def runner(self) -> str | None:
        """Where the runner of this pipeline can be asked, which may be nowhere (""); None where none runs."""
        try:
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return self._address()
        finally:
            os.close(lock)
        return None

    def _address(self) -> str:
        try:
            return str(json.loads((self.path / _RUNNER).read_text())["address"])
        except (OSError, ValueError, KeyError):
            return ""

    # What is journaled

    def journal(self) -> CheckpointState | None:
        """What the pipeline's query has written down; None where it never ran."""
        stream = self.path / STREAM
        try:
            query = str(json.loads((stream / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError):
            return None
        planned = _last(stream / "offsets")
        ends = _ends(stream / "offsets" / str(planned)) if planned >= 0 else []
        return CheckpointState(query, planned, _last(stream / "commits"), ends)


def _last(folder: Path) -> int:
    try:
        return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def _ends(path: Path) -> list[Offset]:
    """The offsets of a journal's file: a version, a line about the query, then a line for each source."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    return [offset for line in lines[2:] if (offset := _offset(line)) is not None]


def _offset(line: str) -> Offset | None:
    try:
        told: Any = json.loads(line)
        return offset_from(told) if isinstance(told, dict) else None
    except (ValueError, ConfigError):
        return None
