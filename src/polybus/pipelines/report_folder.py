"""Where a report and its table go: a folder, or one of an object store.

Spark cannot write to an object store without drivers of its own, so there the table is kept in the pipeline's folder, and
what is new in it is put into the store after it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from polybus.pipelines.object_folder import ObjectStore
from polybus.pipelines.object_stores import Location
from polybus.pipelines.reports import remove_older, write_page


class ReportFolder:
    def __init__(self, location: Location) -> None:
        self._location = location
        self._base = location if isinstance(location, Path) else None
        self._store = None if isinstance(location, Path) else ObjectStore(location)

    def __str__(self) -> str:
        return str(self._location)

    def keep(self, checkpoint: Path) -> None:
        """Says which folder is the pipeline's own; asked for before anything else."""
        if self._base is None:
            self._base = checkpoint / "report"

    def table(self, name: str) -> Path:
        assert self._base is not None, "the pipeline has said where its folder is"
        return self._base / name

    def remove_older(self, name: str, since: datetime) -> None:
        remove_older(self.table(name), since)

    def publish(self, name: str, content: str, table: str) -> None:
        """Puts a page in its place, after the table that it was made from."""
        if self._store is None:
            write_page(self.table(name), content)
            return
        self._copy(self._store, table)
        self._store.put(name, content.encode())

    def _copy(self, store: ObjectStore, table: str) -> None:
        folder = self.table(table)
        here = {f"{table}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.parquet")}
        there = store.names(table)
        for name in sorted(here.keys() - there.keys()):
            store.put(name, here[name])
        store.remove(sorted(there.keys() - here.keys()))
