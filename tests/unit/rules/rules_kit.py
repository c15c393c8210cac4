"""What the tests of the rules share: a message that is nothing but its properties, and ids that count."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from polybus.rules import SqlFilter, Value

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOME_ID = UUID("8c2a4f0e-7a0e-4d0c-9a56-0f9d4e5b8a11")


class Message:
    """A view over two dictionaries; counts how often each system property is asked for."""

    def __init__(self, user: Mapping[str, Value] | None = None, **system: Value) -> None:
        self._user = dict(user or {})
        self._system = system
        self.asked: list[str] = []

    def system(self, name: str) -> Value:
        self.asked.append(name)
        return self._system.get(name)

    def user(self) -> dict[str, Value]:
        return self._user


class Ids:
    """A source of ids that counts from 1."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> UUID:
        self.taken += 1
        return UUID(int=self.taken)


def truth(expression: str, user: Mapping[str, Value] | None = None, **system: Value) -> bool | None:
    return SqlFilter(expression).truth(Message(user, **system), Ids())
