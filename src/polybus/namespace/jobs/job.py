"""Work on many messages that takes a while: what it has done so far can be seen, and it can be stopped.

A job lives in the memory of the process that runs it. Whatever it has told as done is synced; where the process ends,
the rest is not done, and starting the job again is safe: no message is dealt with twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import TYPE_CHECKING

from polybus.errors import EntityNotFound, PolybusError, ServerBusy
from polybus.limits import JOBS_AT_ONCE, JOBS_REMEMBERED
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

RUNNING = "running"
DONE = "done"
INCOMPLETE = "incomplete"
STOPPED = "stopped"
FAILED = "failed"

Work = Callable[["Job"], Awaitable[None]]


class Job:
    def __init__(self, kind: str, namespace: str, path: str, started_ms: int) -> None:
        self.id = token_hex(8)
        self.kind = kind
        self.namespace = namespace
        self.path = path
        """What it works on, as it was addressed: who may start it there may see it and stop it."""
        self.started_ms = started_ms
        self.ended_ms: int | None = None
        self.state = RUNNING
        self.error: str | None = None
        self.total: int | None = None
        """Messages that there were for it when it began, where it was asked to count them."""
        self.looked = 0
        self.chosen = 0
        self.done = 0
        self.missing = 0
        """Settled by somebody else in the meantime."""
        self.locked = 0
        """In the hands of receivers, and left there."""
        self.unreachable: list[int] = []
        """Partitions that could not be reached: what they hold is as it was."""
        self.samples: list[int] = []
        """Sequence numbers of the first ones, in a dry run."""
        self.ended: Promise[None] = Promise()
        self.stopping = False

    def end(self, state: str, now_ms: int, error: str | None = None) -> None:
        self.state, self.error, self.ended_ms = state, error, now_ms
        self.ended.resolve(None)


class Jobs:
    """The jobs of a bus: those that run, and the last of those that have ended."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._jobs: dict[str, Job] = {}

    def start(self, job: Job, work: Work) -> Job:
        """ServerBusy where too many run already."""
        running = sum(1 for each in self._jobs.values() if each.state == RUNNING)
        if running >= JOBS_AT_ONCE:
            raise ServerBusy(f"{running} jobs are running already. Wait for one to end, or stop one.")
        self._forget()
        self._jobs[job.id] = job
        spawn(self._run(job, work)).then(_told)
        return job

    async def _run(self, job: Job, work: Work) -> None:
        try:
            await work(job)
        except PolybusError as error:
            job.end(FAILED, self._now_ms(), str(error))
        except BaseException:
            job.end(FAILED, self._now_ms(), "an error inside of the bus; its log has it")
            raise
        else:
            job.end(_state(job), self._now_ms())

    def _now_ms(self) -> int:
        return self._bus.clock.now().wall_ms

    def _forget(self) -> None:
        ended = [each.id for each in self._jobs.values() if each.state != RUNNING]
        for job_id in ended[: max(len(ended) - JOBS_REMEMBERED + 1, 0)]:
            del self._jobs[job_id]

    def of(self, namespace: str) -> list[Job]:
        return [job for job in self._jobs.values() if job.namespace == namespace]

    def find(self, namespace: str, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None or job.namespace != namespace:
            raise EntityNotFound("There is no such job, or it ended so long ago that it is forgotten.")
        return job


def _state(job: Job) -> str:
    if job.stopping:
        return STOPPED
    return INCOMPLETE if job.unreachable else DONE


def _told(promise: Promise[None]) -> None:
    promise.result()
