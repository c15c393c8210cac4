"""The stages of one partition: what is known of each while its messages wait to be published.

All of them are in memory, for there are only as many as Spark tasks at work, and orphans expire after a day.
"""

from __future__ import annotations

import struct
from typing import Final

from polybus.partition import records

_STAGE: Final = struct.Struct(">QQ")


class Stage:
    def __init__(self, touched_ms: int, size: int) -> None:
        self.touched_ms = touched_ms
        self.bytes = size
        """What it holds of the entity's quota. A message staged twice counts twice until the stage ends."""
        self.unsynced = 0
        self.busy = False
        self.at = b""
        """Where publishing goes on; what is before was moved, though a scan may still show it."""

    def record(self) -> bytes:
        return records.sealed(_STAGE.pack(self.touched_ms, self.bytes))


class Stages:
    def __init__(self) -> None:
        self.open: dict[bytes, Stage] = {}

    def restore(self, stage_id: bytes, value: bytes) -> None:
        touched_ms, size = _STAGE.unpack(records.unsealed(value, "a stage"))
        self.open[stage_id] = Stage(touched_ms, size)
