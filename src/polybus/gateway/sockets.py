"""The sockets of clients: how many there may be, and who goes first when there are too many.

Stores open files when they roll their logs, and one that cannot is fenced; so the highest descriptors of the process
are theirs. The system gives the lowest free one, so a client's socket with a number beyond the clients' share says that
the share is used up. Then, and when too many are there that have not shown who they are, the oldest stranger goes: a
real client shows a token within milliseconds, an attacker's silent sockets are the oldest ones.
"""

from __future__ import annotations

import logging
import resource
import socket

from polybus import limits

log = logging.getLogger(__name__)


class Sockets:
    """Every listener asks `admit` for each new client; protocols say who is `known`."""

    def __init__(self, stores: int = 0) -> None:
        """`stores` is the number of messaging stores, for which descriptors are reserved."""
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        allowed = limits.OPEN_FILES if allowed == resource.RLIM_INFINITY else allowed
        reserved = limits.DESCRIPTORS_RESERVED + stores * limits.STORE_DESCRIPTORS
        self.most = max(allowed - reserved, allowed // 2)
        """The number that no client's descriptor reaches."""
        self._full = False
        self._strangers: dict[int, socket.socket] = {}

    def admit(self, client: socket.socket) -> bool:
        """Whether there is room for this client; where others had to go for it, they are gone."""
        number = client.fileno()
        self._strangers.pop(number, None)  # whoever had that number is gone
        if len(self._strangers) >= limits.STRANGERS:
            self._drop_oldest()
        if number >= self.most:
            dropped = self._drop_oldest()
            self._tell_full()
            # The one that was dropped is closed in the next turn of the loop; until then a few more are there.
            if not dropped or number >= self.most + limits.DESCRIPTORS_IN_TURN:
                return False
        self._strangers[number] = client
        return True

    def _tell_full(self) -> None:
        if not self._full:
            self._full = True
            log.warning("clients use all descriptors that they may: strangers are dropped, the rest is the stores'")

    def known(self, client: socket.socket | None) -> None:
        """The client has shown who it is."""
        if client is not None:
            self._strangers.pop(client.fileno(), None)

    def _drop_oldest(self) -> bool:
        while self._strangers:
            oldest = self._strangers.pop(next(iter(self._strangers)))
            if oldest.fileno() >= 0:
                # Not closed here: the loop still watches it, and its owner hears of the end and closes it.
                try:
                    oldest.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
                return True
        return False
