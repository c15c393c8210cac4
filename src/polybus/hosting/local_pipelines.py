"""What pipelines want of a partition in this process: ranges, events, floors of cursors, and stages"""

from __future__ import annotations

from polybus.errors import (
    PolybusError,
    QuotaExceeded,
    ServerBusy,
)
from polybus.hosting.local_moving import LocalMoving
from polybus.limits import EVENTS_KEPT, EVENTS_TRIMMED, RECOVER_MS
from polybus.message.message import Message
from polybus.partition import (
    cursors,
    events,
    staging,
)
from polybus.partition.broker import Broker
from polybus.partition.data import LogEvent, LogRange, Records
from polybus.partition.kinds import KINDS, NO_FLOOR
from polybus.partition.log import Log
from polybus.promise import Promise, pause, rejected, resolved, spawn


class LocalPipelines(LocalMoving):
    """What pipelines want of a partition in this process."""

    def prepare(self, broker: Broker) -> None:
        """Sets the floors of cursors, so that nothing they want is let go."""
        for log_id, floor in self._floors.items():
            if _exists(broker, log_id):
                broker.log(log_id).floor = floor

    def started(self, broker: Broker) -> None:
        """What floors have let go meanwhile is removed; what forwards now is put on its way."""
        for log in list(broker.logs.values()):
            if log.retained:
                self._trim(log)
        self.forward_backlog()

    def log_end(self, log_id: int) -> Promise[LogRange]:
        try:
            return resolved(_range(self.require().log(log_id)))
        except PolybusError as error:
            return rejected(error)

    def log_range(self, log_id: int, time_ms: int | None) -> Promise[LogRange]:
        return spawn(self._log_range(log_id, time_ms))

    async def _log_range(self, log_id: int, time_ms: int | None) -> LogRange:
        broker = self.require()
        log = broker.log(log_id)
        earliest = await self.run(cursors.earliest(log))
        found = _range(log)
        found.earliest = earliest
        if time_ms is not None and not log.by_position:
            found.at_time = await self.run(cursors.position_at_time(broker, log, time_ms))
        elif time_ms is not None:
            position, at = await self.run(cursors.walk_to_time(broker, log, earliest, time_ms))
            while not at:
                await pause(self._loop, 0)  # everybody else has a turn
                position, at = await self.run(cursors.walk_to_time(broker, log, position, time_ms))
            found.at_time = position
        return found

    def read_records(
        self, log_id: int, first: int, last: int, limit: int, max_bytes: int, start: bytes
    ) -> Promise[Records]:
        try:
            broker = self.require()
            log = broker.log(log_id)
        except PolybusError as error:
            return rejected(error)
        return self.run(cursors.read_records(broker, log, first, last, limit, max_bytes, start))

    def read_events(self, log_id: int, first: int, limit: int) -> Promise[list[LogEvent]]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        return self.run(events.read_from(broker, log_id, first, limit))

    def trim_events(self) -> None:
        broker = self.broker
        if broker is None:
            return
        for log in list(broker.logs.values()):
            last = log.stable_events - EVENTS_KEPT
            # Removing a range leaves a mark in the store that every scan passes, so it is done seldom.
            if last - self._events_trimmed.get(log.id, 0) >= EVENTS_TRIMMED:
                self._events_trimmed[log.id] = last
                events.trim(broker, log, last - 1)

    def set_floor(self, log_id: int, floor: int) -> None:
        if floor >= NO_FLOOR:
            self._floors.pop(log_id, None)
        else:
            self._floors[log_id] = floor
        broker = self.broker
        if broker is None or not _exists(broker, log_id):
            return
        log = broker.log(log_id)
        log.floor = floor
        if log.retained:
            self._trim(log)

    def _trim(self, log: Log) -> None:
        if log.id not in self._trimming:
            self._trimming[log.id] = Promise()
            spawn(self._trim_all(log)).then(self._heard)

    async def _trim_all(self, log: Log) -> None:
        try:
            while self.require().logs.get(log.id) is log:
                floor = log.floor
                await self.store.synced()  # a mark that no scan shows yet would be passed over
                more = await self.run(cursors.trim(self.require(), log))
                await self.synced()
                if not more and floor == log.floor:
                    return
        except (ServerBusy, QuotaExceeded):
            # A partition that is gone trims when it is back; one that could not be read has to try again.
            self._loop.call_later(RECOVER_MS / 1000, self._trim_again, log)
        finally:
            self._trimming.pop(log.id).resolve(None)

    def _trim_again(self, log: Log) -> None:
        broker = self.broker
        if broker is not None and broker.logs.get(log.id) is log and log.retained:
            self._trim(log)

    def excess(self, log_id: int, max_lag_ms: int, max_lag_bytes: int) -> Promise[int]:
        return spawn(self._excess(log_id, max_lag_ms, max_lag_bytes))

    async def _excess(self, log_id: int, max_lag_ms: int, max_lag_bytes: int) -> int:
        while log_id in self._trimming:
            await self._trimming[log_id]
        broker = self.broker
        log = None if broker is None else broker.logs.get(log_id)
        if broker is None or log is None or not log.retained:
            return 0
        since_ms = self._clock.now().wall_ms - max_lag_ms
        return await self.run(cursors.excess(broker, log, since_ms, max_lag_bytes))

    def stage(self, stage_id: bytes, first: int, messages: list[Message]) -> Promise[None]:
        done: Promise[None] = Promise()
        try:
            self.check_open()
            staging.stage(self.require(), self._clock.now(), stage_id, first, messages, done.reply, None)
        except PolybusError as error:
            return rejected(error)
        return done

    def publish_chunk(self, stage_id: bytes) -> Promise[bool]:
        return spawn(self._publish_chunk(stage_id))

    async def _publish_chunk(self, stage_id: bytes) -> bool:
        done: Promise[bool] = Promise()
        await self.run(staging.publish_chunk(self.require(), self._clock.now(), stage_id, done.reply, None))
        return await done

    def drop_stage(self, stage_id: bytes) -> Promise[None]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        return self.run(staging.drop(broker, stage_id, None, None))

    def old_stages(self, before_ms: int) -> Promise[list[bytes]]:
        broker = self.broker
        stages = {} if broker is None else broker.stages.open
        return resolved([stage_id for stage_id, stage in stages.items() if stage.touched_ms < before_ms])


def _exists(broker: Broker, log_id: int) -> bool:
    number = log_id // KINDS
    return number == 0 or number in broker.settings.subscriptions


def _range(log: Log) -> LogRange:
    """What memory knows of the log."""
    return LogRange(log.stable_end, log.active + log.retained, log.active_bytes + log.retained_bytes)
