"""Where captured rows lie and how files are called. Pure.

Hive's layout is folders such as `entity=orders/date=2026-01-31/hour=12/partition=3`, which every reader of lakes
takes for columns. A file's name says which batch of which query and which task wrote it, so a batch that is repeated
writes the same names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

HIVE: Final = ("entity", "date", "hour", "partition")
NEEDED: Final = {"date": "enqueued_time", "hour": "enqueued_time", "partition": "partition"}
"""The column that a level of the layout is made from."""
QUERY_CHARACTERS: Final = 8
"""Of the query's id, in names: enough to tell the few queries apart that ever write into one folder."""


@dataclass(frozen=True)
class Layout:
    levels: tuple[str, ...]
    entity: str

    def folder_of(self, values: tuple[str, ...]) -> str:
        """`date=2026-01-31/hour=12`, or nothing for a flat layout."""
        return "/".join(f"{level}={quote(value, safe='')}" for level, value in zip(self.levels, values, strict=True))

    def split(self, batch: Any) -> list[tuple[tuple[str, ...], Any]]:
        """The rows of an Arrow batch by their folder, each part in its old order."""
        if not batch.num_rows:
            return []
        if not self.levels:
            return [((), batch)]
        columns = [self._values(level, batch) for level in self.levels]
        keys = pc.binary_join_element_wise(*columns, "\n")
        return [(tuple(key.split("\n")), batch.filter(pc.equal(keys, key))) for key in pc.unique(keys).to_pylist()]

    def _values(self, level: str, batch: Any) -> Any:
        if level == "entity":
            return pa.array([self.entity] * batch.num_rows, pa.string())
        column = batch.column(batch.schema.get_field_index(NEEDED[level]))
        if level == "partition":
            return column.cast(pa.string())
        utc = column.cast(pa.timestamp("us", tz="UTC"))
        return pc.strftime(utc.cast(pa.timestamp("s", tz="UTC"), safe=False), "%Y-%m-%d" if level == "date" else "%H")

    def stored(self, names: list[str], whole: bool) -> list[str]:
        """The columns that files have: a level that is also a column is left to the folder, unless files are whole."""
        return names if whole else [name for name in names if name not in self.levels]


def levels_in(folder: str) -> dict[str, str]:
    """The values that a folder's name carries."""
    pairs = [part.partition("=") for part in folder.split("/") if "=" in part]
    return {name: unquote(value) for name, _, value in pairs}


def batch_prefix(query: str) -> str:
    """What the ids of all batches of a query begin with."""
    return f"batch-{query.replace('-', '')[:QUERY_CHARACTERS]}-"


def batch_id(query: str, batch: int) -> str:
    return f"{batch_prefix(query)}{batch:08}"


def joined(folder: str, name: str) -> str:
    """A name in a folder, which may be the table's own."""
    return f"{folder}/{name}" if folder else name


def file_name(identity: str, task: int, part: int, suffix: str) -> str:
    """`batch-1f0c2a9e-00000041-task-00003.parquet`; a task that needs more than one file in a folder numbers them."""
    return f"{identity}-task-{task:05}{f'-{part}' if part else ''}.{suffix}"
