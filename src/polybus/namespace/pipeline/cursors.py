"""The cursors of all logs: kept in the catalogue; each holds the retention floors of its logs down.

The lowest cursor of a log is its floor in each partition: what is settled above it is kept. A floor is there before
the partition serves, also after a restart; when it rises, what lies below is removed in small steps. A cursor that
lags over its limits loses what it did not read, and says so: an abandoned pipeline must not fill the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polybus.errors import CursorTruncated, EntityNotFound, PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, decode
from polybus.limits import CURSORS_PER_LOG
from polybus.namespace.entities.entity import Entity
from polybus.namespace.pipeline.cursor import Cursor, check_positions, cursor_from
from polybus.namespace.pipeline.ranges import PartitionLog, log_ends, partition_logs
from polybus.partition.kinds import KINDS, NO_FLOOR
from polybus.promise import Promise, spawn
from polybus.turns import Turns

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

Place = tuple[int, int]
"""Entity id and log id."""


class Start:
    """Where a new cursor begins: at the earliest message, after the latest, at a time, or at positions."""

    def __init__(
        self, *, latest: bool = False, time_ms: int | None = None, positions: dict[int, int] | None = None
    ) -> None:
        self.latest = latest
        self.time_ms = time_ms
        self.positions = positions or {}

    def of(self, log: PartitionLog) -> int:
        """The last position that counts as read."""
        if log.index in self.positions:
            return self.positions[log.index]
        if self.latest:
            return log.stable_end
        return (log.earliest if log.at_time is None else log.at_time) - 1


class Cursors:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._cursors: dict[Place, dict[str, Cursor]] = {}
        self._beginning: dict[Place, int] = {}
        """Logs for which a cursor is being made: they keep everything until it is known from where on."""
        self._turns = Turns()

    async def load(self) -> None:
        """Reads the cursors, before any partition serves."""
        for row in await self._bus.catalogue.rows(records.CURSOR):
            self._remember(cursor_from(decode(row)))
        for entity_id, log_id in list(self._cursors):
            entity = self._bus.entities.get(entity_id)
            if entity is not None:
                self._apply(entity, log_id)

    async def reload(self) -> None:
        """Another process has written cursors. Floors of running partitions are told by whoever changes cursors."""
        self._cursors = {}
        for row in await self._bus.catalogue.rows(records.CURSOR):
            self._remember(cursor_from(decode(row)))
        for entity in self._bus.entities.values():
            self._note_topic(entity)

    def _remember(self, cursor: Cursor) -> None:
        self._cursors.setdefault((cursor.entity_id, cursor.log_id), {})[cursor.name] = cursor

    # Finding

    def find(self, entity: Entity, log_id: int, name: str) -> Cursor:
        found = self._cursors.get((entity.id, log_id), {}).get(name)
        if found is None:
            raise EntityNotFound(f"There is no cursor '{name}' here.")
        return found

    def of(self, entity: Entity, log_id: int | None = None) -> list[Cursor]:
        """The cursors of an entity, or of one of its logs, by name."""
        found = [
            cursor
            for (entity_id, own), named in self._cursors.items()
            for cursor in named.values()
            if entity_id == entity.id and log_id in (None, own)
        ]
        return sorted(found, key=lambda cursor: (cursor.log_id, cursor.name))

    # Changing

    async def create(
        self,
        entity: Entity,
        log_id: int,
        name: str,
        namespace: str,
        start: Start,
        max_lag_ms: int,
        max_lag_bytes: int | None,
    ) -> tuple[Cursor, bool]:
        """A new cursor, or the one that there is; says which."""
        work = self._create(entity, log_id, name, namespace, start, max_lag_ms, max_lag_bytes)
        return await self._turns.take((entity.id, log_id, name), work)

    async def _create(
        self,
        entity: Entity,
        log_id: int,
        name: str,
        namespace: str,
        start: Start,
        max_lag_ms: int,
        max_lag_bytes: int | None,
    ) -> tuple[Cursor, bool]:
        place = (entity.id, log_id)
        found = self._cursors.get(place, {}).get(name)
        if found is not None:
            return found, False
        if len(self._cursors.get(place, {})) >= CURSORS_PER_LOG:
            raise QuotaExceeded(f"A log may have {CURSORS_PER_LOG} cursors.")
        self._beginning[place] = self._beginning.get(place, 0) + 1
        try:
            self._apply(entity, log_id)
            logs = await partition_logs(entity, log_id, start.time_ms)
            for log in logs:
                log.require()
            check_positions(start.positions, {log.index: log.stable_end for log in logs})
            cursor = Cursor(
                namespace=namespace,
                entity_id=entity.id,
                log_id=log_id,
                name=name,
                positions={log.index: start.of(log) for log in logs},
                max_lag_ms=max_lag_ms,
                max_lag_bytes=max_lag_bytes,
                created_ms=self._bus.clock.now().wall_ms,
            )
            await self._bus.catalogue.write(Changes().put(cursor.key, cursor.record()))
            self._remember(cursor)
        finally:
            self._beginning[place] -= 1
            self._apply(entity, log_id)
        return cursor, True

    async def advance(self, entity: Entity, cursor: Cursor, positions: dict[int, int], fencing: int | None) -> Cursor:
        """Moves a cursor on; CursorLeased where it is somebody else's."""

        async def move(current: Cursor) -> Cursor:
            current.check_lease(fencing, self._now_ms())
            self._used(entity, cursor.log_id)
            check_positions(positions, await _ends(entity, cursor.log_id))
            return current.advanced(positions)

        return await self._change(entity, cursor, move)

    async def lease(
        self, entity: Entity, cursor: Cursor, holder: str, ttl_ms: int, fencing: int | None, force: bool
    ) -> Cursor:
        async def take(current: Cursor) -> Cursor:
            self._used(entity, cursor.log_id)
            return current.leased(holder, self._now_ms(), ttl_ms, fencing, force)

        return await self._change(entity, cursor, take)

    async def release(self, entity: Entity, cursor: Cursor, fencing: int | None) -> Cursor:
        async def let_go(current: Cursor) -> Cursor:
            current.check_lease(fencing, self._now_ms())
            return current.released()

        return await self._change(entity, cursor, let_go)

    async def _change(self, entity: Entity, cursor: Cursor, change: CursorChange) -> Cursor:
        async def work() -> Cursor:
            current = self.find(entity, cursor.log_id, cursor.name)
            changed = await change(current)
            if changed != current:
                await self._bus.catalogue.write(Changes().put(changed.key, changed.record()))
                self._remember(changed)
                self._apply(entity, cursor.log_id)
            return changed

        return await self._turns.take((cursor.entity_id, cursor.log_id, cursor.name), work())

    def _used(self, entity: Entity, log_id: int) -> None:
        """Whoever reads with a cursor uses the entity, which must not delete itself meanwhile."""
        number = log_id // KINDS
        settings = entity.settings.subscriptions.get(number) if number else entity.settings.own
        if settings is not None:
            settings.accessed_ms = self._now_ms()

    async def delete(self, entity: Entity, cursor: Cursor) -> None:
        async def work() -> None:
            self.find(entity, cursor.log_id, cursor.name)
            await self._bus.catalogue.write(Changes().delete(cursor.key))
            del self._cursors[entity.id, cursor.log_id][cursor.name]
            self._apply(entity, cursor.log_id)

        await self._turns.take((cursor.entity_id, cursor.log_id, cursor.name), work())

    def _now_ms(self) -> int:
        return self._bus.clock.now().wall_ms

    # Floors

    def _floor(self, place: Place, index: int) -> int:
        if self._beginning.get(place):
            return 0
        return min((cursor.floor(index) for cursor in self._cursors.get(place, {}).values()), default=NO_FLOOR)

    def _apply(self, entity: Entity, log_id: int) -> None:
        self._note_topic(entity)
        for partition in entity.partitions:
            if self._bus.leads or not partition.elsewhere:
                partition.set_floor(log_id, self._floor((entity.id, log_id), partition.index))

    def _note_topic(self, entity: Entity) -> None:
        """A topic keeps a log of its own only while somebody reads it."""
        if entity.is_topic:
            place = (entity.id, 0)
            entity.settings.keep_topic_log = bool(self._cursors.get(place) or self._beginning.get(place))

    def _heard(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except (ServerBusy, QuotaExceeded):
            return  # a store failed, or is full; its return, or the next look, goes on
        except PolybusError as error:
            self._bus.tell(error)

    # Limits

    def enforce(self) -> None:
        """Cuts off what cursors keep beyond their limits, and forgets those whose entity is gone."""
        for (entity_id, log_id), named in list(self._cursors.items()):
            entity = self._bus.entities.get(entity_id)
            number = log_id // KINDS
            if entity is None or (number and number not in entity.settings.subscriptions):
                del self._cursors[entity_id, log_id]
                self._forget(list(named.values()))
            elif named:
                spawn(self._enforce(entity, log_id)).then(self._heard)

    def _forget(self, cursors: list[Cursor]) -> None:
        changes = Changes()
        for cursor in cursors:
            changes.delete(cursor.key)
        spawn(self._bus.catalogue.write(changes)).then(self._heard)

    async def _enforce(self, entity: Entity, log_id: int) -> None:
        for partition in entity.partitions:
            while True:
                cursor = self._lowest((entity.id, log_id), partition.index)
                if cursor is None:
                    break
                most = partition.settings.max_bytes if cursor.max_lag_bytes is None else cursor.max_lag_bytes
                position = await partition.excess(log_id, cursor.max_lag_ms, most)
                if position <= cursor.floor(partition.index):
                    break
                await self._cut(entity, cursor, partition.index, position)

    def _lowest(self, place: Place, index: int) -> Cursor | None:
        return min(self._cursors.get(place, {}).values(), key=lambda cursor: cursor.floor(index), default=None)

    async def _cut(self, entity: Entity, cursor: Cursor, index: int, position: int) -> None:
        async def cut(current: Cursor) -> Cursor:
            return current.cut(index, position) if current.floor(index) < position else current

        await self._change(entity, cursor, cut)
        self._bus.tell(
            CursorTruncated(
                f"The cursor '{cursor.name}' of '{entity.name}' lags over its limit: settled messages of partition"
                f" {index} up to position {position} are no longer kept for it."
            )
        )


class CursorChange(Protocol):
    async def __call__(self, current: Cursor) -> Cursor: ...


async def _ends(entity: Entity, log_id: int) -> dict[int, int | None]:
    """The last position of a log in each partition; None where it cannot be reached."""
    return {end.index: None if end.problem is not None else end.stable_end for end in await log_ends(entity, log_id)}
