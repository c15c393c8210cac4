"""The way from promises to futures."""

from __future__ import annotations

import asyncio

import pytest

from polybus.asyncio_bridge import from_promise, run
from polybus.errors import ServerBusy
from polybus.promise import Promise


def test_a_result_and_an_error_arrive() -> None:
    async def scenario() -> int:
        promise: Promise[int] = Promise()
        future = from_promise(promise)
        promise.resolve(5)
        failing: Promise[int] = Promise()
        failing.reject(ServerBusy("no"))
        with pytest.raises(ServerBusy):
            await from_promise(failing)
        return await future

    assert asyncio.run(scenario()) == 5


def test_a_coroutine_of_the_namespace_runs_to_its_end() -> None:
    async def scenario() -> int:
        promise: Promise[int] = Promise()

        async def work() -> int:
            return await promise + 1

        asyncio.get_running_loop().call_soon(promise.resolve, 1)
        return await run(work())

    assert asyncio.run(scenario()) == 2


def test_cancelling_leaves_the_work_to_go_on() -> None:
    async def scenario() -> bool:
        promise: Promise[int] = Promise()
        future = from_promise(promise)
        future.cancel()
        promise.resolve(5)
        return future.cancelled()

    assert asyncio.run(scenario())
