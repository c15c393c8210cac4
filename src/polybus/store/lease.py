"""A lease as its holder sees it: until when it may act as the owner, by a clock that nobody moves.

The server that keeps the lease judges by its own clock. The holder measures from before it asked, so its deadline is
never later than the server's, and by a clock that goes on while the machine is suspended: a process that was frozen
finds on its first look that its time is over.
"""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime_ns

from polybus.limits import LEASE_MARGIN_MS


def boot_ns() -> int:
    """The time since the machine was started, with that in which it was suspended."""
    return clock_gettime_ns(CLOCK_BOOTTIME)


class Lease:
    """Written by the thread that renews, read by the loop before it hands anything out."""

    __slots__ = ("_margin_ns", "deadline_ns", "lost")

    def __init__(self) -> None:
        self._margin_ns = LEASE_MARGIN_MS * 1_000_000
        self.deadline_ns = 0
        self.lost = False
        """Another has it, or it cannot be renewed any more."""

    def renewed(self, asked_ns: int, seconds: float) -> None:
        """The server has granted so much from a moment that is not before `asked_ns`."""
        self.deadline_ns = asked_ns + int(seconds * 1_000_000_000)

    @property
    def holds(self) -> bool:
        return not self.lost and boot_ns() < self.deadline_ns - self._margin_ns

    @property
    def left_ms(self) -> int:
        return max(self.deadline_ns - boot_ns(), 0) // 1_000_000
