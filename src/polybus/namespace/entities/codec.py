"""Descriptions and rules as plain, JSON-able dictionaries: how the catalogue keeps them.

The format has a version. A newer minor version may add keys, which are ignored here, and a missing key gets
its default; another major version is refused. Whatever does not fit its type is a corrupt record.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from polybus.errors import StoreCorrupt, StoreVersionMismatch
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    Description,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    FilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.typed_value import TypedValue

VERSION = "1.0"

Described = Description | RuleDescription
_CLASSES: dict[str, type[Described]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
    "subscription": SubscriptionDescription,
    "rule": RuleDescription,
}
_KINDS = {cls: kind for kind, cls in _CLASSES.items()}


def to_dict(described: Described) -> dict[str, Any]:
    """The dictionary that `from_dict` turns back into an equal description."""
    return {"version": VERSION, "kind": _KINDS[type(described)], **_fields_to_dict(described)}


def from_dict(data: Mapping[str, Any]) -> Described:
    """The description in a dictionary; StoreVersionMismatch or StoreCorrupt if it is not one of ours."""
    version = data.get("version")
    if not isinstance(version, str) or version.split(".")[0] != VERSION.split(".")[0]:
        raise StoreVersionMismatch(f"a description of version {version!r} cannot be read, only {VERSION}")
    kind = data.get("kind")
    cls = _CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise StoreCorrupt(f"a description is of unknown kind {kind!r}")
    described: Described = _read(cls, data)
    return described


def authorization_rule_to_dict(rule: AuthorizationRule) -> dict[str, Any]:
    """For the namespace's own rules, which belong to no entity."""
    return _fields_to_dict(rule)


def authorization_rule_from_dict(data: Mapping[str, Any]) -> AuthorizationRule:
    rule: AuthorizationRule = _read(AuthorizationRule, data)
    return rule


def _fields_to_dict(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, TypedValue):
        return [value.type, value.text]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, CorrelationFilterDescription):
        return {"kind": value.kind.value, **_fields_to_dict(value)}
    if dataclasses.is_dataclass(value):
        return _fields_to_dict(value)
    return value


def _read(cls: type[Any], data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise StoreCorrupt(f"a {cls.__name__} is kept as {type(data).__name__}")
    try:
        known = (field for field in dataclasses.fields(cls) if field.name in data)
        return cls(**{field.name: _READERS[str(field.type)](data[field.name]) for field in known})
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(f"a {cls.__name__} cannot be read: {error}") from error


def _exactly(kind: type[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"a {kind.__name__} is kept as {type(value).__name__}")
        return value

    return read


def _optional(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else reader(value)


def _tuple_of(reader: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: tuple(reader(item) for item in _exactly(list)(value))


def _typed_values(value: Any) -> TypedValues:
    pairs = _tuple_of(_exactly(list))(value)
    return tuple((_text(key), TypedValue(_text(type_name), _text(text))) for key, (type_name, text) in pairs)


def _filter(value: Any) -> FilterDescription:
    kind = FilterKind(_exactly(dict)(value)["kind"]) if "kind" in value else FilterKind.SQL
    filter_: FilterDescription = _read(
        CorrelationFilterDescription if kind is FilterKind.CORRELATION else SqlFilterDescription, value
    )
    return filter_


_text = _exactly(str)
_READERS: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "str | None": _optional(_text),
    "int": _exactly(int),
    "int | None": _optional(_exactly(int)),
    "bool": _exactly(bool),
    "bool | None": _optional(_exactly(bool)),
    "EntityStatus": EntityStatus,
    "FilterKind": FilterKind,
    "FilterDescription": _filter,
    "SqlActionDescription | None": _optional(lambda value: _read(SqlActionDescription, value)),
    "TypedValues": _typed_values,
    "tuple[AccessRight, ...]": _tuple_of(AccessRight),
    "tuple[AuthorizationRule, ...]": _tuple_of(lambda value: _read(AuthorizationRule, value)),
}
