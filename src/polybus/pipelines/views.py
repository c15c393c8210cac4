"""Frames under names that SQL can use, for as long as it takes to read one query.

All pipelines of a runner share a session, and so its names. A query is resolved when it is read, so names are lent
to one query at a time and taken back at once: no pipeline sees another's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_lending = threading.Lock()


def query(session: SparkSession, sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """What the query gives over these frames. Fails, before anything is read, where it names something else."""
    with _lending:
        try:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            return session.sql(sql)
        finally:
            for name in frames:
                session.catalog.dropTempView(name)
