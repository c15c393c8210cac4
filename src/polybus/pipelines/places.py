"""Which entity of which bus a pipeline reads or writes, and the options that this makes for Spark.

A connection string stands in the file by reference (`connectionStringEnv`) or, for an emulator's, as it is
(`connectionString`). A reference stays one until Spark's own source resolves it, so that no plan holds a key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from polybus.errors import ConfigError
from polybus.pipelines.fields import Fields
from polybus.spark.bus import BusClient
from polybus.spark.connection import BusConnection
from polybus.spark.options import sink_options, source_options

FORMAT: Final = "servicebus"
_ENTITY: Final = "an entity: orders, topic/Subscriptions/name, orders/$DeadLetterQueue"
_PREFIXES: Final = ("queue:", "topic:")


class VariableMissing(ConfigError):
    """A reference to a connection string that leads nowhere in this environment."""


@dataclass(frozen=True)
class BusReference:
    """Where the connection string is."""

    options: dict[str, str] = field(repr=False)

    def connection(self) -> BusConnection:
        """The connection; VariableMissing where the reference leads nowhere."""
        text = self.options.get("connectionString")
        variable = self.options.get("connectionStringEnv", "")
        if text is None:
            text = os.environ.get(variable, "")
            if not text:
                raise VariableMissing(
                    f"the environment variable {variable!r}, named by 'connectionStringEnv', is not set here"
                )
        return BusConnection(text, self.options.get("caFile"))


@dataclass(frozen=True)
class EntityReference:
    """An entity of a bus, with further options for Spark's source or sink."""

    entity: str
    bus: BusReference
    extra: dict[str, str] = field(default_factory=dict, repr=False)

    def options(self, **defaults: object) -> dict[str, str]:
        """What `format("servicebus")` takes: the file's own `options` go before the defaults given here.

        Spark takes names in any case, so the last of each name, in any case, is the one that counts.
        """
        given = {name: str(value) for name, value in defaults.items() if value is not None}
        merged: dict[str, tuple[str, str]] = {}
        for told in (given, self._extra(), self.bus.options, {"entity": self.entity}):
            merged |= {name.lower(): (name, value) for name, value in told.items()}
        return dict(merged.values())

    def _extra(self) -> dict[str, str]:
        """The file's options without those that say which bus, in any form: the reference says that."""
        return {name: value for name, value in self.extra.items() if not name.lower().startswith("connectionstring")}

    def check_source(self, **defaults: object) -> list[str]:
        """Looks at the options as the source will; ConfigError, or a remark where the bus is not known here."""
        return self._check(source_options, defaults)

    def check_sink(self, **defaults: object) -> list[str]:
        """Looks at the options as the sink will."""
        return self._check(sink_options, defaults)

    def _check(self, read: Callable[[Mapping[str, str]], object], defaults: dict[str, object]) -> list[str]:
        try:
            self.bus.connection()
        except VariableMissing as error:
            return [str(error)]
        read(self.options(**defaults))
        return []

    def open(self, retry_seconds: float = 5) -> BusClient:
        """The bulk API of the entity; whoever opens it closes it."""
        return BusClient(self.bus.connection(), self.entity, retry_seconds)


def bus_from(fields: Fields | None, default: BusReference | None = None) -> BusReference | None:
    """Reads `bus: {connectionStringEnv: NAME, caFile: PATH}`."""
    if fields is None:
        return default
    options = {
        name: fields.text(name) for name in ("connectionString", "connectionStringEnv", "caFile") if fields.has(name)
    }
    fields.close()
    if ("connectionString" in options) == ("connectionStringEnv" in options):
        fields.missing("connectionStringEnv", "either connectionStringEnv (a variable's name) or connectionString")
    return BusReference(options)


def entity_from(fields: Fields, name: str, default: BusReference | None) -> EntityReference:
    """Reads `from: orders`, or `from: {entity: orders, bus: {…}, options: {targetTasks: 2}}`."""
    value = fields.raw(name)
    if value is None:
        fields.missing(name, _ENTITY)
    if isinstance(value, str):
        inner, bus, extra = fields, default, {}
        entity = fields.text(name, allowed=_ENTITY)
    else:
        inner = Fields(fields.file, fields.place(name), value)
        entity = inner.text("entity", allowed=_ENTITY)
        bus = bus_from(inner.mapping("bus"), default)
        extra = inner.options("options")
        inner.close()
    if bus is None:
        raise ConfigError(f"{fields.file}: bus: is missing; allowed: a mapping with connectionStringEnv")
    return EntityReference(_plain(entity), bus, extra)


def _plain(entity: str) -> str:
    for prefix in _PREFIXES:
        entity = entity.removeprefix(prefix)
    return entity.strip("/")
