"""What a pipeline is to the runner: it is read from the file, checked, and started; the rest is the kind's own.

A *stream* is a query of Spark that goes on until it is stopped (with `--once`: until it has read what there was).
A *job* is work that ends by itself, and in a resident runner begins again after a while if it says so.
Kinds keep no state between runs but what is in their checkpoint folder and on the bus: the runner may start one again
at any moment, also in another process.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from polybus.errors import ConfigError
from polybus.pipelines.alerts import AlertSettings
from polybus.pipelines.fields import Fields
from polybus.pipelines.folders import STREAM
from polybus.pipelines.manifests import LakeFile
from polybus.pipelines.metrics import Metrics
from polybus.pipelines.object_stores import ALLOWED, Location, Stores, is_url
from polybus.pipelines.places import BusReference, EntityReference
from polybus.pipelines.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True)
class Origin:
    """What a kind may know of the file when it is read."""

    folder: Path
    """The file's own folder: relative paths begin here."""
    bus: BusReference | None
    """The file's `bus`, for entities that name none."""

    stores: Stores = field(default_factory=Stores)
    """The file's `stores`."""

    def path(self, text: str) -> Path:
        if is_url(text):
            raise ConfigError(f"{text}: must be a folder or file here, and not a URL")
        return (self.folder / Path(text).expanduser()).absolute()

    def location(self, fields: Fields, name: str, allowed: str) -> Location:
        """A place for tables or reports: a folder, or a URL of an object store."""
        text = fields.text(name, allowed=allowed)
        if not is_url(text):
            return self.path(text)
        found = self.stores.at(text)
        if found is None:
            fields.refuse(name, text, ALLOWED)
        return found


@dataclass(frozen=True)
class Landed:
    """What came into a lake."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


@dataclass
class Context:
    """What a pipeline gets when it is started."""

    checkpoint: Path
    """The pipeline's own folder, there already; nobody else writes into it."""
    once: bool
    """Whether to end when everything that there is now is done."""
    say: Callable[[str], None] = print
    """Prints a line with the pipeline's name before it."""
    metrics: Metrics = field(default_factory=Metrics)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the runner ends: jobs look at it between steps, and wait with it instead of sleeping."""
    landed: dict[int, Landed] = field(default_factory=dict)
    """What each batch has put into a lake, by its number, until its report comes."""
    report: str | None = None
    """The page that the pipeline has last written, where it writes one."""
    ends: bool = False
    """Whether a query is to end when it has read what there is: with --once, and where it recurs."""

    def trigger(self, every_ms: int) -> dict[str, Any]:
        """For `writeStream.trigger(**…)`: everything there is with --once, else again and again."""
        return {"availableNow": True} if self.once or self.ends else {"processingTime": f"{every_ms} milliseconds"}

    def lands(self, batch: int, files: list[LakeFile]) -> None:
        """Called by a batch that has put these files into a lake."""
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        self.landed[batch] = Landed(rows, len(files), size)

    def stream_folder(self) -> str:
        """For `option("checkpointLocation", …)`, where Spark journals the query."""
        return str(self.checkpoint / STREAM)


class PipelineKind(ABC):
    """One pipeline of the file."""

    kind: ClassVar[str]
    """The word after `kind:`."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    @abstractmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        """Reads the pipeline's own fields; what it has not asked for afterwards is refused by the caller."""

    def entities(self) -> list[EntityReference]:
        """The entities that must be there; `check --connect` and the runner's start ask the bus for each."""
        return []

    def check(self) -> list[str]:
        """Looks deeper than parsing, without Spark: raises ConfigError, or gives remarks worth printing."""
        return []

    def describe(self) -> str:
        """One line for people: from where to where."""
        return self.kind


class StreamKind(PipelineKind):
    """A pipeline that is a streaming query."""

    alert: AlertSettings | None = None
    """When its lag is worth an alert."""
    recurring_ms: int | None = None
    """Where set, a resident runner starts the query as with --once, and again so long after the last start."""

    @abstractmethod
    def start(self, session: SparkSession, context: Context) -> StreamingQuery:
        """Starts the query from its checkpoint; it is called `self.name`, and triggered as the context says."""

    def cursors(self) -> list[tuple[EntityReference, str]]:
        """What it reads, each with the name of its cursor."""
        return [(self.entities()[0], self.name)]

    def due(self, context: Context) -> bool:  # noqa: ARG002
        """Whether a recurring query should start before its time; asked every few seconds while it rests."""
        return False

    def on_progress(self, progress: Progress, context: Context) -> None:
        """Told of each batch, for metrics of the kind's own; must be quick."""

    def progress_text(self, progress: Progress) -> str:
        """The progress line of a batch."""
        return progress.line()


class JobKind(PipelineKind):
    """A pipeline that is work with an end."""

    every_ms: int | None = None
    """How long after its last start a resident runner starts it again; None: once for each run of the runner."""

    @abstractmethod
    def run(self, session: SparkSession, context: Context) -> Mapping[str, float]:
        """Does the work and gives its figures (`{"messages": 120}`), which become a line and metrics.

        Runs in a thread of its own. Ends early, without an error, when `context.stopping` is set; doing the work
        again must be harmless.
        """


def read_stream(session: SparkSession, entity: EntityReference, **defaults: object) -> DataFrame:
    """A stream of an entity's messages, with options as `EntityReference.options` takes them."""
    from polybus.pipelines.places import FORMAT

    return session.readStream.format(FORMAT).options(**entity.options(**defaults)).load()
