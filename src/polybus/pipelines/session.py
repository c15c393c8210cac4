"""A session of Spark as pipelines want it: nothing open to the outside, times in UTC, a pool for each pipeline."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polybus.errors import ConfigError
from polybus.pipelines.declaration import SparkSettings
from polybus.pipelines.secrets import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def settings_conf(settings: SparkSettings) -> dict[str, str]:
    """Spark's configuration: ours, then the file's."""
    local = settings.master.startswith("local")
    return {**_DEFAULTS, **(_LOOPBACK if local else {}), **settings.conf}


def open_session(settings: SparkSettings) -> SparkSession:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("pipelines need: pip install 'polybus[pipelines]'") from None
    _need_java()
    # Workers must be the interpreter that has this package, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(settings.master).appName("polybus-pipelines")
    for name, value in settings_conf(settings).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        # Of Spark, of Java, or of the way between them; each says what is wrong in its own words.
        raise ConfigError(f"Spark does not start (master {settings.master}): {one_line(str(error))}") from error


def _need_java() -> None:
    """Spark says of a missing Java only that something has ended."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise ConfigError("Spark needs Java 17 or newer, and there is none: neither JAVA_HOME nor java in the PATH")
