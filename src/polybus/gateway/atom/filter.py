"""The `$filter` of a list: which queues, topics or subscriptions are shown (docs/protocol/atom.md#lists).

The legacy management clients and the explorers built on them write it, in a small part of OData:
`startswith(path, 'x') eq true and messageCount gt 10`. A filter is read whole, with bounds, before anything is
listed; what cannot be read is refused, for a list that silently shows everything misleads.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable
from typing import Any

from polybus import limits
from polybus.errors import ArgumentError
from polybus.gateway.atom.documents import RuntimeInfo
from polybus.namespace.entities.description import Description, SubscriptionDescription

Value = str | int | bool
Listed = tuple[Description, RuntimeInfo]
Filter = Callable[[Description, RuntimeInfo], bool]
_Test = Callable[[Listed], bool]
_Read = Callable[[Listed], Value]

_TOKEN = re.compile(
    r"\s*(?:(?P<string>(?:datetime)?'(?:[^']|'')*')|(?P<number>-?[0-9]{1,18})|(?P<word>[A-Za-z]+)|(?P<sign>[(),]))",
    re.IGNORECASE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}


def _path(listed: Listed) -> Value:
    described = listed[0]
    return (described.name if isinstance(described, SubscriptionDescription) else described.path).lower()


_FIELDS: dict[str, _Read] = {
    "path": _path,
    "name": _path,
    "messagecount": lambda listed: listed[1].message_count,
    "sizeinbytes": lambda listed: listed[1].size_bytes,
    "status": lambda listed: listed[0].status.value.lower(),
    "createdat": lambda listed: listed[0].created_at_ms,
    "updatedat": lambda listed: listed[0].updated_at_ms,
    "modifiedat": lambda listed: listed[0].updated_at_ms,
    "accessedat": lambda listed: listed[1].accessed_at_ms or 0,
}
_TIMES = ("createdat", "updatedat", "modifiedat", "accessedat")
_TEXTS = ("path", "name", "status")


def parse_filter(text: str | None) -> Filter | None:
    """What a `$filter` keeps; None where there is none. ArgumentError where it cannot be read."""
    if text is None or not text.strip():
        return None
    if len(text) > limits.HTTP_FILTER_CHARACTERS:
        raise ArgumentError(f"The parameter $filter has more than {limits.HTTP_FILTER_CHARACTERS} characters.")
    test = _FilterParser(text).whole()
    return lambda description, info: test((description, info))


class _FilterParser:
    """Reads a filter from left to right; `or` binds less than `and`, `and` less than `not`."""

    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> _Test:
        test = self._either()
        if self._at < len(self._words):
            raise _unreadable(self._words[self._at])
        return test

    def _peek(self) -> str:
        return self._words[self._at].lower() if self._at < len(self._words) else ""

    def _take(self, *expected: str) -> str:
        if self._at == len(self._words):
            raise ArgumentError("The parameter $filter ends too early.")
        word = self._words[self._at]
        if expected and word.lower() not in expected:
            raise _unreadable(word)
        self._at += 1
        return word

    def _either(self) -> _Test:
        tests = [self._both()]
        while self._peek() == "or":
            self._take()
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda listed: any(test(listed) for test in tests)

    def _both(self) -> _Test:
        tests = [self._one()]
        while self._peek() == "and":
            self._take()
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda listed: all(test(listed) for test in tests)

    def _one(self) -> _Test:
        self._depth += 1
        if self._depth > limits.HTTP_FILTER_DEPTH:
            raise ArgumentError("The parameter $filter is nested too deeply.")
        try:
            if self._peek() == "not":
                self._take()
                test = self._one()
                return lambda listed: not test(listed)
            if self._peek() == "(":
                self._take()
                test = self._either()
                self._take(")")
                return test
            return self._starts_with() if self._peek() == "startswith" else self._comparison()
        finally:
            self._depth -= 1

    def _starts_with(self) -> _Test:
        self._take()
        self._take("(")
        read = _FIELDS[self._take("path", "name").lower()]
        self._take(",")
        prefix = _string(self._take()).lower()
        self._take(")")
        wanted = True
        if self._peek() in ("eq", "ne"):
            equal = self._take().lower() == "eq"
            wanted = (self._take("true", "false").lower() == "true") is equal
        return lambda listed: str(read(listed)).startswith(prefix) is wanted

    def _comparison(self) -> _Test:
        field = self._take(*_FIELDS).lower()
        read, compare = _FIELDS[field], _COMPARISONS[self._take(*_COMPARISONS).lower()]
        value = _literal(field, self._take())
        return lambda listed: compare(read(listed), value)


def _words(text: str) -> list[str]:
    words, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text[at:].strip())
        words.append(match[match.lastgroup or 0])
        at = match.end()
    return words


def _literal(field: str, word: str) -> Value:
    """A value of the kind that the field has."""
    if field in _TIMES:
        return _time_ms(_string(word))
    if field in _TEXTS:
        return _string(word).lower()
    try:
        return int(word)
    except ValueError:
        raise _unreadable(word) from None


def _string(word: str) -> str:
    start = word.find("'")
    if start < 0:
        raise _unreadable(word)
    return word[start + 1 : -1].replace("''", "'")


def _time_ms(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise _unreadable(text) from None


def _unreadable(word: str) -> ArgumentError:
    return ArgumentError(f"The parameter $filter cannot be read at {word[:40]!a}.")
