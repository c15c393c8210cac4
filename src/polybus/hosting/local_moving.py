"""Messages that leave or enter a partition in this process by way of another entity: its client's verbs about them"""

from __future__ import annotations

from collections.abc import Callable

from polybus.clock import Now
from polybus.errors import BusError, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting.local_sessions import LocalSessions, session_of
from polybus.hosting.partition_client import SessionLock
from polybus.hosting.partition_host import read_rows
from polybus.limits import FORWARD_RETRY_MS
from polybus.message.edit import Edit
from polybus.message.message import Message
from polybus.partition import by_number, deleting, inbox, moving, receiving, rescheduling, transfers
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import Moved, OutboxMessage
from polybus.partition.kinds import MAIN
from polybus.partition.log import Log
from polybus.promise import Promise, Reply, pause, rejected, spawn

ByNumber = Callable[[Broker, Log, Now, list[int], Reply[None, Moved], None], Steps[None]]
"""A verb about messages of one log by their numbers."""


class LocalMoving(LocalSessions):
    """Messages that leave or enter a partition in this process by way of another entity."""

    def destinations(self) -> Promise[list[tuple[int, int]]]:
        broker = self.broker
        return rejected(self.unavailable()) if broker is None else self.run(transfers.destinations(broker))

    def outgoing(self, destination: tuple[int, int], limit: int, max_bytes: int) -> Promise[list[OutboxMessage]]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        return self.run(transfers.pending(broker, destination[0], destination[1], 0, limit, max_bytes))

    def remove_outgoing(self, destination: tuple[int, int], moved: list[OutboxMessage]) -> Promise[None]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        transfers.sent_on(broker, destination[0], destination[1], moved)
        return self.store.synced()

    def refuse_outgoing(
        self, destination: tuple[int, int], refused: list[OutboxMessage], error: BusError
    ) -> Promise[None]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        transfers.refused(broker, self._clock.now(), destination[0], destination[1], refused, error)
        return self.store.synced()

    def take_over(self, source: tuple[int, int], arriving: list[OutboxMessage]) -> Promise[None]:
        return spawn(self._take_over(source, arriving))

    async def _take_over(self, source: tuple[int, int], arriving: list[OutboxMessage]) -> None:
        try:
            self.check_open()
        except (ServerBusy, QuotaExceeded) as error:
            # A full disk is waited for like one that is gone.
            raise PartitionUnavailable(error.description) from error
        keys = inbox.rows_needed(self.require(), arriving)
        rows = await self.run(read_rows(keys)) if keys else None
        done: Promise[None] = Promise()
        inbox.take_over(self.require(), self._clock.now(), source, arriving, rows, done.reply, None)
        try:
            await done
        except QuotaExceeded as error:
            raise PartitionUnavailable(error.description) from error

    def forward_backlog(self) -> None:
        broker = self.broker
        if broker is not None:
            for log in list(broker.logs.values()):
                if log.kind == MAIN and log.settings.forward_to is not None and log.active:
                    spawn(self._forward_backlog(log)).then(self._heard)

    async def _forward_backlog(self, log: Log) -> None:
        at, more = b"", True
        while more and self.broker is not None and self.broker.logs.get(log.id) is log:
            try:
                at = await self.run(moving.send_on(self.broker, log, self._clock.now(), at))
            except PartitionUnavailable:
                await pause(self._loop, FORWARD_RETRY_MS)
                continue
            more = bool(at)
            await self.synced()

    def _heard(self, promise: Promise[None]) -> None:
        """A store that failed, or is full, is no news here: its return goes on with the work."""
        try:
            promise.result()
        except (ServerBusy, QuotaExceeded):
            return
        except PolybusError as error:
            self.listener.failed(error)

    def move(
        self,
        log_id: int,
        numbers: list[int],
        changed: dict[int, Message],
        edits: dict[int, Edit],
        destination: str,
        subscription: int,
    ) -> Promise[Moved]:
        return spawn(self._move(log_id, numbers, changed, edits, destination, subscription))

    async def _move(
        self,
        log_id: int,
        numbers: list[int],
        changed: dict[int, Message],
        edits: dict[int, Edit],
        destination: str,
        subscription: int,
    ) -> Moved:
        broker, now = self.require(), self._clock.now()
        done: Promise[Moved] = Promise()
        log = broker.log(log_id)
        steps = moving.move(broker, log, now, numbers, changed, edits, destination, subscription, done.reply, None)
        return await self._answered(steps, done)

    def delete_numbers(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        return spawn(self._by_number(by_number.delete, log_id, numbers))

    def defer_numbers(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        return spawn(self._defer_numbers(log_id, numbers))

    async def _defer_numbers(self, log_id: int, numbers: list[int]) -> Moved:
        broker = self.require()
        done: Promise[Moved] = Promise()
        log, now = broker.log(log_id), self._clock.now()
        await self.run(by_number.defer(broker, log, now, numbers, done.reply, None))
        return await done

    def undefer(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        return spawn(self._by_number(by_number.undefer, log_id, numbers))

    async def _by_number(self, verb: ByNumber, log_id: int, numbers: list[int]) -> Moved:
        broker = self.require()
        done: Promise[Moved] = Promise()
        return await self._answered(
            verb(broker, broker.log(log_id), self._clock.now(), numbers, done.reply, None), done
        )

    def cancel_numbers(self, numbers: list[int]) -> Promise[Moved]:
        return spawn(self._cancel_numbers(numbers))

    async def _cancel_numbers(self, numbers: list[int]) -> Moved:
        done: Promise[Moved] = Promise()
        steps = rescheduling.cancel_those(self.require(), self._clock.now(), numbers, done.reply, None)
        return await self._answered(steps, done)

    def reschedule(self, numbers: list[int], due_ms: int, by_ms: int) -> Promise[Moved]:
        return spawn(self._reschedule(numbers, due_ms, by_ms))

    async def _reschedule(self, numbers: list[int], due_ms: int, by_ms: int) -> Moved:
        done: Promise[Moved] = Promise()
        now = self._clock.now()
        steps = rescheduling.reschedule(self.require(), now, numbers, due_ms, by_ms, done.reply, None)
        return await self._answered(steps, done)

    async def _answered(self, steps: Steps[None], done: Promise[Moved]) -> Moved:
        """What a verb replies when its work is on disk."""
        await self.run(steps)
        return await done

    def delete_before(self, log_id: int, count: int, before_ms: int, session: SessionLock | None) -> Promise[int]:
        return spawn(self._delete_before(log_id, count, before_ms, session))

    async def _delete_before(self, log_id: int, count: int, before_ms: int, session: SessionLock | None) -> int:
        deleted = 0
        if self.require().log(log_id).sessions is not None:
            deleted = await self._delete_in_sessions(log_id, count, before_ms, session)
        else:
            while deleted < count:
                broker = self.require()
                log = broker.log(log_id)
                if not log.has_ready() and log.wants_page():
                    await self.run(receiving.load_page(broker, log))
                entries = moving.delete_before(broker, log, self._clock.now(), count - deleted, before_ms)
                if not entries:
                    break
                deleted += len(entries)
        if deleted:
            await self.synced()
        return deleted

    async def _delete_in_sessions(self, log_id: int, count: int, before_ms: int, lock: SessionLock | None) -> int:
        broker = self.require()
        session = None if lock is None else session_of(self._check_held(lock))
        steps = deleting.delete_in_sessions(broker, broker.log(log_id), session, self._clock.now(), count, before_ms)
        return await self.run(steps)
