"""`polybus pipelines compact`: few large files of many small ones, folder by folder, without Spark.

The rows stay in the order of their files, and a file that is alone in its folder, or large enough, stays as it is. A
capture may go on at the same time: it only adds, and what was not there at the beginning is left alone. One
compaction of a folder runs at a time.
"""

from __future__ import annotations

import time
from dataclasses import replace

from polybus.errors import ConfigError
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.fields import Fields
from polybus.pipelines.iceberg import IcebergLake
from polybus.pipelines.kind import PipelineKind
from polybus.pipelines.lake import ManifestLake
from polybus.pipelines.manifests import Manifest, TableFolder
from polybus.pipelines.merging import Compacted, merged, planned


def compact_capture(kind: PipelineKind, target: str, older_than: str) -> Compacted:
    """Compacts what a capture has written, in the way of its format."""
    if not isinstance(kind, CaptureKind):
        raise ConfigError(f"{kind.name!r} is no capture but {kind.kind!r}: there is nothing to compact")
    told = Fields("the command", "", {"--target": target, "--older-than": older_than})
    target_bytes = told.size_bytes("--target", least=1024)
    oldest_ms = told.duration_ms("--older-than")
    before_seconds = time.time() - oldest_ms / 1000
    lake = kind.lake()
    if isinstance(lake, ManifestLake):
        return compact_folder(lake.folder, target_bytes, before_seconds)
    if isinstance(lake, IcebergLake):
        from polybus.pipelines.iceberg_compacting import compact_iceberg

        return compact_iceberg(lake, target_bytes, before_seconds)
    if oldest_ms:
        raise ConfigError("the command: --older-than: Delta tables are compacted whole, by deltalake")
    from polybus.pipelines.delta import compact_delta

    return Compacted(*compact_delta(kind.place.path, target_bytes))


def compact_folder(folder: TableFolder, target_bytes: int, before_seconds: float) -> Compacted:
    """Swaps the manifests of a folder for one that names fewer files; those younger than a moment stay."""
    if not folder.exists():
        return Compacted(0, 0, 0)
    with folder.compacting() as identity:
        old = [each for each in folder.manifests() if folder.manifest_made(each.id) <= before_seconds]
        files = [file for each in old for file in each.files]
        plan = planned(files, target_bytes)
        if len(plan) >= len(files) or not old:
            return Compacted(len(files), len(files), 0)
        target = folder.begin(identity)
        new = [
            merged(folder, target, identity, number, group) if len(group) > 1 else replace(group[0], staged="")
            for number, group in enumerate(plan)
        ]
        batches: dict[str, tuple[int, str]] = {}
        for each in old:
            for query, batch in each.batches.items():
                batches[query] = max(batch, batches.get(query, batch))
        folder.commit(Manifest(identity, old[0].format, batches, new, [each.id for each in old]))
        known = {file.path for file in files}
        return Compacted(len(files), len(new), sum(file.rows for file in new if file.path not in known))
