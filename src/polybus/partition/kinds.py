"""The kinds of logs that a queue or a subscription has, and how a log's id says which one it is."""

from __future__ import annotations

from typing import Final

MAIN: Final = 0
DEAD_LETTER: Final = 1
TRANSFER_DEAD_LETTER: Final = 2
KINDS: Final = 4
"""A log's id is its subscription's number times this, plus its kind."""
NO_FLOOR: Final = 1 << 62
"""No cursor: nothing is kept after it is settled."""
