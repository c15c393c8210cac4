"""A Celery application on the bus, as a user would write it; only the broker's URL comes from outside.

With `polybus://` nothing else is needed. kombu's own `azureservicebus://` names no ports and always speaks TLS: in the
processes that import this, the name in such a URL leads to the bus, whatever the port, and the bus's authority is
trusted: the work of a hosts entry, of the ports 443 and 5671, and of a bundle of certificates (docs/how-to/kombu.md).
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import certifi
from celery import Celery, Task

import polybus.kombu  # noqa: F401 - makes polybus:// known

BROKER = os.environ["POLYBUS_CELERY_BROKER"]
NAME = "broker.polybus.net"
LOCK_SECONDS = 5
QUEUES = ("plain", "partitioned")
FOLDER = Path(os.environ["POLYBUS_CELERY_FOLDER"])
"""Where results lie, and where tasks note that they ran."""


def lead_to_the_bus() -> None:
    host, _, port = os.environ["POLYBUS_TLS"].rpartition(":")
    resolve = socket.getaddrinfo

    def resolved(name: Any, asked: Any, *rest: Any, **options: Any) -> Any:
        if name != NAME:
            return resolve(name, asked, *rest, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, int(port)))]

    socket.getaddrinfo = resolved
    certifi.where = lambda: os.environ["REQUESTS_CA_BUNDLE"]


if BROKER.endswith(f"@{NAME}"):
    lead_to_the_bus()

app = Celery("work", broker=BROKER)
app.conf.update(
    result_backend=f"file://{FOLDER}/results",
    broker_transport_options={"peek_lock_seconds": LOCK_SECONDS, "wait_time_seconds": 1},
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    task_default_queue="plain",
)


def runs_of(label: str) -> int:
    """How often a task with this label has begun."""
    return len(list((FOLDER / "runs").glob(f"{label}.*")))


def note_run(label: str) -> int:
    number = runs_of(label) + 1
    (FOLDER / "runs" / f"{label}.{number}.{os.getpid()}").touch(exist_ok=False)
    return number


@app.task
def add(label: str, left: int, right: int) -> int:
    note_run(label)
    return left + right


@app.task(bind=True, max_retries=3)
def fail_twice(self: Task[Any, Any], label: str) -> int:
    """Works when it is run for the third time."""
    number = note_run(label)
    if number < 3:
        raise self.retry(countdown=0, exc=RuntimeError(f"run {number}"))
    return number


@app.task(bind=True, max_retries=1)
def always_fail(self: Task[Any, Any], label: str) -> None:
    note_run(label)
    raise self.retry(countdown=0, exc=RuntimeError("it never works"))


@app.task(acks_late=True)
def outlive_a_worker(label: str) -> int:
    """Does not end the first time; whoever runs it again finds that somebody has tried."""
    number = note_run(label)
    while number == 1:
        time.sleep(1)
    return number
