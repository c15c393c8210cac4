"""What the rules of the churning subscription are, as far as anybody outside the bus can know.

While a change is under way, or its outcome is unknown, nobody can say whether a message passes; otherwise everybody
can. A send is judged by the rules only where they stood still from its beginning to its end.
"""

from __future__ import annotations

from polybus.testing.history import FAILED, OK, UNKNOWN


class RulesModel:
    def __init__(self, colours: tuple[str, ...]) -> None:
        self.known: dict[str, None] = dict.fromkeys(colours)
        """The colours that pass, by rules of their own."""
        self._changes = 0
        self._under_way = 0
        self._doubtful = False

    def standing(self) -> object:
        """What to show to `verdict` when the send has ended."""
        return self._changes

    def verdict(self, standing: object, colour: str) -> str:
        """Whether a message of the colour passed: ok, failed, or unknown."""
        if standing != self._changes or self._under_way or self._doubtful:
            return UNKNOWN
        return OK if colour in self.known else FAILED

    def begins(self) -> None:
        self._changes += 1
        self._under_way += 1

    def ends(self, outcome: str) -> None:
        self._changes += 1
        self._under_way -= 1
        if outcome == UNKNOWN:
            self._doubtful = True

    def learned(self, colours: list[str]) -> None:
        """The bus was asked for its rules while nothing was under way."""
        self._changes += 1
        self.known = dict.fromkeys(colours)
        self._doubtful = False
