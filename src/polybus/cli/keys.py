"""Where the keys of a bus come from: the command line, files, the environment.

Every user of a machine sees the command lines of all processes, so keys that count come from a file or from the
environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from polybus.errors import ConfigError
from polybus.namespace.entities.description import AuthorizationRule
from polybus.namespace.entities.keys import parse_key
from polybus.store.permissions import warn_of_readers

VARIABLE_PREFIX = "POLYBUS_KEY_"


def gather_keys(
    given: Sequence[str], files: Sequence[Path], environment: Mapping[str, str]
) -> list[AuthorizationRule]:
    """All keys of one start. A name that comes twice is a mistake: which of its keys counts would be chance."""
    rules = [parse_key(text) for text in given]
    for path in files:
        rules += _of_file(path)
    rules += _of_environment(environment)
    seen: set[str] = set()
    for rule in rules:
        if rule.key_name in seen:
            raise ConfigError(f"the key {rule.key_name!r} is given twice")
        seen.add(rule.key_name)
    return rules


def key_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment says of keys, and nothing else of it."""
    return {name: value for name, value in environment.items() if name.startswith(VARIABLE_PREFIX)}


def _of_file(path: Path) -> Iterator[AuthorizationRule]:
    """One key on a line; blank lines and lines that begin with # do not count. No error repeats a line: it is a key."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file of keys") from None
    warn_of_readers(path)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield parse_key(line.strip())
            except ConfigError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from None


def _of_environment(environment: Mapping[str, str]) -> Iterator[AuthorizationRule]:
    for name, value in sorted(environment.items()):
        if name.startswith(VARIABLE_PREFIX) and name != VARIABLE_PREFIX:
            try:
                yield parse_key(f"{name.removeprefix(VARIABLE_PREFIX)}={value}")
            except ConfigError:
                raise ConfigError(f"{name} is not KEY or KEY:Send,Listen,Manage") from None
