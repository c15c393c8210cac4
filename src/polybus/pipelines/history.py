"""What a pipeline has done, run by run, kept in its folder so that it can be asked when the runner is gone.

`runs.jsonl` gets a line when a run begins, after each batch, and when it ends; lines are only added, so a runner that is
killed leaves a run without an end, which is told as such. When there are many lines the oldest runs are dropped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from polybus.limits import PIPELINE_HISTORY_LINES
from polybus.pipelines.progress import Progress

_FILE: Final = "runs.jsonl"


@dataclass
class Run:
    """One start of a pipeline and what came of it."""

    began: str
    ended: str | None = None
    error: str | None = None
    batches: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    ms: int = 0
    lag: int | None = None
    batch: int | None = None
    figures: dict[str, float] = field(default_factory=dict)

    def outcome(self, running: bool) -> str:
        if self.ended is None:
            return "running" if running else "died"
        return "ended" if self.error is None else "failed"

    def record(self, running: bool) -> dict[str, Any]:
        named = ("began", "ended", "error", "batches", "batch", "rows", "lag", "ms", "bytes", "files")
        return {name: getattr(self, name) for name in named} | {"outcome": self.outcome(running), **self.figures}

    def add(self, told: dict[str, Any]) -> None:
        """A line that belongs to the run."""
        if told["event"] == "batch":
            self.batches += 1
            self.batch = told["batch"]
            self.rows += told["rows"]
            self.ms += told["ms"]
            self.bytes += told["bytes"]
            self.files += told["files"]
            self.lag = told["lag"]
        else:
            self.ended, self.error = told["at"], told.get("error")
            self.figures = told.get("figures", {})


class RunHistory:
    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    # Writing

    def begin(self) -> None:
        self._trim()
        with self._path.open("a+b") as out:
            if out.tell() and not self._path.read_bytes().endswith(b"\n"):
                out.write(b"\n")  # a crash has cut the last line off
        self._write({"event": "begin"})

    def batch(self, progress: Progress, files: int, size: int) -> None:
        told = {"batch": progress.batch, "rows": progress.rows, "ms": progress.ms, "lag": progress.lag_messages}
        self._write({"event": "batch", **told, "files": files, "bytes": size})

    def end(self, error: str | None = None, figures: dict[str, float] | None = None) -> None:
        self._write({"event": "end", "error": error, "figures": figures or {}})

    def _write(self, told: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with self._path.open("a") as out:
            out.write(json.dumps({"at": at, **told}) + "\n")

    def _trim(self) -> None:
        """Keeps the younger half, from the beginning of a run on, in a new file that takes the old one's place."""
        lines = self._lines()
        if len(lines) <= PIPELINE_HISTORY_LINES:
            return
        starts = [at for at, told in enumerate(lines) if told["event"] == "begin" and at >= len(lines) // 2]
        kept = lines[starts[0] :] if starts else []
        hidden = self._path.with_name(f".{_FILE}")
        hidden.write_text("".join(json.dumps(told) + "\n" for told in kept))
        hidden.replace(self._path)

    # Reading

    def runs(self) -> list[Run]:
        """Oldest first; a run that nothing is known of but its beginning is there, too."""
        found: list[Run] = []
        for told in self._lines():
            if told["event"] == "begin":
                found.append(Run(told["at"]))
            elif found:
                found[-1].add(told)
        return found

    def _lines(self) -> list[dict[str, Any]]:
        """What is whole: the last line may have been cut off by a crash."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return []
        return [told for line in text.splitlines() if (told := _event(line)) is not None]


def _event(line: str) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "event" in told else None
