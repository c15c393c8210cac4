"""A node's heartbeat in its cluster, and what it sees of the others, on a thread of its own.

The database is asked from here alone, so that a server that does not answer holds up nothing else. What is seen goes to
the loop as a whole. What the loop wants done is put in line and done between two looks.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from polybus.errors import StoreError
from polybus.limits import NODE_LOOK_SECONDS, POSTGRES_LEASE_SECONDS, POSTGRES_RENEW_SECONDS
from polybus.store.cluster_database import ClusterDatabase
from polybus.store.cluster_rows import ClusterView, Owned

log = logging.getLogger(__name__)

Wish = Callable[[ClusterDatabase], None]


class NodeLoop(Protocol):
    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object: ...


@dataclass(frozen=True)
class Standing:
    """What a node says of itself with each heartbeat."""

    owned: list[Owned]
    clients: list[str]


class Heartbeat:
    def __init__(
        self, database: ClusterDatabase, name: str, process: str, loop: NodeLoop, seen: Callable[[ClusterView], None]
    ) -> None:
        """`seen` is called on the loop with each look."""
        self.name = name
        self.process = process
        self.lost = False
        """Another has the name: this node is a member no more."""
        self.problem: str | None = None
        """Why the database could not be asked at the last look."""
        self.standing: Callable[[], Standing] = lambda: Standing([], [])
        """Called from the thread."""
        self._database = database
        self._loop = loop
        self._seen = seen
        self._wishes: queue.SimpleQueue[Wish] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._living: frozenset[str] = frozenset()
        self._grace_until_s = 0.0
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._due_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"membership of {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wish(self, wish: Wish) -> None:
        """Does something with the database at the next occasion; it is not done again where that fails."""
        self._wishes.put(wish)
        self.touch()

    def touch(self) -> None:
        """Tells the others at once what has changed here."""
        self._due_s = 0.0
        with suppress(BlockingIOError):
            self._wake.send(b".")

    def stop(self) -> None:
        """Gives the name back; called when nothing is owned any more."""
        self._ended.set()
        self.touch()
        self._thread.join(POSTGRES_LEASE_SECONDS)
        if not self._thread.is_alive():
            with suppress(StoreError):
                self._do_wishes()
                if not self.lost:
                    self._database.leave(self.name, self.process)
            self._database.close()
            self._woken.close()
            self._wake.close()

    # The thread

    def _run(self) -> None:
        while not self._ended.is_set() and not self.lost:
            try:
                if time.monotonic() >= self._due_s:
                    early = self._due_s == 0.0
                    self._due_s = time.monotonic() + POSTGRES_RENEW_SECONDS
                    self._beat()
                    if early:
                        self._database.tell()
                self._do_wishes()  # after the others can know what this node has: some rely on it
                self._look()
                self._database.wait(NODE_LOOK_SECONDS, self._woken)
            except StoreError as error:
                if self.problem is None:
                    log.warning("the cluster's database does not answer: %s", error)
                self.problem = str(error)
                self._due_s = 0.0
                self._ended.wait(NODE_LOOK_SECONDS)

    def _beat(self) -> None:
        standing = self.standing()
        if not self._database.beat(self.name, self.process, standing.owned, standing.clients):
            self.lost = True
            log.error("another process has taken the name %r in the cluster", self.name)

    def _look(self) -> None:
        view = self._database.look()
        if self.problem is not None:
            log.warning("the cluster's database answers again")
            self.problem = None
            self._grace_until_s = time.monotonic() + POSTGRES_LEASE_SECONDS
        if time.monotonic() < self._grace_until_s:
            # It was away: those that could not renew there, either, are not dead. They have a lease's time to come.
            members = [replace(each, alive=each.alive or each.process in self._living) for each in view.members]
            view = replace(view, members=tuple(members))
        self._living = frozenset(member.process for member in view.living)
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._seen, view)

    def _do_wishes(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._wishes.get_nowait()(self._database)
