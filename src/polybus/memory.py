"""What the process does about its memory: when the collector looks, and giving back what is free.

Reference counts free almost everything at once; the collector is for cycles, and those that hold a peer's bytes are cut
when the peer is gone. What is free stays with the C library, though, which keeps it for later: after a burst of large
messages that would be the burst's peak for as long as the process lives.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable

from polybus.limits import MEMORY_RETURN_SECONDS

YOUNG_OBJECTS = 20_000
"""Objects made before the collector looks for cycles. Messages under way are thousands of objects without one: at
Python's 700 looking through them again and again took a tenth of the server's CPU (perf, 1 KiB, in memory)."""


def settle_memory() -> None:
    """For a server that has just started: what is there now stays, and is not looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)


async def return_memory(ended: Callable[[], int]) -> None:
    """Gives free memory back to the system, now and then, where connections have `ended` since the last time."""
    trim = _trim()
    seen = ended()
    while trim is not None:
        await asyncio.sleep(MEMORY_RETURN_SECONDS)
        now = ended()
        if now != seen:
            seen = now
            await asyncio.to_thread(trim, 0)


def _trim() -> Callable[[int], int] | None:
    """The C library's own function for it, where it has one (glibc)."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found
