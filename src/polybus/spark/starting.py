"""A session of Spark for a bus: nothing open to the outside, times in UTC, workers that have this package, quiet."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polybus.errors import ConfigError
from polybus.spark.secrets import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*,4]"
"""All cores of this machine; a task is tried four times, as on a cluster (`local[*]` tries it once)."""
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def session(master: str = MASTER, name: str = "polybus", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, started where there is none; `conf` goes before our settings."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark needs: pip install 'polybus[spark]'") from None
    _need_java()
    # Workers must be the interpreter that has this package, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings(master, conf or {}).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        # Of Spark, of Java, or of the way between them; each says what is wrong in its own words.
        raise ConfigError(f"Spark does not start (master {master}): {one_line(str(error))}") from error


def settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration: ours, then the user's."""
    return {**_DEFAULTS, **(_LOOPBACK if master.startswith("local") else {}), **conf}


def _need_java() -> None:
    """Spark says of a missing Java only that something has ended."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise ConfigError("Spark needs Java 17 or newer, and there is none: neither JAVA_HOME nor java in the PATH")
