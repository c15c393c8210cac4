"""What a receiver can decide about a message that it holds, in the words of the bus."""

from __future__ import annotations

from typing import Final

COMPLETE: Final = "complete"
ABANDON: Final = "abandon"
DEFER: Final = "defer"
DEAD_LETTER: Final = "dead-letter"

RETRY_PROPERTY: Final = "polybus-retry-seconds"
"""The property to modify by which a receiver that abandons a message says when it wants it again."""
