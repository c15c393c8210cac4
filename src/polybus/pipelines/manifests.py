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

`TableFolder` is what every table's folder can do. On an object store, where nothing can be renamed, `object_folder` does
it by conditional puts.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from polybus.errors import ConfigError
from polybus.pipelines.object_stores import ObjectUrl, Stores

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


class TaskTarget(ABC):
    """Where tasks put the files that they write. Travels to the workers."""

    @abstractmethod
    def working(self) -> AbstractContextManager[Path]:
        """A folder for files while they grow."""

    @abstractmethod
    def land(self, path: Path, folder: str, named: Callable[[str], str]) -> str:
        """Hands over a whole file of a folder of the table and says how it is known; `named` makes a name of an id."""


class TableFolder(ABC):
    """The folder of a table, with its manifests where it has some. One writer's batch has one id."""

    # Reading

    @abstractmethod
    def __str__(self) -> str:
        """As people and engines call it."""

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def captured(self) -> bool:
        """Whether manifests say which files count."""

    @abstractmethod
    def manifests(self) -> list[Manifest]:
        """Those that count, oldest name first: in place, and not replaced by one that is in place."""

    @abstractmethod
    def made(self, name: str) -> float:
        """When a file came into its place, in seconds since 1970."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """A file of the table, to be read and closed."""

    @abstractmethod
    def whole(self, name: str) -> str:
        """The path or URL of a file of the table."""

    @abstractmethod
    def last(self, query: str, prefix: str) -> tuple[int, str]:
        """The last batch of a query that is in, and how far it read: by its own manifest, or one made of several."""

    def files(self) -> list[str]:
        """Every file that counts."""
        return [self.whole(file.path) for manifest in self.manifests() for file in manifest.files]

    def manifest_made(self, identity: str) -> float:
        return self.made(f"{MANIFESTS}/{identity}.json")

    # Writing

    @abstractmethod
    def begin(self, identity: str) -> TaskTarget:
        """Where the files of a batch are written; whatever an attempt before has left is gone."""

    @abstractmethod
    def placed(self, told: dict[str, Any], path: str) -> LakeFile:
        """A file that a task told of, which is to lie at a path."""

    @abstractmethod
    def put_in_place(self, identity: str, files: list[LakeFile]) -> None:
        """Lets the files lie where they belong, for tables whose own log says what counts."""

    @abstractmethod
    def clear(self, identity: str, files: list[LakeFile]) -> None:
        """Removes what a batch needed while it was written; it is in."""

    @abstractmethod
    def commit(self, manifest: Manifest) -> None:
        """From here on the files of this manifest are in, whatever happens; then they are put in place."""

    @abstractmethod
    def recover(self, prefix: str, last: int = -1) -> None:
        """Finishes what was committed, and forgets what was not, among the ids that begin so; `last` is in for sure."""

    @abstractmethod
    def compacting(self) -> AbstractContextManager[str]:
        """The id of a compaction; while it lasts there is no other."""


@dataclass(frozen=True)
class StagingFolder(TaskTarget):
    """Files stay where they grow, and the driver moves those that count."""

    path: str

    @contextmanager
    def working(self) -> Iterator[Path]:
        path = Path(self.path)
        path.mkdir(parents=True, exist_ok=True)
        yield path

    def land(self, path: Path, folder: str, named: Callable[[str], str]) -> str:  # noqa: ARG002
        return path.name


class ManifestFolder(TableFolder):
    """A folder of a file system: files are staged, then renamed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # Reading

    def __str__(self) -> str:
        return str(self.root)

    def exists(self) -> bool:
        return self.root.is_dir()

    def captured(self) -> bool:
        return (self.root / MANIFESTS).is_dir()

    def made(self, name: str) -> float:
        return (self.root / name).stat().st_mtime

    def open(self, name: str) -> BinaryIO:
        return (self.root / name).open("rb")

    def whole(self, name: str) -> str:
        return str(self.root / name)

    def committed(self, identity: str) -> bool:
        return self._path(identity).exists()

    def manifests(self) -> list[Manifest]:
        staged = {path.name for path in _listed(self.root / STAGING)}
        return counting([each for each in self._all() if each.id not in staged])

    def _all(self) -> list[Manifest]:
        names = _listed(self.root / MANIFESTS)
        paths = sorted(path for path in names if path.suffix == ".json" and not path.name.startswith("."))
        return [manifest for path in paths if (manifest := _read(path)) is not None]

    # Writing

    def staging(self, identity: str) -> Path:
        return self.root / STAGING / identity

    def fresh_staging(self, identity: str) -> Path:
        """An empty folder; whatever an attempt before has left there is gone."""
        path = self.staging(identity)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def begin(self, identity: str) -> TaskTarget:
        return StagingFolder(str(self.fresh_staging(identity)))

    def placed(self, told: dict[str, Any], path: str) -> LakeFile:
        return lake_file(told, path, told["staged"])

    def put_in_place(self, identity: str, files: list[LakeFile]) -> None:
        for file in files:
            target = self.root / file.path
            move(self.staging(identity) / file.staged, target)
            sync_folder(target.parent)

    def clear(self, identity: str, files: list[LakeFile]) -> None:  # noqa: ARG002
        shutil.rmtree(self.staging(identity), ignore_errors=True)

    def commit(self, manifest: Manifest) -> None:
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

    def recover(self, prefix: str, last: int = -1) -> None:  # noqa: ARG002
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
        names = [path for path in _listed(self.root / MANIFESTS) if path.suffix == ".json"]
        own = max((path for path in names if path.name.startswith(prefix)), default=None)
        merged = [path for path in names if path.name.startswith(COMPACTED)]
        found = [manifest for path in [*merged, *([own] if own else [])] if (manifest := _read(path)) is not None]
        return max((each.batches[query] for each in found if query in each.batches), default=(-1, ""))

    @contextmanager
    def compacting(self) -> Iterator[str]:
        from polybus.pipelines.merging import alone

        with alone(self.root, MANIFESTS):
            self.recover(COMPACTED)
            yield f"{COMPACTED}{uuid.uuid4().hex[:8]}"

    def _path(self, identity: str) -> Path:
        return self.root / MANIFESTS / f"{identity}.json"


def counting(found: list[Manifest]) -> list[Manifest]:
    """Those that no other one replaces."""
    replaced = {name for each in found for name in each.replaces}
    return [each for each in found if each.id not in replaced]


def lake_file(told: dict[str, Any], path: str, staged: str) -> LakeFile:
    """A file as a task tells of it."""
    return LakeFile(path, staged, told["rows"], told["bytes"], told["first_time"], told["last_time"])


def folder_at(location: Path | ObjectUrl) -> TableFolder:
    if isinstance(location, Path):
        return ManifestFolder(location)
    from polybus.pipelines.object_folder import ObjectFolder

    return ObjectFolder(location)


def lake_files(path: str | Path) -> list[str]:
    """The files of a captured folder (Parquet or Avro) that count, for any reader that takes a list of files.

    A folder of an object store is named by its URL, and reached as the environment says.
    """
    url = Stores().at(str(path)) if isinstance(path, str) else None
    return folder_at(url or Path(path)).files()


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
