"""Celery does its work through the bus: a client sends tasks, worker processes run them, on both kinds of queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from application import FOLDER, QUEUES, add, always_fail, app, fail_twice, outlive_a_worker, runs_of
from celery import group

PATIENCE_S = 60
HERE = Path(__file__).parent


class Worker:
    """A worker process of its own, with the processes that it starts."""

    def __init__(self, queue: str, concurrency: int = 2) -> None:
        self.log = FOLDER / f"worker-{queue}-{uuid.uuid4().hex}.log"
        command = [sys.executable, "-m", "celery", "-A", "application", "worker", "-Q", queue]
        command += ["--concurrency", str(concurrency), "--loglevel", "INFO", "--hostname", f"{uuid.uuid4().hex}@here"]
        command += ["--without-mingle", "--without-gossip", "--without-heartbeat"]
        with self.log.open("w") as output:
            self._process = subprocess.Popen(
                command, cwd=HERE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._note = FOLDER / "workers" / str(self._process.pid)
        self._note.touch()
        until(lambda: " ready." in self.log.read_text() or self._process.poll() is not None)
        assert self._process.poll() is None, self.log.read_text()

    def kill(self) -> None:
        """Ends it and its children without a warning."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._note.unlink()

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0, self.log.read_text()
        self._note.unlink()


def until(condition: Callable[[], bool]) -> None:
    """Returns when something is so; the limit is for what never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module", params=QUEUES)
def queue(request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue with one worker that does one thing at a time.

    With two at once Celery itself mixes up the states of a task that is tried again: the second try may end before the
    first one is noted as such, and then the note stands for ever.
    """
    worker = Worker(request.param, 1)
    yield request.param
    worker.stop()
    assert "MessageLockLostError" not in worker.log.read_text(), "every task was acknowledged in time"


@pytest.fixture
def label() -> str:
    return uuid.uuid4().hex


def test_every_task_is_run_once_and_its_result_counted(queue: str, label: str) -> None:
    sent = [add.apply_async((f"{label}-{number}", number, 1), queue=queue) for number in range(40)]
    assert [result.get(PATIENCE_S) for result in sent] == list(range(1, 41))
    assert [runs_of(f"{label}-{number}") for number in range(40)] == [1] * 40
    until(lambda: length(queue) == 0)


def test_a_group_gathers_its_results(queue: str, label: str) -> None:
    tasks = group(add.s(f"{label}-{number}", number, number).set(queue=queue) for number in range(8))
    assert sum(tasks.apply_async().get(PATIENCE_S)) == 2 * sum(range(8))


def test_a_task_that_fails_is_tried_again(queue: str, label: str) -> None:
    assert fail_twice.apply_async((label,), queue=queue).get(PATIENCE_S) == 3
    assert runs_of(label) == 3


def test_a_task_that_never_works_is_given_up(queue: str, label: str) -> None:
    with pytest.raises(RuntimeError, match="it never works"):
        always_fail.apply_async((label,), queue=queue).get(PATIENCE_S)
    assert runs_of(label) == 2
    until(lambda: length(queue) == 0)


def test_a_task_with_a_countdown_is_run_once(queue: str, label: str) -> None:
    result = add.apply_async((label, 1, 1), queue=queue, countdown=1)
    assert result.get(PATIENCE_S) == 2
    assert runs_of(label) == 1


@pytest.mark.parametrize("name", QUEUES)
def test_the_task_of_a_killed_worker_is_run_by_another(name: str, label: str) -> None:
    """Acknowledged late, the message is still locked when the worker dies, and comes back when its lock ends."""
    own = f"{name}-late"
    worker = Worker(own)
    result = outlive_a_worker.apply_async((label,), queue=own)
    until(lambda: runs_of(label) == 1)
    worker.kill()
    assert not result.ready()
    assert length(own) == 1, "nothing is lost with the worker"
    second = Worker(own)
    assert result.get(PATIENCE_S) == 2
    assert runs_of(label) == 2
    until(lambda: length(own) == 0)
    second.stop()


@pytest.mark.parametrize("name", QUEUES)
def test_two_workers_share_a_queue(name: str, label: str) -> None:
    own = f"{name}-shared"
    workers = [Worker(own), Worker(own)]
    sent = [add.apply_async((f"{label}-{number}", number, 0), queue=own) for number in range(20)]
    assert [result.get(PATIENCE_S) for result in sent] == list(range(20))
    assert [runs_of(f"{label}-{number}") for number in range(20)] == [1] * 20
    for worker in workers:
        worker.stop()


def length(queue: str) -> int:
    with app.connection_for_read() as connection:
        return int(connection.default_channel._size(queue))
