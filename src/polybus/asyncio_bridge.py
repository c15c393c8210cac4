"""The way from promises to asyncio: its futures, and the bus's coroutines run on its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from polybus.errors import ServerBusy
from polybus.promise import Promise, spawn

T = TypeVar("T")


def from_promise(promise: Promise[T]) -> asyncio.Future[T]:
    """A future that is settled with the promise. Cancelling it leaves what was promised to go on."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def settled(promise: Promise[T]) -> None:
        if future.done():
            return
        try:
            future.set_result(promise.result())
        except Exception as error:
            future.set_exception(error)

    promise.then(settled)
    return future


async def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine of the namespace to its end."""
    return await from_promise(spawn(coroutine))


def to_promise(coroutine: Coroutine[Any, Any, T]) -> Promise[T]:
    """Runs a coroutine of asyncio; what comes of it is promised to the bus."""
    promise: Promise[T] = Promise()

    def done(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            promise.reject(ServerBusy("The process stops."))
        elif (error := task.exception()) is not None:
            promise.reject(error)
        else:
            promise.resolve(task.result())

    task = asyncio.ensure_future(coroutine)
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(done)
    return promise


_running: set[asyncio.Task[Any]] = set()
"""Those under way: asyncio itself keeps no hold on them."""
