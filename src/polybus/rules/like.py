"""LIKE: `%` is any run of characters, `_` is one, an escape character makes the next one plain.

A pattern is cut at its `%` into segments. The first must stand at the text's beginning, the last at its end,
and each one between at the leftmost place behind its forerunner: taking the leftmost never spoils a match, so
nothing is ever tried again and the time is linear in the text, whatever the pattern. A segment without `_` is
found by `str.find`; one with `_` by the Shift-And method, which keeps all its partial matches as the bits of
one integer.
"""

from __future__ import annotations


class LikePattern:
    """A compiled pattern; `escape` is one character, or empty for none."""

    def __init__(self, pattern: str, escape: str = "", ignore_case: bool = False) -> None:
        segments = _segments(pattern.lower(), escape.lower()) if ignore_case else _segments(pattern, escape)
        self._ignore_case = ignore_case
        self._shortest = sum(segment.length for segment in segments)
        self._exact = len(segments) == 1
        self._head = segments[0]
        self._tail = segments[-1]
        self._middle = [segment for segment in segments[1:-1] if segment.length]
        self._walks = any(not segment.plain for segment in self._middle)

    def steps(self, text: str) -> int:
        """What a match against this text costs, at most, as rules count it: Shift-And takes a step a character."""
        walked = len(text) if self._walks else len(text) >> 8
        return walked + (len(text) >> 5) if self._ignore_case else walked

    def matches(self, text: str) -> bool:
        if self._ignore_case:
            text = text.lower()
        spare = len(text) - self._shortest
        if spare < 0 or (self._exact and spare > 0):
            return False
        end = len(text) - self._tail.length
        if not self._head.stands_at(text, 0) or not self._tail.stands_at(text, end):
            return False
        at = self._head.length
        for segment in self._middle:
            at = segment.end_of_first(text, at, end)
            if at < 0:
                return False
        return True


class Segment:
    """Consecutive characters of a pattern; None among them is `_`."""

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        self.plain = None not in characters
        self._text = "".join(character or "" for character in characters)
        self._fixed = [(at, character) for at, character in enumerate(characters) if character is not None]
        # Shift-And: bit i of a character's mask says that it may stand at place i of the segment.
        self._anything = sum(1 << at for at, character in enumerate(characters) if character is None)
        self.masks: dict[str, int] = {}
        for at, character in self._fixed:
            self.masks[character] = self.masks.get(character, self._anything) | 1 << at

    def stands_at(self, text: str, position: int) -> bool:
        """The caller has made sure that the text is long enough."""
        if self.plain:
            return text.startswith(self._text, position)
        return all(text[position + at] == character for at, character in self._fixed)

    def end_of_first(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence between `start` and `end` ends, or -1."""
        if not self.plain:
            return self._shift_and(text, start, end)
        found = text.find(self._text, start, end)
        return -1 if found < 0 else found + self.length

    def _shift_and(self, text: str, start: int, end: int) -> int:
        goal = 1 << (self.length - 1)
        state = 0
        for at in range(start, end):
            state = (state << 1 | 1) & self.masks.get(text[at], self._anything)
            if state & goal:
                return at + 1
        return -1


def _segments(pattern: str, escape: str) -> list[Segment]:
    """The segments between the `%`: one more than there are `%`. An escape at the very end is itself."""
    segments: list[Segment] = []
    characters: list[str | None] = []
    plain = False
    for at, character in enumerate(pattern):
        if plain:
            characters.append(character)
            plain = False
        elif character == escape and at + 1 < len(pattern):
            plain = True
        elif character == "%":
            segments.append(Segment(characters))
            characters = []
        else:
            characters.append(None if character == "_" else character)
    segments.append(Segment(characters))
    return segments
