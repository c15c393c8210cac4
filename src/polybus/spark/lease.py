"""A cursor that this driver holds: taken, renewed by a thread of its own, and given back if there is time to.

Spark ends the process that plans a stream without telling it, so a lease runs out by itself. Its number grows with
every holder: a driver that was away too long finds its own number old, and can move nothing any more.
"""

from __future__ import annotations

import logging
import threading

from polybus.errors import CursorLeased, PolybusError
from polybus.spark.bus import BusClient, CursorState
from polybus.spark.options import BusEntity

log = logging.getLogger(__name__)


class Lease:
    def __init__(self, place: BusEntity, cursor: str, holder: str, seconds: int) -> None:
        self._place = place
        self._cursor = cursor
        self.holder = holder
        self._seconds = seconds
        self.fencing = 0
        self._lost: CursorLeased | None = None
        self._over = threading.Event()

    def take(self, bus: BusClient, force: bool) -> CursorState:
        """Takes the cursor; CursorLeased where another query has it."""
        body = {"holder": self.holder, "ttl_seconds": self._seconds, "force": force}
        state = bus.lease(self._cursor, body)
        self.fencing = state.fencing
        threading.Thread(target=self._renew, name="polybus-lease", daemon=True).start()
        return state

    def check(self) -> None:
        """Raises where another driver has taken the cursor over."""
        if self._lost is not None:
            raise self._lost

    def _renew(self) -> None:
        """Runs beside the query; a connection is not for two threads, so it has its own."""
        bus = BusClient(self._place.connect(), self._place.entity, 0)
        while not self._over.wait(self._seconds / 3):
            try:
                body = {"holder": self.holder, "ttl_seconds": self._seconds, "fencing": self.fencing}
                bus.lease(self._cursor, body)
            except CursorLeased as error:
                self._lost = error
                break
            except PolybusError as error:
                log.warning("the lease of the cursor %r could not be renewed yet: %s", self._cursor, error)
        bus.close()

    def forget(self) -> None:
        """The cursor is gone: there is nothing to renew."""
        self._over.set()

    def release(self, bus: BusClient) -> None:
        """Lets the next driver in at once; where that fails the lease runs out."""
        self.forget()
        try:
            bus.release(self._cursor, self.fencing)
        except PolybusError as error:
            log.info("the lease of the cursor %r was not given back: %s", self._cursor, error)
