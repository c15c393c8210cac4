"""The file that declares pipelines, read and checked as a whole: YAML in, kinds out, or the first fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from polybus.errors import ConfigError
from polybus.limits import PIPELINE_NAME_CHARACTERS, PIPELINES_PER_FILE
from polybus.pipelines.alerts import alert_from
from polybus.pipelines.backoff import Restart
from polybus.pipelines.fields import Fields
from polybus.pipelines.kind import Origin, PipelineKind, StreamKind
from polybus.pipelines.kinds import KINDS
from polybus.pipelines.object_stores import stores_from
from polybus.pipelines.places import bus_from

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NAME_RULE: Final = (
    f"a name of at most {PIPELINE_NAME_CHARACTERS} letters, digits, dots, dashes and underscores, beginning with a"
    " letter or digit, and given once"
)


@dataclass(frozen=True)
class SparkSettings:
    master: str = "local[*,4]"
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Declaration:
    file: str
    checkpoints: Path
    spark: SparkSettings
    restart: Restart
    pipelines: tuple[PipelineKind, ...]

    def named(self, names: tuple[str, ...]) -> Declaration:
        """The same with these pipelines only; all of them where none is named."""
        known = {kind.name: kind for kind in self.pipelines}
        for name in names:
            if name not in known:
                raise ConfigError(f"{self.file}: there is no pipeline {name!r}; there are: {', '.join(known)}")
        chosen = tuple(known[name] for name in names) or self.pipelines
        return Declaration(self.file, self.checkpoints, self.spark, self.restart, chosen)


def load(path: Path, kinds: Mapping[str, type[PipelineKind]] = KINDS) -> Declaration:
    """Reads a file; ConfigError says file, path, value and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse(text, str(path), path.absolute().parent, kinds)


def parse(text: str, file: str, folder: Path, kinds: Mapping[str, type[PipelineKind]] = KINDS) -> Declaration:
    fields = Fields(file, "", _yaml(text, file))
    bus = bus_from(fields.mapping("bus"))
    told_checkpoints = fields.text("checkpoints", allowed="a folder for what pipelines must remember")
    origin = Origin(folder, bus, stores_from(fields.mapping("stores"), folder))
    checkpoints = origin.path(told_checkpoints)
    spark = _spark(fields.mapping("spark"))
    restart = _restart(fields.mapping("restart"))
    told = fields.mappings("pipelines", "a list of pipelines, each with name and kind")
    if not told:
        fields.missing("pipelines", "a list of pipelines, each with name and kind")
    if len(told) > PIPELINES_PER_FILE:
        fields.refuse("pipelines", f"{len(told)} pipelines", f"at most {PIPELINES_PER_FILE}")
    found: dict[str, PipelineKind] = {}
    for each in told:
        made = _pipeline(each, origin, kinds, found)
        found[made.name] = made
    fields.close()
    return Declaration(file, checkpoints, spark, restart, tuple(found.values()))


def _pipeline(
    fields: Fields, origin: Origin, kinds: Mapping[str, type[PipelineKind]], others: Mapping[str, PipelineKind]
) -> PipelineKind:
    name = fields.text("name", allowed=_NAME_RULE)
    good = len(name) <= PIPELINE_NAME_CHARACTERS and _NAME.fullmatch(name)
    if not good or any(name.lower() == other.lower() for other in others):
        fields.refuse("name", name, _NAME_RULE)
    kind = kinds[fields.word("kind", tuple(kinds))]
    bus = bus_from(fields.mapping("bus"), origin.bus)
    made = kind.parse(name, fields, Origin(origin.folder, bus, origin.stores))
    if isinstance(made, StreamKind):
        made.alert = alert_from(fields, bus)
    fields.close()
    return made


def _spark(fields: Fields | None) -> SparkSettings:
    if fields is None:
        return SparkSettings()
    found = SparkSettings(fields.text("master", SparkSettings.master), fields.options("conf"))
    if found.master.startswith("sc://"):
        fields.refuse(
            "master", found.master, "local[*,4], spark://…, yarn, k8s://…: pipelines need a driver of their own"
        )
    fields.close()
    return found


def _restart(fields: Fields | None) -> Restart:
    if fields is None:
        return Restart()
    first = fields.duration_ms("first", Restart.first_ms, least=10)
    most = fields.duration_ms("most", max(Restart.most_ms, first), least=first)
    found = Restart(first, most, fields.number("attempts", Restart.attempts, least=0, most=1_000))
    fields.close()
    return found


def _yaml(text: str, file: str) -> Any:
    try:
        from polybus.pipelines.strict_yaml import NotYaml, document
    except ImportError:
        raise ConfigError("pipelines need: pip install 'polybus[pipelines]'") from None
    try:
        return document(text)
    except NotYaml as error:
        raise ConfigError(f"{file}: is not YAML: {error}") from None
