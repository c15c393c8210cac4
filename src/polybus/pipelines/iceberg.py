"""Iceberg tables, through `pyiceberg`: a batch is one snapshot, with the query and the batch among its properties.

The table's own properties, changed in the same transaction, keep the last batch of each query, for snapshots expire.
Without a catalogue of one's own there is one in SQLite, in the captured folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from polybus.errors import ConfigError
from polybus.limits import LAKE_COMMIT_TRIES
from polybus.pipelines.lake import Lake, LakeBatch
from polybus.pipelines.layout import Layout
from polybus.pipelines.manifests import LakeFile, move

CATALOGUE: Final = "_catalog.db"
TABLE: Final = "polybus.messages"


class IcebergLake(Lake):
    whole = True
    suffix = "parquet"

    def __init__(self, root: Path, layout: Layout, options: dict[str, str]) -> None:
        super().__init__(root, layout)
        self._name = options.get("table", TABLE)
        self._properties = {name: value for name, value in options.items() if name != "table"}
        self._opened: Any = None

    def _catalogue(self) -> Any:
        if self._opened is None:
            try:
                from pyiceberg.catalog import load_catalog
            except ImportError:
                raise ConfigError("Iceberg tables need: pip install 'polybus[pipelines]'") from None
            self.root.mkdir(parents=True, exist_ok=True)
            own = {"type": "sql", "uri": f"sqlite:///{self.root / CATALOGUE}", "warehouse": self.root.as_uri()}
            self._opened = load_catalog("polybus", **(self._properties or own))
        return self._opened

    def last(self, query: str) -> int:
        return int(self._known(query)[0])

    def ends(self, query: str, last: int) -> str:  # noqa: ARG002
        return self._known(query)[1]

    def _known(self, query: str) -> tuple[str, str]:
        table = self.table()
        number, _, ends = ("-1" if table is None else table.properties.get(_property(query), "-1")).partition(" ")
        return number, ends

    def commit(self, batch: LakeBatch, files: list[LakeFile], schema: Any) -> None:
        """Data files are put in place first: the snapshot alone makes them count."""
        staging = self.folder.staging(batch.id)
        for file in files:
            move(staging / file.staged, self.root / file.path)
        self._add(batch, [str(self.root / file.path) for file in files], schema)
        shutil.rmtree(staging, ignore_errors=True)

    def _add(self, batch: LakeBatch, paths: list[str], schema: Any) -> None:
        """The batch as a snapshot, on top of whatever others commit meanwhile."""
        from pyiceberg.exceptions import CommitFailedException

        told = {"polybus.query": batch.query, "polybus.batch": str(batch.number)}
        for _ in range(LAKE_COMMIT_TRIES):
            try:
                with self._ready_table(schema).transaction() as transaction:
                    with transaction.update_schema() as update:
                        update.union_by_name(schema)
                    transaction.add_files(paths, snapshot_properties=told)
                    transaction.set_properties({_property(batch.query): f"{batch.number} {batch.ends}"})
                return
            except CommitFailedException:
                # Somebody else was quicker; or it is in, and the catalogue was asked twice.
                if self.last(batch.query) >= batch.number:
                    return
        raise ConfigError(f"{self.root}: others commit all the time, and batch {batch.number} found no gap")

    def _ready_table(self, schema: Any) -> Any:
        """The table, made and partitioned where it was not, also where a crash came between the two."""
        catalogue = self._catalogue()
        catalogue.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        table = catalogue.create_table_if_not_exists(self._name, schema, location=self.root.as_uri())
        if table.current_snapshot() is None and table.spec().is_unpartitioned():
            with table.update_spec() as spec:
                _partition(spec, self.layout.levels)
        return table

    def table(self) -> Any:
        """The table as it is now; None where nothing was captured yet."""
        catalogue = self._catalogue()
        return catalogue.load_table(self._name) if catalogue.table_exists(self._name) else None

    def files(self) -> list[Path]:
        table = self.table()
        tasks = [] if table is None else table.scan().plan_files()
        return sorted(local_path(task.file.file_path) for task in tasks)


def local_path(told: str) -> Path:
    """Where a data file lies: the capture names it by its path, engines by a URL."""
    return Path(unquote(urlsplit(told).path) if told.startswith("file:") else told)


def _partition(spec: Any, levels: tuple[str, ...]) -> None:
    """The same parts as the folders, as far as they are made from columns."""
    from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

    if "hour" in levels and "date" in levels:
        # A folder of an hour alone has that hour of every day, which is no part of a table.
        spec.add_field("enqueued_time", HourTransform(), "enqueued_hour")
    elif "date" in levels:
        spec.add_field("enqueued_time", DayTransform(), "enqueued_day")
    if "partition" in levels:
        spec.add_field("partition", IdentityTransform(), "by_partition")


def _property(query: str) -> str:
    return f"polybus.last-batch.{query}"
