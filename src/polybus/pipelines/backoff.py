"""How long to wait before a pipeline that failed is started again. Pure: random numbers are passed in."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

ATTEMPTS_ONCE: Final = 3
"""Attempts of a run with --once where the file sets no number: a scheduler would rather hear of it."""


@dataclass(frozen=True)
class Restart:
    """The file's `restart`."""

    first_ms: int = 1_000
    most_ms: int = 300_000
    attempts: int = 0
    """Failures in a row after which a pipeline is given up; 0: never, with --once after three."""

    def given_up(self, failures: int, once: bool) -> bool:
        limit = self.attempts or (ATTEMPTS_ONCE if once else 0)
        return bool(limit) and failures >= limit


def pause_ms(restart: Restart, failures: int, rng: random.Random) -> int:
    """The pause after so many failures in a row: doubled each time up to the bound, then between half and all of it.

    The jitter keeps pipelines that fell together from rising together, again and again.
    """
    assert failures >= 1
    bound = min(restart.first_ms << min(failures - 1, 40), restart.most_ms)
    return round(bound * (0.5 + rng.random() / 2))
