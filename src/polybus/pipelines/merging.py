"""Files that become one: which, by whom, and with what in them. What counts for readers is not decided here."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from polybus.errors import ConfigError
from polybus.pipelines.avro import arrow_schema_of, read_avro
from polybus.pipelines.file_writing import AVRO, StagedFile
from polybus.pipelines.layout import file_name, joined
from polybus.pipelines.manifests import LakeFile, TableFolder, TaskTarget


@dataclass(frozen=True)
class Compacted:
    files_before: int
    files_after: int
    rows: int
    """Those in files that were written anew."""

    def record(self) -> dict[str, Any]:
        return asdict(self)


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


def merged(folder: TableFolder, target: TaskTarget, identity: str, number: int, group: list[LakeFile]) -> LakeFile:
    """One file with the rows of several, handed over as a task of a capture does."""
    suffix = group[0].path.rpartition(".")[2]
    place = group[0].path.rpartition("/")[0]
    with target.working() as working:
        staged = StagedFile(working / f"{number}.part", _unified(folder, group, suffix), suffix, place, 0)
        for file in group:
            with folder.open(file.path) as source:
                for batch in _batches(source, staged.schema, suffix):
                    staged.add(batch, None)
                    if staged.waiting_bytes > 64 << 20:
                        staged.flush()
        staged.close()
        landed = target.land(staged.path, place, lambda of: file_name(f"{of}-{identity[-8:]}", number, 0, suffix))
    firsts = [file.first_time for file in group if file.first_time is not None]
    lasts = [file.last_time for file in group if file.last_time is not None]
    told = {
        **staged.record(number, landed),
        "first_time": min(firsts, default=None),
        "last_time": max(lasts, default=None),
    }
    return folder.placed(told, joined(place, file_name(identity, number, 0, suffix)))


def _unified(folder: TableFolder, group: list[LakeFile], suffix: str) -> Any:
    found = []
    for file in group:
        with folder.open(file.path) as source:
            found.append(arrow_schema_of(source) if suffix == AVRO else pq.read_schema(source))
    return pa.unify_schemas(found)


def _batches(source: BinaryIO, schema: Any, suffix: str) -> Iterator[Any]:
    if suffix == AVRO:
        yield from read_avro(source, schema)
        return
    with pq.ParquetFile(source) as file:
        for batch in file.iter_batches():
            yield widened(batch, schema)


def widened(batch: Any, schema: Any) -> Any:
    """A batch of a file that was written before the table had all of its columns."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def alone(root: Path, folder: str) -> Iterator[None]:
    """While one compacts a table, nobody else does; `folder` of it holds the lock."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    handle = os.open(root / folder / ".compact.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{root}: is being compacted by somebody else") from None
        yield
    finally:
        os.close(handle)
