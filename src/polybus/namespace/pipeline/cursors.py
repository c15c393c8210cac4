"""The cursors of all logs: kept in the catalogue, and felt by the logs as floors.

The lowest cursor of a log is its floor in each partition: what is settled above it is kept. A floor is there before
the partition serves, also after a restart; when it rises, what lies below is removed in small steps. A cursor that
lags over its limits loses what it did not read, and says so: an abandoned pipeline must not fill the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polybus.errors import CursorTruncated, EntityNotFound, PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, decode
from polybus.hosting.partition_host import PartitionHost
from polybus.limits import CURSORS_PER_LOG, RECOVER_MS
from polybus.namespace.entities.entity import Entity
from polybus.namespace.pipeline.cursor import Cursor, check_positions, cursor_from
from polybus.namespace.pipeline.ranges import PartitionLog, partition_logs
from polybus.partition import cursors as keeping
from polybus.partition.broker import Broker, Steps
from polybus.partition.log import KINDS, NO_FLOOR, Log
from polybus.partition.reading import rows_of
from polybus.partition.records import SettledMark, after, number_key
from polybus.promise import Promise, spawn
from polybus.rows import Scan
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
        self._trimming: dict[tuple[int, int, int], Promise[None]] = {}

    async def load(self) -> None:
        """Reads the cursors, before any partition serves."""
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
            ends = {partition.index: _end(partition, cursor.log_id) for partition in entity.partitions}
            check_positions(positions, ends)
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

    async def _change(self, entity: Entity, cursor: Cursor, change: Change) -> Cursor:
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

    def prepare(self, partition: PartitionHost, broker: Broker) -> None:
        """Sets the floors of a broker that is about to serve, so that nothing a cursor wants is let go."""
        for entity_id, log_id in [*self._cursors, *self._beginning]:
            if entity_id == partition.entity_id and _exists(broker, log_id):
                broker.log(log_id).floor = self._floor((entity_id, log_id), partition.index)

    def partition_changed(self, partition: PartitionHost) -> None:
        """A partition serves again: what floors have let go meanwhile is removed."""
        if partition.broker is not None:
            for log in list(partition.broker.logs.values()):
                if log.retained:
                    self._trim(partition, log)

    def _floor(self, place: Place, index: int) -> int:
        if self._beginning.get(place):
            return 0
        return min((cursor.floor(index) for cursor in self._cursors.get(place, {}).values()), default=NO_FLOOR)

    def _apply(self, entity: Entity, log_id: int) -> None:
        self._note_topic(entity)
        for partition in entity.partitions:
            broker = partition.broker
            if broker is None or not _exists(broker, log_id):
                continue
            log = broker.log(log_id)
            log.floor = self._floor((entity.id, log_id), partition.index)
            if log.retained:
                self._trim(partition, log)

    def _note_topic(self, entity: Entity) -> None:
        """A topic keeps a log of its own only while somebody reads it."""
        if entity.is_topic:
            place = (entity.id, 0)
            entity.settings.keep_topic_log = bool(self._cursors.get(place) or self._beginning.get(place))

    def _trim(self, partition: PartitionHost, log: Log) -> None:
        place = (partition.entity_id, partition.index, log.id)
        if place not in self._trimming:
            self._trimming[place] = Promise()
            spawn(self._trim_all(partition, log, place)).then(self._heard)

    async def _trim_all(self, partition: PartitionHost, log: Log, place: tuple[int, int, int]) -> None:
        try:
            while partition.require().logs.get(log.id) is log:
                floor = log.floor
                await partition.store.synced()  # a mark that no scan shows yet would be passed over
                more = await partition.run(keeping.trim(partition.require(), log))
                await _synced(partition)
                if not more and floor == log.floor:
                    return
        except (ServerBusy, QuotaExceeded):
            # A partition that is gone trims when it is back; one that could not be read has to try again.
            self._bus.loop.call_later(RECOVER_MS / 1000, self._trim_again, partition, log)
        finally:
            self._trimming.pop(place).resolve(None)

    def _trim_again(self, partition: PartitionHost, log: Log) -> None:
        broker = partition.broker
        if broker is not None and broker.logs.get(log.id) is log and log.retained:
            self._trim(partition, log)

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
            broker = partition.broker
            log = None if broker is None else broker.logs.get(log_id)
            while log is not None and log.retained:
                while (entity.id, partition.index, log_id) in self._trimming:
                    await self._trimming[entity.id, partition.index, log_id]
                cursor = self._lowest((entity.id, log_id), partition.index)
                if cursor is None:
                    break
                position = await partition.run(_excess(log, cursor, partition, self._now_ms()))
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


class Change(Protocol):
    async def __call__(self, current: Cursor) -> Cursor: ...


def _exists(broker: Broker, log_id: int) -> bool:
    number = log_id // KINDS
    return number == 0 or number in broker.settings.subscriptions


def _end(partition: PartitionHost, log_id: int) -> int | None:
    """The last position of a log; None while the partition cannot be reached."""
    return None if partition.broker is None else partition.broker.log(log_id).stable_end


def _synced(partition: PartitionHost) -> Promise[None]:
    done: Promise[None] = Promise()
    partition.require().out().replies.append((done.reply, None, None))
    return done


def _excess(log: Log, cursor: Cursor, partition: PartitionHost, now_ms: int) -> Steps[int]:
    """The position up to which kept messages are too old, or too many; 0 where none are."""
    limit = partition.settings.max_bytes if cursor.max_lag_bytes is None else cursor.max_lag_bytes
    over = log.retained_bytes - limit
    start = number_key(log.settled_prefix, log.trimmed_to + 1)
    rows = yield Scan(start, after(log.settled_prefix), partition.settings.bounds.sweep_rows)
    position = 0
    for _, value in rows_of(rows):
        mark = SettledMark(value)
        if over <= 0 and mark.settled_ms > now_ms - cursor.max_lag_ms:
            break
        position = mark.position
        over -= mark.size
    return position
