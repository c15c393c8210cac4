"""Delta tables, through `deltalake`: a batch is one commit of the log, which says in an application's transaction
which batch of which query it is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from polybus.errors import ConfigError
from polybus.pipelines.lake import Lake, LakeBatch
from polybus.pipelines.layout import levels_in
from polybus.pipelines.manifests import LakeFile
from polybus.pipelines.object_stores import Location

_LEVEL_TYPES: Final = {"date": pa.date32(), "hour": pa.int32(), "partition": pa.int32()}

_QUERY: Final = "polybus.query"
_BATCH: Final = "polybus.batch"
_ENDS: Final = "polybus.ends"


class DeltaLake(Lake):
    whole = False
    suffix = "parquet"

    def last(self, query: str) -> int:
        table = self._table()
        number = None if table is None else table.transaction_version(_application(query))
        return -1 if number is None else int(number)

    def ends(self, query: str, last: int) -> str:
        """As the batch's commit says, if the log has not forgotten it."""
        for told in self._table().history():
            if told.get(_QUERY) == query and told.get(_BATCH) == str(last):
                return str(told.get(_ENDS, ""))
        return ""

    def commit(self, batch: LakeBatch, files: list[LakeFile], schema: Any) -> None:
        """Data files are put in place first: the log alone makes them count."""
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        self.folder.put_in_place(batch.id, files)
        now = time.time_ns() // 1_000_000
        table = self._table() or self._create(schema)
        self._widen(table, schema)
        table.create_write_transaction(
            [AddAction(file.path, file.bytes, self._levels(file), now, True, _stats(file)) for file in files],
            mode="append",
            schema=self._schema(schema),
            partition_by=list(self.layout.levels),
            commit_properties=CommitProperties(
                custom_metadata={_QUERY: batch.query, _BATCH: str(batch.number), _ENDS: batch.ends},
                app_transactions=[Transaction(_application(batch.query), batch.number)],
            ),
        )
        self.folder.clear(batch.id, files)

    def _levels(self, file: LakeFile) -> dict[str, str | None]:
        told = levels_in(file.path)
        return {**told, "hour": str(int(told["hour"]))} if "hour" in told else dict(told)

    def _schema(self, schema: Any) -> Any:
        """The columns of the files, then those that the folders tell."""
        names = self.layout.stored(schema.names, self.whole)
        told = [pa.field(level, _LEVEL_TYPES.get(level, pa.string())) for level in self.layout.levels]
        return pa.schema([schema.field(name) for name in names] + told)

    def _widen(self, table: Any, schema: Any) -> None:
        """Columns that the table does not have yet are added; those that a batch lacks are null in it."""
        from deltalake import Schema

        known = {field.name for field in table.schema().fields}
        new = [field for field in Schema.from_arrow(self._schema(schema)).fields if field.name not in known]
        if new:
            table.alter.add_columns(new)

    def _create(self, schema: Any) -> Any:
        from deltalake import DeltaTable

        return DeltaTable.create(
            str(self.root),
            self._schema(schema),
            mode="ignore",
            partition_by=list(self.layout.levels),
            storage_options=delta_options(self.root),
        )

    def _table(self) -> Any:
        return opened_table(self.root)

    def files(self) -> list[str]:
        table = self._table()
        return [] if table is None else sorted(table.file_uris())


def delta_table() -> Any:
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise ConfigError("Delta tables need: pip install 'polybus[pipelines]'") from None
    return DeltaTable


def delta_options(root: Location) -> dict[str, str] | None:
    """What `deltalake` needs to reach a table, secrets included."""
    if isinstance(root, Path):
        return None
    found = root.resolved()
    plain = {"allow_http": "true"} if any(value.startswith("http://") for value in found.values()) else {}
    return {**found, **plain}


def opened_table(root: Location) -> Any:
    """The table as it is now; None where there is none."""
    DeltaTable = delta_table()  # noqa: N806
    options = delta_options(root)
    found = DeltaTable.is_deltatable(str(root), options)
    return DeltaTable(str(root), storage_options=options) if found else None


def compact_delta(root: Location, target_bytes: int) -> tuple[int, int, int]:
    """Files before and after, and rows in them."""
    table = opened_table(root)
    if table is None:
        return 0, 0, 0
    before = len(table.file_uris())
    table.optimize.compact(target_size=target_bytes)
    return before, len(table.file_uris()), int(table.count())


def _application(query: str) -> str:
    return f"polybus-{query}"


def _stats(file: LakeFile) -> str:
    return json.dumps({"numRecords": file.rows})
