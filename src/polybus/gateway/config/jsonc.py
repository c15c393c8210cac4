"""JSON as people write it: with comments, trailing commas and a byte order mark, and with keys in any case.

The text is cleaned first, every character staying in its place, and then read by the standard library; so an
error of either step has the line and the column of the user's own file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from polybus import limits
from polybus.errors import ConfigError

_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\\r\n]|\\.)*+(?P<quote>")?)|(?P<line>//[^\r\n]*)|(?P<block>/\*.*?(?:\*/|\Z))'
    r'|(?P<comma>,)|(?P<open>[{\[])|(?P<close>[}\]])|(?P<other>[^\s",/{}\[\]]+|/)',
    re.DOTALL,
)
_NOT_BREAK = re.compile(r"[^\r\n]")


class JsonObject:
    """A JSON object whose keys are found in any case. It remembers the user's spelling for messages."""

    __slots__ = ("members", "pairs", "repeated")

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs
        self.members = {key.lower(): (key, value) for key, value in pairs}
        self.repeated: str | None = None
        if len(self.members) != len(pairs):
            counts = Counter(key.lower() for key, _ in pairs)
            self.repeated = next(key for key, _ in pairs if counts[key.lower()] > 1)


def read_jsonc(text: str, source: str) -> Any:
    """The value of a document, objects as Tables; ConfigError with line and column if it is none."""
    if len(text) > limits.CONFIG_FILE_CHARACTERS:
        raise ConfigError(f"{source}: the file has more than {limits.CONFIG_FILE_CHARACTERS} characters")
    clean = _cleaned(text.removeprefix("\ufeff"), source)
    try:
        return json.loads(clean, object_pairs_hook=JsonObject, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:
        # Raised for NaN and for numbers with thousands of digits; neither says where it stands.
        raise ConfigError(f"{source}: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _cleaned(text: str, source: str) -> str:
    """The text with comments and trailing commas turned into spaces."""
    blanks: list[tuple[int, int]] = []
    comma: int | None = None
    before: str | None = "open"
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind in ("line", "block"):
            _check_comment(match, source)
            blanks.append(match.span())
            continue
        if kind == "close" and comma is not None:
            blanks.append((comma, comma + 1))
        # A comma is one too many only after a value; elsewhere it stays, and the reader complains about it.
        comma = match.start() if kind == "comma" and before not in ("open", "comma") else None
        before = kind
        depth += (kind == "open") - (kind == "close")
        _check_token(match, depth, source)
    return _blanked(text, sorted(blanks))


def _blanked(text: str, blanks: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    last = 0
    for start, end in blanks:
        pieces += (text[last:start], _NOT_BREAK.sub(" ", text[start:end]))
        last = end
    return "".join((*pieces, text[last:]))


def _check_comment(match: re.Match[str], source: str) -> None:
    block = match["block"]
    if block is not None and (len(block) < 4 or not block.endswith("*/")):
        raise ConfigError(f"{source}: {_place(match)}: the comment has no end")


def _check_token(match: re.Match[str], depth: int, source: str) -> None:
    if depth > limits.CONFIG_FILE_DEPTH:
        raise ConfigError(f"{source}: {_place(match)}: more than {limits.CONFIG_FILE_DEPTH} levels")
    if match["string"] is not None and match["quote"] is None:
        raise ConfigError(f"{source}: {_place(match)}: the string has no end")


def _place(match: re.Match[str]) -> str:
    before = match.string[: match.start()]
    return f"line {before.count(chr(10)) + 1}, column {match.start() - before.rfind(chr(10))}"
