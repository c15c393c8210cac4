"""The order of a log: no two messages share a place, and positions grow with ranks, at most as fast.

Range reads rely on it: they guess a rank from a position and must never guess too far.
"""

from __future__ import annotations

from array import array


class LogOrder:
    """Fed with the active rows of a log in order of rank, it fits the deferred messages in between."""

    def __init__(self, base: int, by_position: bool) -> None:
        self._by_position = by_position
        self._rank = 0 if by_position else base
        self._position = 0
        self._ranks: array[int] = array("Q")
        self._positions: array[int] = array("Q")
        self._at = 0

    def expect(self, ranks: array[int], positions: array[int]) -> None:
        """The deferred messages, in order of their numbers."""
        if self._by_position:
            ranks = positions = array("Q", sorted(positions))
        self._ranks, self._positions = ranks, positions

    def step(self, rank: int, position: int, settled: bool) -> list[str]:
        """The next active row; gives what is wrong with it or with the deferred ones before it."""
        problems: list[str] = []
        self._fit_deferred(rank, problems)
        if self._at < len(self._ranks) and self._ranks[self._at] == rank:
            # A message that was deferred while a cursor keeps its row has both, with one position.
            if not settled or self._positions[self._at] != position:
                problems.append(f"the message {rank} is active and deferred at once")
            self._at += 1
        self._advance(rank, position, problems)
        return problems

    def finish(self) -> list[str]:
        problems: list[str] = []
        self._fit_deferred(1 << 64, problems)
        return problems

    def _fit_deferred(self, rank: int, problems: list[str]) -> None:
        while self._at < len(self._ranks) and self._ranks[self._at] < rank:
            self._advance(self._ranks[self._at], self._positions[self._at], problems)
            self._at += 1

    def _advance(self, rank: int, position: int, problems: list[str]) -> None:
        grown = position - self._position
        if not 0 < grown <= rank - self._rank:
            problems.append(
                f"the message {rank} has position {position}, the one before it, {self._rank}, {self._position}"
            )
        self._rank, self._position = rank, position
