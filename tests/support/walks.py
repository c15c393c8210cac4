"""The way of a message through the house, watched: which functions run for a send, a delivery, a settlement, a bulk read.

A bus in memory runs in this process, in plain Python, and a raw client uses it. While one operation is under way,
every call of a function of ours is noted on the bus's threads. Background work that happens to run then is no part of
the walk, so each walk is watched several times, and what is not seen every time is left out.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import polybus
from polybus import Server
from tests.support.raw_amqp import RawClient
from tests.support.raw_frames import text

SOURCES: Final = str(Path(polybus.__file__).parent) + "/"
TIMES: Final = 5
ROUNDS: Final = 5
QUEUE: Final = "orders"
CONFIG: Final[dict[str, Any]] = {
    "UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": QUEUE}], "Topics": []}]}
}


@dataclass(frozen=True)
class Call:
    """One function that calls another in another file; an empty caller is the event loop or a thread's start."""

    caller: str
    file: str
    function: str


class Watch:
    """Notes calls of our own functions on all threads but the one that made it."""

    def __init__(self) -> None:
        self.calls: dict[Call, None] = {}
        """Calls from file to file, in the order in which each was first seen."""
        self.functions: dict[tuple[str, str], None] = {}
        self._on = False
        self._names: dict[CodeType, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.calls, self.functions = {}, {}
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def install(self) -> None:
        """From now on every new thread is looked at."""
        threading.setprofile(self._look)

    def remove(self) -> None:
        threading.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if not self._on or event != "call":
            return
        file = self._file_of(frame.f_code)
        if not file or frame.f_code.co_name.startswith("<"):
            return
        self.functions[(file, frame.f_code.co_qualname)] = None
        caller = self._caller(frame)
        if caller != file:
            self.calls[Call(caller, file, frame.f_code.co_name)] = None

    def _file_of(self, code: CodeType) -> str:
        """The file of a function below `polybus/`; empty where it is somebody else's."""
        name = self._names.get(code)
        if name is None:
            name = code.co_filename.removeprefix(SOURCES) if code.co_filename.startswith(SOURCES) else ""
            self._names[code] = name
        return name

    def _caller(self, frame: FrameType) -> str:
        back = frame.f_back
        while back is not None:
            name = self._file_of(back.f_code)
            if name:
                return name
            back = back.f_back
        return ""


@dataclass(frozen=True)
class Walk:
    """What was seen every time: calls between files in order, and all functions."""

    calls: tuple[Call, ...]
    functions: frozenset[tuple[str, str]]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(sorted({file for file, _ in self.functions}))


def common(seen: list[Watch]) -> Walk:
    first, *rest = seen
    calls = tuple(call for call in first.calls if all(call in other.calls for other in rest))
    functions = set(first.functions).intersection(*(other.functions for other in rest))
    return Walk(calls, frozenset(functions))


def _let_finish(server: Server) -> None:
    """A client has its answer before the bus has done its last step for it: lets the loop go round."""
    loop = server._loop
    assert loop is not None
    for _ in range(ROUNDS):
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()


class _Watched:
    """A bus under watch, and a client of it."""

    def __init__(self, server: Server, watch: Watch) -> None:
        self._server = server
        self._watch = watch
        self._client = RawClient(server.addresses["amqp"])
        self._sender, self._receiver = self._client.sender(QUEUE), self._client.receiver(QUEUE)

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    def _seen(self, do: Callable[[], object]) -> Watch:
        with self._watch.watching():
            do()
            _let_finish(self._server)
        copy = Watch()
        copy.calls, copy.functions = self._watch.calls, self._watch.functions
        return copy

    def once(self) -> dict[str, Watch]:
        seen = {"send": self._seen(lambda: self._client.outcome(self._sender, text("order")))}
        seen["bulk read"] = self._seen(self._read_in_bulk)
        got: list[Any] = []
        seen["delivery"] = self._seen(lambda: got.append(self._client.receive(self._receiver)))
        seen["settlement"] = self._seen(lambda: self._client.settle(got[0]))
        return seen

    def _read_in_bulk(self) -> None:
        address = f"{self._server.http_url}/$polybus/entities/{QUEUE}/range?partition=0&format=json"
        request = urllib.request.Request(address, headers={"Authorization": self._server.token()})
        with urllib.request.urlopen(request) as answer:
            answer.read()


def walks() -> dict[str, Walk]:
    """Each operation by name. Plain Python only: compiled functions cannot be watched."""
    assert polybus.BUILD == "plain", "set POLYBUS_BUILD=plain"
    watch = Watch()
    watch.install()
    try:
        with Server(config=CONFIG) as server:
            watched = _Watched(server, watch)
            try:
                watched.once()  # Whatever is loaded or made on first use is there afterwards.
                rounds = [watched.once() for _ in range(TIMES)]
            finally:
                watched.close()
    finally:
        watch.remove()
        sys.setprofile(None)
    return {name: common([seen[name] for seen in rounds]) for name in rounds[0]}
