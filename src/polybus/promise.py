"""A value that will be there later, and coroutines that wait for it, on any loop.

The namespace runs on asyncio's loop and on the simulator's alike, so it has no futures or tasks of either. A
promise calls whoever waits as soon as it is settled; a coroutine driven by `spawn` may await promises only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from polybus.errors import BugError, PolybusError

T = TypeVar("T")
C = TypeVar("C")
R = TypeVar("R")
Reply = Callable[[C, R | None, PolybusError | None], None]
"""Called as reply(context, result, error), once, when the result is safe; without a result where there is an error. A
promise without an object of its own."""
Waiter = Callable[["Promise[T]"], None]


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """What of an event loop the bus uses; asyncio's has it, and so has the simulator's."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> TimerHandle: ...


class Promise(Generic[T]):
    __slots__ = ("_error", "_settled", "_value", "_waiters")

    def __init__(self) -> None:
        self._settled = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Waiter[T]] = []

    @property
    def settled(self) -> bool:
        return self._settled

    def resolve(self, value: T) -> None:
        self._settle(value, None)

    def reject(self, error: BaseException) -> None:
        self._settle(None, error)

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        if self._settled:
            raise BugError("a promise was settled twice")
        self._settled = True
        self._value = value
        self._error = error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter(self)

    def then(self, waiter: Waiter[T]) -> None:
        """Calls the waiter when the promise is settled; at once where it is already."""
        if self._settled:
            waiter(self)
        else:
            self._waiters.append(waiter)

    def result(self) -> T:
        if not self._settled:
            raise BugError("a promise was read before it was settled")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def reply(self, context: object, result: object, error: BaseException | None) -> None:
        """Settles the promise as a broker's reply; what the reply was about is dropped."""
        del context
        if error is None:
            self.resolve(result)  # type: ignore[arg-type]
        else:
            self.reject(error)

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self._settled:
            yield self
        return self.result()


def spawn(coroutine: Coroutine[Any, Any, T]) -> Promise[T]:
    """Runs a coroutine as far as it goes, and on whenever what it awaits is settled."""
    promise: Promise[T] = Promise()
    _advance(coroutine, promise)
    return promise


def _advance(coroutine: Coroutine[Any, Any, T], promise: Promise[T]) -> None:
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        promise.resolve(stop.value)
        return
    except Exception as error:
        promise.reject(error)
        return
    if not isinstance(awaited, Promise):
        raise BugError("a coroutine of the namespace may only await promises")
    awaited.then(lambda _: _advance(coroutine, promise))


def pause(loop: Loop, ms: float) -> Promise[None]:
    """Settled after so much of the loop's time."""
    promise: Promise[None] = Promise()
    loop.call_later(ms / 1000, promise.resolve, None)
    return promise


def settles_within(promise: Promise[Any], loop: Loop, ms: float) -> Promise[bool]:
    """Whether the promise is settled before so much of the loop's time has passed: known when either happens."""
    answer: Promise[bool] = Promise()

    def answered(in_time: bool) -> None:
        if not answer.settled:
            timer.cancel()
            answer.resolve(in_time)

    timer = loop.call_later(ms / 1000, answered, False)
    promise.then(lambda _: answered(True))
    return answer


def resolved(value: T) -> Promise[T]:
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise


def rejected(error: BaseException) -> Promise[Any]:
    promise: Promise[Any] = Promise()
    promise.reject(error)
    return promise
