"""Which files of a captured folder count: those that a manifest names.

Files lie in `_staging/<id>` while they are written. The manifest `_manifests/<id>.json`, renamed into place, is the
moment of truth: from then on the batch is in. Its files are then moved to where they belong and the staging folder
goes away; a crash in between is made good at the next start. Until its staging folder is gone, a batch is not read.

A manifest can replace others: compaction writes one for its large files, and from the moment that it counts the
small ones do not. Their files and manifests are removed after that.

    orders/_manifests/batch-1f0c2a9e-00000041.json
    orders/_staging/
    orders/entity=orders/date=2026-01-31/hour=12/partition=3/batch-1f0c2a9e-00000041-task-00000.parquet

What is hidden begins with an underscore or does not end in the format's name, so plain readers pass over it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from polybus.errors import ConfigError

VERSION: Final = 1
MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"
COMPACTED: Final = "compact-"
"""What the ids of manifests begin with that replace others."""


@dataclass(frozen=True)
class LakeFile:
    path: str
    """Where it lies, beginning at the captured folder."""
    staged: str
    """What it was called in the staging folder; nothing where it lay in its place before, as a part of others."""
    rows: int
    bytes: int
    first_time: int | None = None
    last_time: int | None = None
    """First and last time of enqueueing, in microseconds since 1970."""


@dataclass(frozen=True)
class Manifest:
    id: str
    format: str
    batches: dict[str, tuple[int, str]]
    """Query to the number of its last batch that is in here, and how far that batch read."""
    files: list[LakeFile]
    replaces: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def record(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}


def manifest_from(text: str, name: str) -> Manifest:
    try:
        told = json.loads(text)
        if told["version"] != VERSION:
            raise ConfigError(f"{name}: is a manifest of version {told['version']!r}; this is version {VERSION}")
        files = [LakeFile(**each) for each in told["files"]]
        batches = {query: (int(number), str(ends)) for query, (number, ends) in told["batches"].items()}
        return Manifest(told["id"], told["format"], batches, files, told["replaces"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{name}: is no manifest of a capture") from None


class ManifestFolder:
    """A captured folder, through its manifests."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # Reading

    def committed(self, identity: str) -> bool:
        return self._path(identity).exists()

    def manifests(self) -> list[Manifest]:
        """Those that count, oldest name first: in place, and not replaced by one that is in place."""
        staged = {path.name for path in _listed(self.root / STAGING)}
        found = [each for each in self._all() if each.id not in staged]
        replaced = {name for each in found for name in each.replaces}
        return [each for each in found if each.id not in replaced]

    def _all(self) -> list[Manifest]:
        names = _listed(self.root / MANIFESTS)
        paths = sorted(path for path in names if path.suffix == ".json" and not path.name.startswith("."))
        return [manifest for path in paths if (manifest := _read(path)) is not None]

    def files(self) -> list[Path]:
        """Every file that counts."""
        return [self.root / file.path for manifest in self.manifests() for file in manifest.files]

    def made(self, identity: str) -> float:
        """When a manifest was renamed into place, in seconds since 1970."""
        return self._path(identity).stat().st_mtime

    # Writing

    def staging(self, identity: str) -> Path:
        return self.root / STAGING / identity

    def fresh_staging(self, identity: str) -> Path:
        """An empty folder; whatever an attempt before has left there is gone."""
        path = self.staging(identity)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def commit(self, manifest: Manifest) -> None:
        """From here on the files of this manifest are in, whatever happens; then they are put in place."""
        for file in manifest.files:
            if file.staged and not (self.staging(manifest.id) / file.staged).exists():
                raise ConfigError(f"{self.root}: somebody else writes here under the same checkpoint")
        path = self._path(manifest.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        with hidden.open("w") as out:
            json.dump(manifest.record(), out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        hidden.rename(path)
        sync_folder(path.parent)
        self.finish(manifest)

    def finish(self, manifest: Manifest) -> None:
        """Moves the files of a committed manifest in place and removes what it replaces. May be done again."""
        staging = self.staging(manifest.id)
        for file in manifest.files:
            if file.staged:
                move(staging / file.staged, self.root / file.path)
        shutil.rmtree(staging, ignore_errors=True)
        kept = {file.path for file in manifest.files}
        for name in manifest.replaces:
            self._remove(name, kept)

    def _remove(self, identity: str, kept: set[str]) -> None:
        """The manifest goes last: while it is there, its files are known."""
        path = self._path(identity)
        old = _read(path)
        if old is not None:
            for file in old.files:
                if file.path not in kept:
                    (self.root / file.path).unlink(missing_ok=True)
            path.unlink()

    def recover(self, prefix: str) -> None:
        """Finishes what was committed, and forgets what was not, among the ids that begin so."""
        found = self._all()
        replaced = {name for each in found for name in each.replaces}
        for manifest in found:
            unfinished = self.staging(manifest.id).exists() or manifest.replaces
            if manifest.id.startswith(prefix) and manifest.id not in replaced and unfinished:
                self.finish(manifest)
        for path in _listed(self.root / STAGING):
            if path.name.startswith(prefix) and not self.committed(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def last(self, query: str, prefix: str) -> tuple[int, str]:
        """The last batch of a query that is in, and how far it read: by its own manifest, or one made of several."""
        names = [path for path in _listed(self.root / MANIFESTS) if path.suffix == ".json"]
        own = max((path for path in names if path.name.startswith(prefix)), default=None)
        merged = [path for path in names if path.name.startswith(COMPACTED)]
        found = [manifest for path in [*merged, *([own] if own else [])] if (manifest := _read(path)) is not None]
        return max((each.batches[query] for each in found if query in each.batches), default=(-1, ""))

    def _path(self, identity: str) -> Path:
        return self.root / MANIFESTS / f"{identity}.json"


def lake_files(path: str | Path) -> list[str]:
    """The files of a captured folder (Parquet or Avro) that count, for any reader that takes a list of files."""
    return [str(file) for file in ManifestFolder(Path(path)).files()]


def move(staged: Path, target: Path) -> None:
    """Puts a file in place; harmless where that was done before."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged.replace(target)
    except FileNotFoundError:
        if not target.exists():
            raise ConfigError(f"{target}: is named by a manifest and not there") from None


def sync_folder(path: Path) -> None:
    """Makes renames in a folder last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path) -> Manifest | None:
    """A manifest; None where it was removed in the meantime."""
    try:
        return manifest_from(path.read_text(), str(path))
    except FileNotFoundError:
        return None


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        return []
