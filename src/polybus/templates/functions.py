"""The functions that expressions of Service Bus templates use, but for those that look into the template itself.

Their names are compared without regard to case, as the resource manager does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from typing import Any

from polybus.errors import TemplateError

_GUIDS = uuid.UUID("11fb06fb-712d-4ddd-98c7-e71bbd588830")


def _concat(*values: Any) -> Any:
    if values and all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return "".join(text(value) for value in values)


def text(value: Any) -> str:
    """A value inside of a text."""
    if isinstance(value, bool):
        return "True" if value else "False"
    return json.dumps(value) if isinstance(value, dict | list) else "" if value is None else str(value)


def _format(form: str, *values: Any) -> str:
    return re.sub(r"\{(\d+)(?::[^}]*)?\}", lambda found: text(values[int(found.group(1))]), form)


def _contains(where: Any, what: Any) -> bool:
    if isinstance(where, dict):
        return any(key.lower() == str(what).lower() for key in where)
    return text(what) in where if isinstance(where, str) else what in where


def _union(*values: Any) -> Any:
    if isinstance(values[0], dict):
        merged: dict[str, Any] = {}
        for value in values:
            for key, item in value.items():
                both = isinstance(item, dict) and isinstance(merged.get(key), dict)
                merged[key] = _union(merged[key], item) if both else item
        return merged
    found: list[Any] = []
    for value in values:
        found += [item for item in value if item not in found]
    return found


def _intersection(*values: Any) -> Any:
    first, *others = values
    if isinstance(first, dict):
        return {key: item for key, item in first.items() if all(other.get(key) == item for other in others)}
    return [item for item in first if all(item in other for other in others)]


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() in ("true", "1"):
            return True
        if value.lower() in ("false", "0"):
            return False
        raise TemplateError(f"bool({value[:60]!r}): it is neither true nor false")
    return bool(value)


def _substring(value: str, start: int, length: int | None = None) -> str:
    end = len(value) if length is None else start + length
    if not 0 <= start <= end <= len(value):
        raise TemplateError(f"substring({value[:60]!r}, {start}, {length}) is outside of the text")
    return value[start:end]


def _split(value: str, marks: str | list[str]) -> list[str]:
    marks = [marks] if isinstance(marks, str) else marks
    return re.split("|".join(re.escape(mark) for mark in marks), value)


def _unique(*values: Any) -> str:
    """Thirteen letters and digits that follow from the values; they are not those that the cloud would choose."""
    digest = hashlib.sha256("\0".join(text(value) for value in values).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:13]


def _equals(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _object(*pairs: Any) -> dict[str, Any]:
    if len(pairs) % 2:
        raise TemplateError("createObject() takes names and values in pairs")
    return {str(name): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _divide(one: int, other: int) -> int:
    if other == 0:
        raise TemplateError("div(): by zero")
    return int(one / other)


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise TemplateError("mod(): by zero")
    return one - other * _divide(one, other)


def _most(*values: Any) -> Any:
    return max(values[0] if isinstance(values[0], list) else values)


def _least(*values: Any) -> Any:
    return min(values[0] if isinstance(values[0], list) else values)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    # Texts
    "concat": _concat,
    "format": _format,
    "tolower": lambda value: value.lower(),
    "toupper": lambda value: value.upper(),
    "trim": lambda value: value.strip(),
    "replace": lambda value, old, new: value.replace(old, new),
    "split": _split,
    "join": lambda values, mark: mark.join(text(value) for value in values),
    "substring": _substring,
    "startswith": lambda value, start: value.lower().startswith(start.lower()),
    "endswith": lambda value, end: value.lower().endswith(end.lower()),
    "indexof": lambda value, part: value.lower().find(part.lower()) if isinstance(value, str) else value.index(part),
    "lastindexof": lambda value, part: value.lower().rfind(part.lower()),
    "padleft": lambda value, width, mark=" ": text(value).rjust(width, mark),
    "string": lambda value: value if isinstance(value, str) else text(value),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64tostring": lambda value: base64.b64decode(value).decode(),
    "uniquestring": _unique,
    "guid": lambda *values: str(uuid.uuid5(_GUIDS, "-".join(text(value) for value in values))),
    "uri": lambda base, rest: base.rstrip("/") + "/" + rest.lstrip("/"),
    # Lists and objects
    "length": len,
    "empty": lambda value: value is None or len(value) == 0,
    "contains": _contains,
    "first": lambda value: value[0] if len(value) else ("" if isinstance(value, str) else None),
    "last": lambda value: value[-1] if len(value) else ("" if isinstance(value, str) else None),
    "take": lambda value, count: value[: max(count, 0)],
    "skip": lambda value, count: value[max(count, 0) :],
    "range": lambda start, count: list(range(start, start + count)),
    "array": lambda value: value if isinstance(value, list) else [value],
    "createarray": lambda *values: list(values),
    "createobject": _object,
    "union": _union,
    "intersection": _intersection,
    "flatten": lambda values: [item for value in values for item in value],
    "objectkeys": lambda value: sorted(value),
    "items": lambda value: [{"key": key, "value": value[key]} for key in sorted(value)],
    "json": json.loads,
    # Truth
    "equals": _equals,
    "and": lambda *values: all(_boolean(value) for value in values),
    "or": lambda *values: any(_boolean(value) for value in values),
    "not": lambda value: not _boolean(value),
    "bool": _boolean,
    "true": lambda: True,
    "false": lambda: False,
    "null": lambda: None,
    "coalesce": _coalesce,
    "less": lambda one, other: one < other,
    "lessorequals": lambda one, other: one <= other,
    "greater": lambda one, other: one > other,
    "greaterorequals": lambda one, other: one >= other,
    # Numbers
    "int": int,
    "add": lambda one, other: one + other,
    "sub": lambda one, other: one - other,
    "mul": lambda one, other: one * other,
    "div": _divide,
    "mod": _remainder,
    "min": _least,
    "max": _most,
}
