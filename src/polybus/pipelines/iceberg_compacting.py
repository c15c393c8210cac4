"""Compaction of Iceberg tables: the small files of each part of a table become few, in one snapshot.

Merged files are put in place first, where no snapshot names them. One snapshot then takes the small files out and the
merged ones in: the catalogue changes from the old snapshot to this one in a single step, or not at all, and whoever
has planned a read by an old snapshot finds its files, which stay until that snapshot is expired. A capture that commits
in between wins; the same merged files are then swapped in on top of what it has added, if all that they replace is
still there.

Only files that a capture could have written are touched: of the present partitioning, with columns by name and no rows
deleted from them. `_staging/compact-1f0c2a9e/files.json` lists the merged files before they are put in place, so that
the next compaction can remove those that a crash has left and no snapshot names.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from polybus.errors import ConfigError
from polybus.limits import LAKE_COMMIT_TRIES
from polybus.pipelines.iceberg import IcebergLake, local_path
from polybus.pipelines.manifests import COMPACTED, STAGING, LakeFile, ManifestFolder, TableFolder, sync_folder
from polybus.pipelines.merging import Compacted, alone, merged, planned
from polybus.pipelines.object_folder import ObjectFolder

_LIST: Final = "files.json"
_FIELD_ID: Final = b"PARQUET:field_id"
_COMPACTION: Final = "polybus.compaction"

Tasks = dict[str, Any]
"""What a scan of the table plans to read, by the name of the data file."""


class Overtaken(ConfigError):
    """Somebody else has changed the very files that were to be merged."""


def compact_iceberg(lake: IcebergLake, target_bytes: int, before_seconds: float) -> Compacted:
    """Swaps small data files for few large ones; those younger than a moment stay."""
    if not lake.folder.exists():
        return Compacted(0, 0, 0)
    with _alone(lake):
        table = lake.table()
        if table is None:
            return Compacted(0, 0, 0)
        _forget_unfinished(lake, table)
        tasks = _tasks(table)
        groups = _groups(lake, table, tasks, target_bytes, before_seconds)
        if not groups:
            return Compacted(len(tasks), len(tasks), 0)
        return _compact(lake, len(tasks), groups)


def _compact(lake: IcebergLake, count: int, groups: list[dict[str, LakeFile]]) -> Compacted:
    identity = f"{COMPACTED}{uuid.uuid4().hex[:8]}"
    target = lake.folder.begin(identity)
    new = [merged(lake.folder, target, identity, number, list(group.values())) for number, group in enumerate(groups)]
    if isinstance(lake.folder, ManifestFolder):
        _write_list(lake.folder.staging(identity), [file.path for file in new])
    lake.folder.put_in_place(identity, new)
    old = {name for group in groups for name in group}
    try:
        _swap(lake, identity, old, [lake.named(file.path) for file in new])
    except ConfigError:
        # After any other failure nobody knows what will come of it: the next compaction finds out.
        _forget_unfinished(lake, lake.table(), identity)
        raise
    lake.folder.clear(identity, new)
    return Compacted(count, count - len(old) + len(new), sum(file.rows for file in new))


def _alone(lake: IcebergLake) -> AbstractContextManager[None]:
    """On an object store the catalogue alone decides between two: the second finds its files gone from the table."""
    return alone(lake.root, STAGING) if isinstance(lake.root, Path) else nullcontext()


# What can be merged


def _tasks(table: Any) -> Tasks:
    return {task.file.file_path: task for task in table.scan().plan_files()}


def _groups(
    lake: IcebergLake, table: Any, tasks: Tasks, target_bytes: int, before_seconds: float
) -> list[dict[str, LakeFile]]:
    """Files that become one, by the names that the table has for them."""
    alike: dict[Any, dict[str, LakeFile]] = {}
    spec = table.spec().spec_id
    for name, task in sorted(tasks.items()):
        path = lake.inside(name)
        if path is None or task.file.spec_id != spec or task.delete_files or lake.folder.made(path) > before_seconds:
            continue
        schema = _plain_schema(lake.folder, path)
        if schema is not None:
            key = (repr(task.file.partition), schema)
            file = LakeFile(path, "", task.file.record_count, task.file.file_size_in_bytes)
            alike.setdefault(key, {})[name] = file
    return [group for files in alike.values() for group in _named(files, target_bytes)]


def _plain_schema(folder: TableFolder, path: str) -> Any:
    """The columns of a file; None where they go by numbers and not by their names, as engines write them."""
    with folder.open(path) as source:
        schema = pq.read_schema(source).remove_metadata()
    return None if any(_FIELD_ID in (field.metadata or {}) for field in schema) else schema


def _named(files: dict[str, LakeFile], target_bytes: int) -> Iterator[dict[str, LakeFile]]:
    names = {file.path: name for name, file in files.items()}
    for group in planned(list(files.values()), target_bytes):
        if len(group) > 1:
            yield {names[file.path]: file for file in group}


# The one step


def _swap(lake: IcebergLake, identity: str, old: set[str], new: list[str]) -> None:
    """Takes the old files out and the new ones in; ConfigError where that did not happen."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    for _ in range(LAKE_COMMIT_TRIES):
        table = lake.table()
        tasks = {} if table is None else _tasks(table)
        if all(name in tasks for name in new):
            # A catalogue may say that a commit has failed when it was asked twice and did it the first time.
            return
        if any(name not in tasks or tasks[name].delete_files for name in old):
            raise Overtaken(f"{lake.root}: somebody else has rewritten what was to be compacted; nothing was changed")
        try:
            _commit(table, identity, [tasks[name].file for name in old], new)
        except (CommitFailedException, ValidationException):
            continue
        return
    raise ConfigError(
        f"{lake.root}: others commit all the time, and the compaction was given up; nothing was changed"
    )


def _commit(table: Any, identity: str, old: list[Any], new: list[str]) -> None:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    try:
        files = [parquet_file_to_data_file(table.io, table.metadata, path) for path in new]
    except ValueError as error:
        raise ConfigError(
            f"{table.location()}: the table's columns are no longer those of its files: {error}"
        ) from None
    with table.transaction() as transaction, transaction.update_snapshot({_COMPACTION: identity}).overwrite() as swap:
        for file in old:
            swap.delete_data_file(file)
        for file in files:
            swap.append_data_file(file)


# What a crash has left


def _write_list(staging: Path, paths: list[str]) -> None:
    with (staging / _LIST).open("w") as out:
        json.dump(paths, out)
        out.flush()
        os.fsync(out.fileno())
    sync_folder(staging)


def _forget_unfinished(lake: IcebergLake, table: Any, own: str = "") -> None:
    """Removes what compactions have put in place and no snapshot names; on an object store those that are dead."""
    if isinstance(lake.folder, ObjectFolder):
        for identity in lake.folder.dead_compactions(own):
            lake.folder.forget(identity, {path for name in _names(table) if (path := lake.inside(name)) is not None})
        return
    assert isinstance(lake.root, Path)
    for staging in sorted((lake.root / STAGING).glob(f"{COMPACTED}*")):
        listed = staging / _LIST
        paths = [lake.root / path for path in json.loads(listed.read_text())] if listed.exists() else []
        if any(path.exists() for path in paths):
            named = {local_path(name) for name in _names(table)}
            for path in paths:
                if path not in named:
                    path.unlink(missing_ok=True)
        shutil.rmtree(staging)


def _names(table: Any) -> set[str]:
    """All files that snapshots name."""
    if table is None:
        return set()
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
    }
    entries = (entry for manifest in manifests.values() for entry in manifest.fetch_manifest_entry(table.io))
    return {entry.data_file.file_path for entry in entries}
