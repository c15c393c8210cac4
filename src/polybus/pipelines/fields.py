"""One mapping of the YAML file, read field by field: every fault is told with file, path, value and what is allowed.

A kind asks for the fields that it knows and closes the mapping; what nobody asked for is a fault. No text from here
holds the value of a field that is a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from polybus.errors import ConfigError

_DURATION: Final = re.compile(r"([0-9]{1,13}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SIZE_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*/\s*(s|m|h)")
_SHOWN_CHARACTERS: Final = 80
_SECRETS: Final = (
    "connectionstring",
    "sharedaccess",
    "secret",
    "password",
    "token",
    "accesskey",
    "access_key",
    "accountkey",
    "account_key",
)
"""Words that mark a name or a value as a secret."""


class Fields:
    """A mapping at a place of a file."""

    def __init__(self, file: str, path: str, value: object) -> None:
        self.file = file
        self.path = path
        if not isinstance(value, Mapping):
            self.refuse("", value, "a mapping of names to values")
        self._values: dict[str, Any] = dict(value)
        self._asked: list[str] = []
        for name in self._values:
            if not isinstance(name, str):
                self.refuse("", name, "names that are text; quote it")

    # Faults

    def place(self, name: str) -> str:
        """Where a field is: `pipelines[0].to.format`."""
        return ".".join(part for part in (self.path, name) if part)

    def refuse(self, name: str, value: object, allowed: str) -> NoReturn:
        """Ends the reading: this value is not one of those that are allowed."""
        shown = _shown(f"{name}: {value!r}", repr(value))
        raise ConfigError(
            f"{self.file}: {self.place(name) or 'the file'}: {shown} is not allowed; allowed: {allowed}"
        )

    def missing(self, name: str, allowed: str) -> NoReturn:
        raise ConfigError(f"{self.file}: {self.place(name)}: is missing; allowed: {allowed}")

    def close(self) -> None:
        """Refuses what nobody has asked for."""
        for name in self._values:
            if name not in self._asked:
                self.refuse(name, self._values[name], f"only the fields {', '.join(self._asked)}")

    # Values. Each gives the default where the field is absent; without a default it must be there.

    def has(self, name: str) -> bool:
        """Whether the field is there; asking makes it known."""
        return self.raw(name) is not None

    def raw(self, name: str) -> Any:
        """The value as it stands in the file, or None."""
        if name not in self._asked:
            self._asked.append(name)
        return self._values.get(name)

    def _one(self, name: str, default: Any, allowed: str, read: Callable[[Any], Any]) -> Any:
        value = self.raw(name)
        if value is None:
            if default is ...:
                self.missing(name, allowed)
            return default
        found = read(value)
        if found is None:
            self.refuse(name, value, allowed)
        return found

    def text(self, name: str, default: Any = ..., allowed: str = "a text") -> Any:
        return self._one(name, default, allowed, lambda value: value if isinstance(value, str) and value else None)

    def word(self, name: str, words: Sequence[str], default: Any = ...) -> Any:
        def read(value: Any) -> str | None:
            return next((word for word in words if str(value).lower() == word.lower()), None)

        return self._one(name, default, ", ".join(words), read)

    def flag(self, name: str, default: Any = ...) -> Any:
        return self._one(name, default, "true or false", lambda value: value if isinstance(value, bool) else None)

    def number(self, name: str, default: Any = ..., *, least: int = 0, most: int = 1 << 53) -> Any:
        def read(value: Any) -> int | None:
            good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
            return value if good else None

        return self._one(name, default, f"a whole number from {least} to {most}", read)

    def fraction(self, name: str, default: Any = ..., *, least: float = 0.0, most: float = 1e9) -> Any:
        def read(value: Any) -> float | None:
            good = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
            return float(value) if good else None

        return self._one(name, default, f"a number from {least:g} to {most:g}", read)

    def duration_ms(self, name: str, default: Any = ..., *, least: int = 0, most: int = 10**12) -> Any:
        """Milliseconds of `500ms`, `30s`, `5m`, `1.5h`, `7d`."""

        def read(value: Any) -> int | None:
            found = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
            ms = round(float(found[1]) * _DURATION_MS[found[2]]) if found else -1
            return ms if least <= ms <= most else None

        allowed = f"a duration such as 500ms, 30s, 5m, 2h, 7d, from {duration_text(least)} to {duration_text(most)}"
        return self._one(name, default, allowed, read)

    def size_bytes(self, name: str, default: Any = ..., *, least: int = 1) -> Any:
        """Bytes of `256m`, `64 KiB`, or a plain number."""

        def read(value: Any) -> int | None:
            found = _SIZE.fullmatch(str(value).strip()) if isinstance(value, str | int) else None
            size = int(found[1]) * _SIZE_BYTES[found[2].lower()] if found else -1
            return size if size >= least else None

        return self._one(name, default, f"a size of at least {least} bytes, such as 64k, 256m, 1g", read)

    def rate(self, name: str, default: Any = ...) -> Any:
        """A second's share of `500/s`, `60/m`, `100/h`."""

        def read(value: Any) -> float | None:
            found = _RATE.fullmatch(value.strip().lower()) if isinstance(value, str) else None
            each = float(found[1]) * 1000 / _DURATION_MS[found[2]] if found else 0.0
            return each if each > 0 else None

        return self._one(name, default, "a rate such as 500/s, 60/m, 100/h", read)

    def moment(self, name: str, default: Any = ...) -> Any:
        """A time with its zone, of ISO 8601 text (UTC unless it says)."""
        return self._one(name, default, "a time such as 2026-01-31T12:00:00Z", _moment)

    def texts(self, name: str, default: Any = ..., words: Sequence[str] | None = None) -> Any:
        """A list of texts, or a single one; each once."""
        allowed = "a list of " + ("texts" if words is None else f"some of {', '.join(words)}") + ", each once"

        def read(value: Any) -> tuple[str, ...] | None:
            many = [value] if isinstance(value, str) else value
            if not isinstance(many, list) or not many or not all(isinstance(each, str) and each for each in many):
                return None
            good = len(set(many)) == len(many) and (words is None or all(each in words for each in many))
            return tuple(many) if good else None

        return self._one(name, default, allowed, read)

    def options(self, name: str) -> dict[str, str]:
        """Options for others, as texts: numbers and true or false in their usual form."""
        fields = self.mapping(name)
        return {} if fields is None else {key: fields.option(key) for key in fields.names()}

    def option(self, name: str) -> str:
        value = self.raw(name)
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            self.refuse(name, value, "a text, a number, true or false")
        return str(value)

    # What lies deeper

    def names(self) -> list[str]:
        return list(self._values)

    def mapping(self, name: str) -> Fields | None:
        """The mapping in a field, or None where it is absent; it is to be closed like this one."""
        value = self.raw(name)
        return None if value is None else Fields(self.file, self.place(name), value)

    def mappings(self, name: str, allowed: str = "a list of mappings") -> list[Fields]:
        """The mappings of a list; none where the field is absent."""
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, value, allowed)
        return [Fields(self.file, f"{self.place(name)}[{index}]", each) for index, each in enumerate(value)]


def duration_text(ms: int) -> str:
    """Milliseconds as one writes them: the largest unit that they fill."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _DURATION_MS[unit] == 0:
            return f"{ms // _DURATION_MS[unit]}{unit}"
    return f"{ms}ms"


def _moment(value: Any) -> datetime | None:
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _shown(secret_if: str, text: str) -> str:
    if any(word in secret_if.lower() for word in _SECRETS):
        return "the value (not shown)"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
