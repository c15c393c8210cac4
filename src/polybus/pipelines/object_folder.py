"""A table's folder on an object store, where nothing can be renamed: files are put where they belong, and count when a
manifest, put on condition that there is none of its name, names them.

Data files have names of their own attempt, so a task that was taken for dead overwrites nothing. Before any of them a
mark `_writing/<id>` is put, which goes when the batch is in: where one is left, an attempt has died, and what it left is
removed before the batch is written again. A compaction's id is the number after the last one's: of two at the same time
one finds the mark, or at the latest the manifest, of the other.

A put whose answer was lost is told from another's by what lies there: ids of attempts make all manifests differ.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final

from polybus.errors import ConfigError, PolybusError
from polybus.limits import OBJECT_BUFFER_BYTES, OBJECT_COMPACTION_SECONDS, OBJECT_READS
from polybus.pipelines.layout import joined
from polybus.pipelines.manifests import (
    COMPACTED,
    MANIFESTS,
    LakeFile,
    Manifest,
    TableFolder,
    TaskTarget,
    counting,
    lake_file,
    manifest_from,
)
from polybus.pipelines.object_stores import ObjectUrl
from polybus.spark.secrets import one_line

WRITING: Final = "_writing"


class StoreFailed(PolybusError):
    """The object store did not do what it was asked for, also after retries."""


class ObjectStore:
    """The few things that are asked of a store, with its errors as ours: no text of a request with its signature."""

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url

    @cached_property
    def _store(self) -> Any:
        return self.url.store()

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (FileNotFoundError, BaseError, OSError) as error:
            if isinstance(error, FileNotFoundError) or type(error).__name__ == "AlreadyExistsError":
                raise
            raise StoreFailed(f"{self.url}: cannot {what}: {one_line(str(error))}") from None

    def read(self, name: str) -> bytes | None:
        """What an object holds; None where there is none."""
        import obstore

        try:
            with self._asking(f"read {name}"):
                return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return None

    def look(self, name: str) -> tuple[int, float]:
        """How large an object is, and when it was made, in seconds since 1970."""
        import obstore

        with self._asking(f"look at {name}"):
            told = obstore.head(self._store, name)
            return int(told["size"]), told["last_modified"].timestamp()

    def part(self, name: str, start: int, length: int) -> bytes:
        import obstore

        with self._asking(f"read {name}"):
            return bytes(obstore.get_range(self._store, name, start=start, length=length))

    def put(self, name: str, data: bytes | Path) -> None:
        import obstore

        with self._asking(f"write {name}"):
            obstore.put(self._store, name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Puts an object where there is none, at once; False where one is, with something else in it."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._asking(f"create {name}"):
                obstore.put(self._store, name, data, mode="create")
        except AlreadyExistsError:
            return self.read(name) == data
        return True

    def names(self, folder: str = "") -> dict[str, float]:
        """All objects below a folder, with their times in seconds since 1970."""
        import obstore

        with self._asking(f"list {folder or 'the folder'}"):
            pages = obstore.list(self._store, prefix=folder or None, chunk_size=1_000)
            return {each["path"]: each["last_modified"].timestamp() for page in pages for each in page}

    def remove(self, names: list[str]) -> None:
        """Harmless where they are gone."""
        import obstore

        for name in names:
            try:
                with self._asking(f"remove {name}"):
                    obstore.delete(self._store, name)
            except FileNotFoundError:
                continue


class ObjectReader(io.RawIOBase):
    """An object as a file; wrapped in a buffer, it asks for large parts."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name
        self._size, _ = store.look(name)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        buffer[:length] = self._store.part(self._name, self._at, length)
        self._at += length
        return length


@dataclass(frozen=True)
class ObjectTarget(TaskTarget):
    """Files grow in a folder of the machine and are put where they belong when they are whole."""

    url: ObjectUrl
    identity: str

    @contextmanager
    def working(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="polybus-") as path:
            yield Path(path)

    def land(self, path: Path, folder: str, named: Callable[[str], str]) -> str:
        name = joined(folder, named(self.identity))
        ObjectStore(self.url).put(name, path)
        path.unlink()
        return name


class ObjectFolder(TableFolder):
    def __init__(self, url: ObjectUrl) -> None:
        self.url = url
        self._store = ObjectStore(url)
        self._marks: dict[str, bytes] = {}
        self._lasts: dict[str, tuple[int, str]] = {}
        """Of queries whose last commit was ours and is known to be in."""
        self._retried: set[str] = set()
        self._until = float("inf")

    # Reading

    def __str__(self) -> str:
        return str(self.url)

    def exists(self) -> bool:
        return bool(self._store.names())

    def captured(self) -> bool:
        return bool(self._store.names(MANIFESTS))

    def made(self, name: str) -> float:
        return self._store.look(name)[1]

    def open(self, name: str) -> BinaryIO:
        try:
            return io.BufferedReader(ObjectReader(self._store, name), OBJECT_BUFFER_BYTES)
        except FileNotFoundError:
            raise ConfigError(f"{self.whole(name)}: is named by a table and not there") from None

    def whole(self, name: str) -> str:
        return f"{self.url}/{name}"

    def manifests(self) -> list[Manifest]:
        return counting(self._all())

    def _all(self, *starts: str) -> list[Manifest]:
        names = sorted(self._store.names(MANIFESTS))
        chosen = [name for name in names if not starts or _identity(name).startswith(starts)]
        with ThreadPoolExecutor(OBJECT_READS) as readers:
            texts = list(readers.map(self._store.read, chosen))
        pairs = zip(chosen, texts, strict=True)
        return [manifest_from(text.decode(), self.whole(name)) for name, text in pairs if text is not None]

    def last(self, query: str, prefix: str) -> tuple[int, str]:
        if query in self._lasts:
            return self._lasts[query]
        names = [_identity(name) for name in self._store.names(MANIFESTS)]
        own = max((name for name in names if name.startswith(prefix)), default=None)
        found = self._all(COMPACTED, *([own] if own else []))
        return max((each.batches[query] for each in found if query in each.batches), default=(-1, ""))

    # Writing

    def begin(self, identity: str) -> TaskTarget:
        if not self._mark(identity):
            self._abandon(identity)
            if not self._mark(identity):
                raise ConfigError(f"{self.url}: somebody else writes {identity} at this moment")
        return ObjectTarget(self.url, identity)

    def _mark(self, identity: str) -> bool:
        self._marks[identity] = json.dumps({"attempt": uuid.uuid4().hex}).encode()
        return self._store.create(f"{WRITING}/{identity}", self._marks[identity])

    def _abandon(self, identity: str) -> None:
        """Removes what an attempt at a batch has left; the batch is not in."""
        if self._store.read(f"{MANIFESTS}/{identity}.json") is not None:
            raise ConfigError(f"{self.url}: {identity} is in already, and somebody writes it again")
        self._store.remove(self._files_of(identity))
        self._store.remove([f"{WRITING}/{identity}"])

    def _files_of(self, identity: str) -> list[str]:
        return [name for name in self._store.names() if name.rpartition("/")[2].startswith(f"{identity}-")]

    def placed(self, told: dict[str, Any], path: str) -> LakeFile:  # noqa: ARG002
        if told.get("retries"):
            self._retried.add(path_identity(told["staged"]))
        return lake_file(told, told["staged"], "")

    def put_in_place(self, identity: str, files: list[LakeFile]) -> None:  # noqa: ARG002
        """They lie there already; what is looked at is that nobody has begun the batch anew meanwhile."""
        if self._store.read(f"{WRITING}/{identity}") != self._marks.get(identity):
            raise ConfigError(f"{self.url}: somebody else writes here under the same checkpoint")

    def clear(self, identity: str, files: list[LakeFile]) -> None:
        if any(each.startswith(f"{identity}-") for each in self._retried):
            named = {file.path for file in files}
            self._store.remove([name for name in self._files_of(identity) if name not in named])
        self._retried.clear()
        self._store.remove([f"{WRITING}/{identity}"])

    def commit(self, manifest: Manifest) -> None:
        self.put_in_place(manifest.id, manifest.files)
        if manifest.replaces and time.monotonic() > self._until:
            raise ConfigError(f"{self.url}: the compaction took too long, and others may take it for dead")
        for query in manifest.batches:
            self._lasts.pop(query, None)
        made = json.dumps({**manifest.record(), "attempt": uuid.uuid4().hex}, indent=1).encode()
        if not self._store.create(f"{MANIFESTS}/{manifest.id}.json", made):
            raise ConfigError(f"{self.url}: somebody else has written {manifest.id}")
        if not manifest.replaces:
            self._lasts.update(manifest.batches)
        self.clear(manifest.id, manifest.files)
        self._remove_replaced(manifest)

    def _remove_replaced(self, manifest: Manifest) -> None:
        """The manifests go last: while they are there, their files are known."""
        kept = {file.path for file in manifest.files}
        old = (
            [each for each in self._all(*manifest.replaces) if each.id in manifest.replaces]
            if manifest.replaces
            else []
        )
        self._store.remove([file.path for each in old for file in each.files if file.path not in kept])
        self._store.remove([f"{MANIFESTS}/{each.id}.json" for each in old])

    def recover(self, prefix: str, last: int = -1) -> None:
        for name in self._store.names(WRITING):
            identity = name.rpartition("/")[2]
            if identity.startswith(prefix) and identity not in self._marks:
                if int(identity.rpartition("-")[2]) <= last:
                    self._store.remove([name])
                else:
                    self._abandon(identity)

    # Compaction

    @contextmanager
    def compacting(self) -> Iterator[str]:
        done = self._all(COMPACTED)
        for each in done:
            self._remove_replaced(each)
        number = max((int(each.id.removeprefix(COMPACTED)) for each in done), default=-1) + 1
        identity = f"{COMPACTED}{number:08}"
        self._forget_dead(identity)
        self._until = time.monotonic() + OBJECT_COMPACTION_SECONDS
        try:
            yield identity
        except BaseException:
            if identity in self._marks and self._store.read(f"{MANIFESTS}/{identity}.json") is None:
                self._abandon(identity)
            raise

    def dead_compactions(self, own: str) -> list[str]:
        """Those that began too long ago to be alive, and one's own."""
        marks = {name.rpartition("/")[2]: made for name, made in self._store.names(WRITING).items()}
        alive = time.time() - OBJECT_COMPACTION_SECONDS * 1.1
        return [name for name, made in marks.items() if name.startswith(COMPACTED) and (name == own or made < alive)]

    def forget(self, identity: str, named: set[str]) -> None:
        """Removes the files of a compaction but those that count."""
        self._store.remove([name for name in self._files_of(identity) if name not in named])
        self._store.remove([f"{WRITING}/{identity}"])

    def _forget_dead(self, identity: str) -> None:
        """Removes the compaction of this number, if one has died; refuses to begin while one may be alive."""
        marks = self._store.names(WRITING)
        name = f"{WRITING}/{identity}"
        if name not in marks:
            return
        if time.time() - marks[name] < OBJECT_COMPACTION_SECONDS * 1.1:
            raise ConfigError(f"{self.url}: is being compacted by somebody else, or was an hour ago by one that died")
        self._abandon(identity)


def _identity(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def path_identity(name: str) -> str:
    """The file's own name, which begins with the id of its batch."""
    return name.rpartition("/")[2]
