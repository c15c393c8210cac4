"""What the state of each session can be, from what its holders were told."""

from __future__ import annotations

from polybus.testing.history import FAILED, OK

Where = tuple[str, str]
"""A place and a session."""


class SessionStates:
    def __init__(self) -> None:
        self.findings: list[str] = []
        self._possible: dict[Where, list[bytes | None]] = {}
        self._writing: dict[Where, int] = {}
        self._writes: dict[Where, int] = {}

    def standing(self, where: Where) -> int:
        return self._writes.get(where, 0)

    def begins(self, where: Where, state: bytes | None) -> None:
        self._possible.setdefault(where, [None]).append(state)
        self._writing[where] = self._writing.get(where, 0) + 1
        self._writes[where] = self.standing(where) + 1

    def ends(self, where: Where, state: bytes | None, outcome: str) -> None:
        self._writing[where] -= 1
        possible = self._possible[where]
        if outcome == FAILED:
            possible.remove(state)
        elif outcome == OK and not self._writing[where]:
            self._possible[where] = [state]

    def seen(self, where: Where, state: bytes | None, standing: int) -> None:
        """A holder has read it; `standing` is from before the read."""
        if standing != self.standing(where) or self._writing.get(where, 0):
            return
        possible = self._possible.setdefault(where, [None])
        if state not in possible:
            self.findings.append(f"{where[0]}, session {where[1]}: state {state!r} is none of {possible!r}")
        self._possible[where] = [state]
