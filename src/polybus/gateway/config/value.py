"""A place in a configuration file: its value, and where it stands, for messages that say so.

A cursor is handed down from object to object. Every complaint goes through it, so that all of them have the same
form: file, path, what is wrong, what is allowed.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from typing import Any

from polybus.errors import ArgumentError, ConfigError
from polybus.gateway.config.jsonc import JsonObject
from polybus.gateway.durations import parse_duration
from polybus.namespace.entities.description import EntityStatus
from polybus.namespace.entities.properties import PROPERTIES, Shape

_INTEGER_BITS = {Shape.INT32: 32, Shape.INT64: 64}
_SETTABLE = ", ".join(status.value for status in EntityStatus if status.settable)


class MisspelledKey(ConfigError):
    """A key that is unknown and hardly differs from one that is known: what stands under it would be lost silently."""

    def __init__(self, key: str, meant: str) -> None:
        super().__init__(f"the key {key!a} is unknown; {meant!a} is meant, it seems")
        self.key = key


_NEAR = 0.85
"""How alike keys must be (difflib) to be one and the same, misspelled: `Queus` and `Queues` are to 0.91."""
_PROPERTIES = {item.element.lower() for items in PROPERTIES.values() for item in items}


class ConfigValue:
    """One value of the file. `warnings` is shared by all cursors of a file."""

    __slots__ = ("path", "source", "value", "warnings")

    def __init__(self, source: str, path: str, value: Any, warnings: list[str]) -> None:
        self.source = source
        self.path = path
        self.value = value
        self.warnings = warnings

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"{self.source}: {self.path or 'the file'}: {message}")

    def not_allowed(self, allowed: str) -> ConfigError:
        return self.error(f"the value {shown(self.value)} is not allowed; allowed: {allowed}")

    def warn(self, message: str) -> None:
        self.warnings.append(f"{self.source}: {self.path or 'the file'}: {message}")

    def child(self, key: str) -> ConfigValue | None:
        """What stands under a key of this object; None if it is not there or null."""
        spelling, value = self._table().members.get(key.lower(), (key, None))
        return None if value is None else self._at(spelling, value)

    def required(self, key: str) -> ConfigValue:
        child = self.child(key)
        if child is None:
            raise self.error(f"{key} is missing")
        return child

    def children(self) -> Iterator[tuple[str, ConfigValue]]:
        """The members of this object, in the file's order."""
        for spelling, value in self._table().members.values():
            yield spelling, self._at(spelling, value)

    def exact_children(self) -> Iterator[tuple[str, ConfigValue]]:
        """The members of an object whose keys are the user's own names, where case matters."""
        if not isinstance(self.value, JsonObject):
            raise self.not_allowed("an object")
        for key, value in self.value.pairs:
            yield key, self._at(key, value)

    def items(self) -> list[ConfigValue]:
        """The elements of this array."""
        if not isinstance(self.value, list):
            raise self.not_allowed("an array")
        return [
            ConfigValue(self.source, f"{self.path}[{index}]", value, self.warnings)
            for index, value in enumerate(self.value)
        ]

    def warn_of_unknown_keys(self, known: Collection[str]) -> None:
        folded = {key.lower(): key for key in known}
        for spelling, child in self.children():
            if spelling.lower() in folded:
                continue
            near = difflib.get_close_matches(spelling.lower(), folded, n=1, cutoff=_NEAR)
            if near and spelling.lower() not in _PROPERTIES:
                raise MisspelledKey(spelling, folded[near[0]])
            child.warn("the key is unknown and has no effect")

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.not_allowed("a string")
        return self.value

    def scalar(self, shape: Shape) -> object:
        """The value of a property of that shape."""
        if shape is Shape.TEXT:
            return self.text() or None
        if shape is Shape.BOOLEAN:
            return self.boolean()
        if shape is Shape.DURATION:
            return self._duration()
        if shape is Shape.STATUS:
            return self._status()
        return self.integer(_INTEGER_BITS[shape])

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.not_allowed("true or false")
        return self.value

    def integer(self, bits: int) -> int:
        value = self.value
        if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise self.not_allowed(f"an integer of {bits} bits")
        return value

    def _duration(self) -> int:
        try:
            return parse_duration(self.text())
        except ArgumentError:
            raise self.not_allowed('a duration such as "PT1M" or "P1DT12H"') from None

    def _status(self) -> EntityStatus:
        for status in EntityStatus:
            if status.value.lower() == self.text().lower():
                return status
        raise self.not_allowed(_SETTABLE)

    def _at(self, key: str, value: Any) -> ConfigValue:
        return ConfigValue(self.source, f"{self.path}.{key}" if self.path else key, value, self.warnings)

    def _table(self) -> JsonObject:
        if not isinstance(self.value, JsonObject):
            raise self.not_allowed("an object")
        if self.value.repeated is not None:
            raise self.error(f"the key {self.value.repeated!a} is given more than once")
        return self.value


def shown(value: Any) -> str:
    """A value for a message: short, on one line, nothing of the inside of objects."""
    if isinstance(value, JsonObject):
        return "{...}"
    if isinstance(value, list):
        return "[...]"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
