"""A lake that batches of a capture go into, each exactly once: one seam, an implementation for each kind of table.

Tasks write files into a staging folder of the batch (`file_writing`); `commit` makes them part of the table in one
step, and remembers in that very step which batch of which query they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from polybus.errors import ConfigError
from polybus.pipelines.file_writing import AVRO, PARQUET
from polybus.pipelines.layout import Layout, batch_id, batch_prefix, file_name, joined
from polybus.pipelines.manifests import LakeFile, Manifest, folder_at
from polybus.pipelines.object_stores import Location


@dataclass(frozen=True)
class LakeBatch:
    """A batch of a query."""

    query: str
    number: int
    ends: str = ""
    """How far it reads, in a form that can be compared; empty where that is not known."""

    @property
    def id(self) -> str:
        return batch_id(self.query, self.number)


class CheckpointBehind(ConfigError):
    """The table has more than the checkpoint knows of."""


class Lake(ABC):
    """One table of a lake."""

    whole: bool
    """Whether files hold every column, also those that the folders tell."""
    suffix: str

    def __init__(self, root: Location, layout: Layout) -> None:
        self.root = root
        self.layout = layout
        self.folder = folder_at(root)

    def committed(self, batch: LakeBatch) -> bool:
        """Whether this batch is in already; CheckpointBehind where another one of its number is, or a later one.

        Spark repeats only its last batch, and repeats it as it was. Anything else is a checkpoint that was put back
        to an earlier state, and taking its batches for known ones would lose what is new in them.
        """
        last = self.last(batch.query)
        if batch.number > last:
            return False
        ends = self.ends(batch.query, last)
        if batch.number < last or (batch.ends and ends and batch.ends != ends):
            raise CheckpointBehind(
                f"{self.root}: has batch {last} of this query, and the checkpoint is at an earlier state, before"
                f" batch {batch.number} was made: with a new checkpoint (another folder, or this one deleted) the capture"
                " goes on from its cursor"
            )
        return True

    @abstractmethod
    def last(self, query: str) -> int:
        """The last batch of a query that is in, -1 where none is; asked for each batch, so it must be quick."""

    @abstractmethod
    def ends(self, query: str, last: int) -> str:
        """How far the last batch of a query read; empty where that is no longer known."""

    @abstractmethod
    def commit(self, batch: LakeBatch, files: list[LakeFile], schema: Any) -> None:
        """Makes the staged files of a batch part of the table, for good."""

    def recover(self, query: str) -> None:
        """Makes good what a crash has left of the query's batches."""
        self.folder.recover(batch_prefix(query), self.last(query))

    @abstractmethod
    def files(self) -> list[str]:
        """The data files that are in now, by path or URL."""

    def staged(self, batch: LakeBatch, told: list[Any]) -> list[LakeFile]:
        """The files that tasks have told of, with the names that they will have."""
        return [
            self.folder.placed(
                each, joined(each["folder"], file_name(batch.id, each["task"], each["part"], self.suffix))
            )
            for each in sorted(told, key=lambda each: (each["folder"], each["task"], each["part"]))
        ]


class ManifestLake(Lake):
    """Plain files in folders, with manifests."""

    whole = False

    def __init__(self, root: Location, layout: Layout, suffix: str) -> None:
        super().__init__(root, layout)
        self.suffix = suffix

    def committed(self, batch: LakeBatch) -> bool:
        found = super().committed(batch)
        if found:
            self.folder.recover(batch.id, batch.number)
        return found

    def last(self, query: str) -> int:
        return self.folder.last(query, batch_prefix(query))[0]

    def ends(self, query: str, last: int) -> str:  # noqa: ARG002
        return self.folder.last(query, batch_prefix(query))[1]

    def commit(self, batch: LakeBatch, files: list[LakeFile], schema: Any) -> None:  # noqa: ARG002
        known = {batch.query: (batch.number, batch.ends)}
        self.folder.commit(Manifest(batch.id, self.suffix, known, files))

    def files(self) -> list[str]:
        return self.folder.files()


def open_lake(kind: str, root: Location, layout: Layout, options: dict[str, str]) -> Lake:
    """The lake that the words of a file stand for."""
    if kind in (PARQUET, AVRO):
        return ManifestLake(root, layout, kind)
    if kind == "delta":
        from polybus.pipelines.delta import DeltaLake

        return DeltaLake(root, layout)
    from polybus.pipelines.iceberg import IcebergLake

    return IcebergLake(root, layout, options)
