"""A lake as a DataFrame: of a captured folder the files that count, of any other folder what lies in it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from polybus.errors import ConfigError
from polybus.pipelines.avro import SPARK_FORMAT
from polybus.pipelines.capture import LakePlace
from polybus.pipelines.file_writing import AVRO
from polybus.pipelines.lake import ManifestLake
from polybus.pipelines.layout import Layout
from polybus.pipelines.object_reading import object_frame
from polybus.pipelines.object_stores import ObjectUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lake_frame(
    session: SparkSession, place: LakePlace, first: datetime | None = None, end: datetime | None = None
) -> DataFrame:
    """The rows of a lake, with the folders' names as columns.

    The times save reading files that lie outside of them; they do not filter rows.
    """
    if isinstance(place.path, ObjectUrl):
        return object_frame(session, place.path, place.format, _object_files(place, first, end))
    if not place.path.is_dir():
        raise ConfigError(f"{place.path}: there is no such folder")
    reading = session.read.format(SPARK_FORMAT if place.format == AVRO else "parquet")
    if place.format != AVRO:
        reading = reading.option("mergeSchema", "true")  # bodies may have gained columns
    files = _files(place, first, end)
    if files is None:
        return reading.load(str(place.path))
    if not files:
        raise ConfigError(f"{place.path}: nothing was captured there" + (" in that time" if first or end else ""))
    if place.format != "iceberg":
        # Its files have every column themselves; of the others the folders tell some.
        reading = reading.option("basePath", str(place.path))
    return reading.load(files)


def _object_files(place: LakePlace, first: datetime | None, end: datetime | None) -> list[str]:
    files = _files(place, first, end)
    if files is None:
        raise ConfigError(f"{place.path}: is no folder of a capture")
    if not files:
        raise ConfigError(f"{place.path}: nothing was captured there" + (" in that time" if first or end else ""))
    return files


def _files(place: LakePlace, first: datetime | None, end: datetime | None) -> list[str] | None:
    """The files that count; None where the folder is no capture's, and has what it has."""
    lake = place.open(Layout((), ""))
    if not isinstance(lake, ManifestLake):
        return lake.files()
    if not lake.folder.captured():
        return None
    low = None if first is None else round(first.timestamp() * 1_000_000)
    high = None if end is None else round(end.timestamp() * 1_000_000)
    return [
        lake.folder.whole(file.path)
        for manifest in lake.folder.manifests()
        for file in manifest.files
        if (low is None or file.last_time is None or file.last_time >= low)
        and (high is None or file.first_time is None or file.first_time < high)
    ]
