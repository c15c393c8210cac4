"""Dead letters on their way back: in batches, at a pace, each told with what became of it.

The bus takes a letter out of its dead-letter queue and puts its copy on the way in one batch of one store: there is no
moment at which a letter is in neither place or in both. So a run that is killed anywhere, or whose answer is lost, is
simply done again: what was moved is missing then, and what was not is still there. Nothing here knows Spark or files;
the clock is passed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Protocol

from polybus.errors import BusError, EntityNotFound, ServerBusy, Unauthorized
from polybus.limits import MOVE_NUMBERS, REDRIVE_REQUEST_BYTES, REDRIVE_SILENCES

MOVED: Final = "moved"
MISSING: Final = "missing"
LOCKED: Final = "locked"
UNREACHABLE: Final = "unreachable"
REFUSED: Final = "refused"
PLANNED: Final = "planned"
OUTCOMES: Final = (MOVED, MISSING, LOCKED, UNREACHABLE, REFUSED, PLANNED)


@dataclass(frozen=True)
class Letter:
    """One dead letter that is to go somewhere."""

    number: int
    to: str
    edit: dict[str, Any] = field(default_factory=dict)
    """What is altered on the way, as the bus takes it."""
    fault: str | None = None
    """Why it cannot go at all."""


@dataclass(frozen=True)
class ResubmitOutcome:
    letter: Letter
    what: str
    detail: str | None = None


class Mover(Protocol):
    """The bulk API of the dead-letter queue."""

    def move(self, body: dict[str, Any]) -> dict[str, list[int]]: ...


class SendRate:
    """So many letters a second, and no more than one second's worth at once."""

    def __init__(self, rate: float | None, now: Callable[[], float], wait: Callable[[float], bool]) -> None:
        """`wait` waits so many seconds and says whether everything is to end."""
        self.burst = MOVE_NUMBERS if rate is None else max(min(int(rate), MOVE_NUMBERS), 1)
        self._rate = rate
        self._now = now
        self._wait = wait
        self._tokens = float(self.burst)
        self._counted_at = now()

    def take(self, count: int) -> bool:
        """Returns when so many may go; false where everything is to end instead."""
        assert count <= self.burst, "more at once than the pace allows"
        if self._rate is None:
            return not self._wait(0)
        while True:
            now = self._now()
            self._tokens = min(self._tokens + (now - self._counted_at) * self._rate, self.burst)
            self._counted_at = now
            missing = count - self._tokens
            # Fractions of a token come of arithmetic, not of letters.
            if missing > 1e-9:
                if self._wait(missing / self._rate):
                    return False
                continue
            self._tokens -= count
            return not self._wait(0)


def batches(letters: Iterable[Letter], most: int) -> Iterator[list[Letter]]:
    """Letters for one destination each, as many at once as a request may have."""
    gathered: list[Letter] = []
    size = 0
    for letter in letters:
        own = len(json.dumps(letter.edit)) + 40
        if gathered and (len(gathered) >= most or size + own > REDRIVE_REQUEST_BYTES):
            yield from _by_destination(gathered)
            gathered, size = [], 0
        gathered.append(letter)
        size += own
    yield from _by_destination(gathered)


def _by_destination(letters: list[Letter]) -> Iterator[list[Letter]]:
    # Sorting keeps the order of those for one destination, and so that of a session.
    for _, group in groupby(sorted(letters, key=lambda letter: letter.to), key=lambda letter: letter.to):
        yield list(group)


class Resubmission:
    """Moves letters; those that stay where they are come out with the reason."""

    def __init__(self, bus: Mover, pace: SendRate) -> None:
        self._bus = bus
        self._pace = pace
        self._silences = 0

    def run(self, letters: Iterable[Letter]) -> Iterator[ResubmitOutcome]:
        """Ends early where everything is to end; what has no outcome then was not touched."""
        for batch in batches(letters, self._pace.burst):
            going = [letter for letter in batch if letter.fault is None]
            yield from (
                ResubmitOutcome(letter, REFUSED, letter.fault) for letter in batch if letter.fault is not None
            )
            if going:
                if not self._pace.take(len(going)):
                    return
                yield from self._move(going)

    def _move(self, letters: list[Letter]) -> list[ResubmitOutcome]:
        """One request; more where the bus refuses, to find the letter that it is about."""
        try:
            told = self._bus.move(_request(letters))
        except Unauthorized:
            raise
        except ServerBusy as error:
            return self._unreachable(letters, str(error))
        except BusError as error:
            if len(letters) == 1 or isinstance(error, EntityNotFound):
                return [ResubmitOutcome(letter, REFUSED, str(error)) for letter in letters]
            middle = len(letters) // 2
            return self._move(letters[:middle]) + self._move(letters[middle:])
        self._silences = 0
        return self._told(letters, told)

    def _told(self, letters: list[Letter], told: dict[str, list[int]]) -> list[ResubmitOutcome]:
        found = {number: what for what in (MOVED, MISSING, LOCKED) for number in told[what]}
        outcomes = [ResubmitOutcome(letter, found[letter.number]) for letter in letters if letter.number in found]
        # Where some were moved, the bus tells partitions that failed only by number: asked alone, they say why.
        left = [letter for letter in letters if letter.number not in found]
        return outcomes + (self._move(left) if left and len(left) < len(letters) else [_lost(each) for each in left])

    def _unreachable(self, letters: list[Letter], why: str) -> list[ResubmitOutcome]:
        """A store may be away for a while, and others go on; a bus that stays silent ends the run."""
        self._silences += 1
        if self._silences >= REDRIVE_SILENCES:
            raise ServerBusy(why)
        return [ResubmitOutcome(letter, UNREACHABLE, why) for letter in letters]


def _lost(letter: Letter) -> ResubmitOutcome:
    return ResubmitOutcome(letter, UNREACHABLE, "its partition cannot be reached now")


def _request(letters: list[Letter]) -> dict[str, Any]:
    return {
        "numbers": [letter.number for letter in letters],
        "to": letters[0].to,
        "edits": {str(letter.number): letter.edit for letter in letters if letter.edit},
    }
