"""Bytes of a frame that is not whole yet.

They are gathered in one buffer and handed out once, when enough are there: a peer that sends byte by byte
costs no more copies than one that sends whole frames.
"""

from __future__ import annotations


class Inbox:
    """Unread input, and how much of it must be there before reading makes sense."""

    __slots__ = ("_held", "_needed")

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = 0

    def join(self, data: bytes) -> bytes:
        """All that is unread, `data` last; nothing while there is less than is needed."""
        if not self._held:
            return data
        self._held += data
        return self.take() if len(self._held) >= self._needed else b""

    def take(self) -> bytes:
        """All that is unread, however little."""
        joined = bytes(self._held)
        self._held.clear()
        return joined

    def keep(self, rest: bytes, needed: int) -> None:
        """Puts unread bytes back until there are `needed` of them."""
        self._held += rest
        self._needed = needed
