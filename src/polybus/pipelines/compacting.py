"""`polybus pipelines compact`: few large files of many small ones, folder by folder, without Spark.

The rows stay in the order of their files. A capture may go on at the same time: it only adds manifests, and those
that were not there at the beginning are left alone. One compaction of a folder runs at a time.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from polybus.errors import ConfigError
from polybus.pipelines.avro import read_avro
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.fields import Fields
from polybus.pipelines.file_writing import AVRO, StagedFile
from polybus.pipelines.kind import Kind
from polybus.pipelines.lake import ManifestLake
from polybus.pipelines.layout import file_name
from polybus.pipelines.manifests import COMPACTED, MANIFESTS, LakeFile, Manifest, ManifestFolder


@dataclass(frozen=True)
class Compacted:
    files_before: int
    files_after: int
    rows: int

    def record(self) -> dict[str, Any]:
        return asdict(self)


def compact_capture(kind: Kind, target: str, older_than: str) -> Compacted:
    """Compacts what a capture has written, in the way of its format."""
    if not isinstance(kind, CaptureKind):
        raise ConfigError(f"{kind.name!r} is no capture but {kind.kind!r}: there is nothing to compact")
    told = Fields("the command", "", {"--target": target, "--older-than": older_than})
    target_bytes = told.size_bytes("--target", least=1024)
    oldest_ms = told.duration_ms("--older-than")
    lake = kind.lake()
    if isinstance(lake, ManifestLake):
        return compact_folder(lake.folder, target_bytes, time.time() - oldest_ms / 1000)
    if kind.place.format == "delta":
        from polybus.pipelines.delta import compact_delta

        return Compacted(*compact_delta(kind.place.path, target_bytes))
    raise ConfigError("Iceberg tables are compacted by the engines that own them; pyiceberg cannot")


def compact_folder(folder: ManifestFolder, target_bytes: int, before_seconds: float) -> Compacted:
    """Swaps the manifests of a folder for one that names fewer files; those younger than a moment stay."""
    if not folder.root.is_dir():
        return Compacted(0, 0, 0)
    with _alone(folder.root):
        folder.recover(COMPACTED)
        old = [each for each in folder.manifests() if folder.made(each.id) <= before_seconds]
        files = [file for each in old for file in each.files]
        plan = planned(files, target_bytes)
        if len(plan) >= len(files) or not old:
            return Compacted(len(files), len(files), 0)
        identity = f"{COMPACTED}{uuid.uuid4().hex[:8]}"
        staging = folder.fresh_staging(identity)
        new = [_merged(folder.root, staging, identity, number, group) for number, group in enumerate(plan)]
        batches: dict[str, tuple[int, str]] = {}
        for each in old:
            for query, batch in each.batches.items():
                batches[query] = max(batch, batches.get(query, batch))
        folder.commit(Manifest(identity, old[0].format, batches, new, [each.id for each in old]))
        return Compacted(len(files), len(new), sum(file.rows for file in new))


def planned(files: list[LakeFile], target_bytes: int) -> list[list[LakeFile]]:
    """Files that become one, each group within one folder and about as large as wanted."""
    folders: dict[str, list[LakeFile]] = {}
    for file in files:
        folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    groups: list[list[LakeFile]] = []
    for each in folders.values():
        size = target_bytes
        for file in each:
            if size + file.bytes > target_bytes:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.bytes
    return groups


def _merged(root: Path, staging: Path, identity: str, number: int, group: list[LakeFile]) -> LakeFile:
    parts = [root / file.path for file in group]
    suffix = parts[0].suffix.removeprefix(".")
    schema = _schema(parts[0])
    staged = StagedFile(staging / f"{number}.part", schema, suffix, "", 0)
    for part in parts:
        for batch in _batches(part, schema):
            staged.add(batch, None)
            if staged.waiting_bytes > 64 << 20:
                staged.flush()
    staged.close()
    place = group[0].path.rpartition("/")[0]
    path = "/".join(part for part in (place, file_name(identity, number, 0, suffix)) if part)
    firsts = [file.first_time for file in group if file.first_time is not None]
    lasts = [file.last_time for file in group if file.last_time is not None]
    times = (min(firsts, default=None), max(lasts, default=None))
    return LakeFile(path, staged.path.name, staged.rows, staged.path.stat().st_size, *times)


def _schema(path: Path) -> Any:
    if path.suffix == f".{AVRO}":
        from polybus.pipelines.avro import arrow_schema_of

        return arrow_schema_of(path)
    return pq.read_schema(path)


def _batches(path: Path, schema: Any) -> Iterator[Any]:
    if path.suffix == f".{AVRO}":
        yield from read_avro(path, schema)
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield batch.cast(schema)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    (root / MANIFESTS).mkdir(parents=True, exist_ok=True)
    handle = os.open(root / MANIFESTS / ".compact.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{root}: is being compacted by somebody else") from None
        yield
    finally:
        os.close(handle)
