"""The supervisor: starts workers, accepts for them, starts dead ones again and takes all of them down together.

It has no data and reads nothing of what clients say. It accepts in one place, for the kernel spreads few connections
badly over several listeners, and gives each socket to the worker that has the fewest clients. A worker that ends by
itself is started again, later each time; while it is away the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from polybus import limits
from polybus.errors import ConfigError
from polybus.gateway.listener import accept_client, listening_socket
from polybus.node import Node, NodeOptions, fill_addresses
from polybus.workers.spec import CLIENT, DRAIN, RELOAD, STOP, WorkerSpec

log = logging.getLogger("polybus")


class Worker:
    """One worker process, as its supervisor sees it."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.ready = False
        self.drained = False
        self.failure: str | None = None
        self.stores: list[list[str]] = []
        self._clients = 0
        self._handed = 0
        """Sockets that were handed over, of which the worker has seen `_seen`."""
        self._seen = 0
        self.starts = 0

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            command = [sys.executable, "-m", "polybus.workers.worker", str(theirs.fileno())]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()])
        finally:
            theirs.close()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.spec.write(self.process.stdin)
            self.process.stdin.close()
        ours.setblocking(False)
        self.control = ours
        self.ready = self.drained = False
        self._clients = self._handed = self._seen = 0
        self.starts += 1

    @property
    def clients(self) -> int:
        """Connections that it has, with those that are on their way to it."""
        return self._clients + self._handed - self._seen

    def hand_over(self, client: socket.socket) -> bool:
        """Gives it a client; False where it cannot take it now."""
        if self.control is None:
            return False
        try:
            socket.send_fds(self.control, [CLIENT], [client.fileno()])
        except OSError:
            return False
        self._handed += 1
        return True

    def say(self, word: bytes) -> None:
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.control.send(word)

    async def listen(self, changed: Callable[[], None]) -> int:
        """Hears what it says until it has ended; gives its exit code."""
        control, process = self.control, self.process
        assert control is not None
        assert process is not None
        loop = asyncio.get_running_loop()
        rest = b""
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(control, 65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._heard(json.loads(line))
                    changed()
        self.ready = False
        self.control = None
        control.close()
        code = await asyncio.to_thread(process.wait)
        changed()
        return code

    def _heard(self, words: dict[str, object]) -> None:
        if words.get("ready"):
            self.ready = True
            stores = words["stores"]
            assert isinstance(stores, list)
            self.stores = stores
        if "failed" in words:
            self.failure = str(words["failed"])
        if "drained" in words:
            self.drained = True
        if "clients" in words:
            clients, handed = words["clients"], words["handed"]
            assert isinstance(clients, int)
            assert isinstance(handed, int)
            self._clients, self._seen = clients, handed


class Supervisor:
    def __init__(self, options: NodeOptions, workers: int, json_logs: bool = False, verbose: bool = False) -> None:
        self.node = Node(options)
        """Never started: it knows what options mean."""
        self.options = options
        self.addresses: dict[str, tuple[str, int]] = {}
        self._count = workers
        self._logs = (json_logs, verbose)
        self._listening: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._changed = asyncio.Event()
        self.workers: list[Worker] = []
        self._links: Path | None = None
        self._was_ready = False

    # Start

    async def start(self) -> None:
        """Everything is up and a send works, through every worker, when this returns."""
        self.node.check_keys()
        self.node.check_certificates()
        options = replace(self.options, stores=told_apart(self.options.stores))
        self.options.data.mkdir(parents=True, exist_ok=True)
        self.node.tls_context()  # the development certificate is made once, not by all at once
        for name, port in options.ports():
            listening = listening_socket(options.host, port)
            self._listening.append(listening)
            self.addresses[name] = (options.host, int(listening.getsockname()[1]))
        fill_addresses(self.addresses)
        links = self._links = Path(tempfile.mkdtemp(prefix="polybus-"))
        for index in range(self._count):
            spec = WorkerSpec(options, index, self._count, links, self.addresses, *self._logs)
            worker = Worker(spec)
            worker.start()
            self.workers.append(worker)
        self._tasks = [asyncio.ensure_future(self._keep(worker)) for worker in self.workers]
        while not all(worker.ready for worker in self.workers):
            failed = next((worker.failure for worker in self.workers if worker.failure is not None), None)
            if failed is not None:
                await self.stop()
                raise ConfigError(failed)
            await self._wait()
        self._was_ready = True
        self._tasks += [asyncio.ensure_future(self._accept(listening)) for listening in self._listening]

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _keep(self, worker: Worker) -> None:
        """Listens to a worker, and starts it again when it ends by itself."""
        wait_s = limits.WORKER_RESTART_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            code = await worker.listen(self._changed.set)
            if self._stopping:
                return
            if not self._was_ready:
                worker.failure = worker.failure or f"{worker.spec.name} has ended while it started ({code})"
                self._changed.set()
                return
            if asyncio.get_running_loop().time() - began > limits.WORKER_WELL_SECONDS:
                wait_s = limits.WORKER_RESTART_SECONDS
            log.error("%s has ended (%s); it is started again", worker.spec.name, code)
            if self._loses_catalogue(worker):
                for other in self.workers:
                    if other is not worker and other.process is not None:
                        other.process.kill()
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, limits.WORKER_RESTART_SECONDS_MAX)
            worker.failure = None
            worker.start()

    def _loses_catalogue(self, worker: Worker) -> bool:
        """A catalogue in memory is gone with its process: nobody could tell what the others hold."""
        memory = self.options.catalogue is None and all(url.startswith("memory:") for url in self.options.stores)
        return worker.spec.index == 0 and (memory or (self.options.catalogue or "").startswith("memory:"))

    # Clients

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            client, _ = await accept_client(listening)
            await self._hand_over(client)
            client.close()

    async def _hand_over(self, client: socket.socket) -> None:
        """To whoever has the fewest; where none can take it, it waits for one, and the next behind it."""
        while not self._stopping:
            for worker in sorted((each for each in self.workers if each.ready), key=lambda each: each.clients):
                if worker.hand_over(client):
                    return
            await asyncio.sleep(limits.WORKER_TELL_SECONDS)

    def reload(self) -> None:
        for worker in self.workers:
            worker.say(RELOAD)

    # Stop

    async def stop(self) -> None:
        """Clients go first, everywhere; only then stores are closed, for any worker may need any store until then."""
        self._stopping = True
        accepting = self._tasks[len(self.workers) :]
        for task in accepting:
            task.cancel()
        for listening in self._listening:
            listening.close()
        for worker in self.workers:
            worker.say(DRAIN)
        await self._until(lambda worker: worker.drained or worker.control is None, limits.WORKER_STOP_SECONDS)
        for worker in self.workers:
            worker.say(STOP)
        await self._until(lambda worker: worker.control is None, limits.WORKER_STOP_SECONDS)
        for worker in self.workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._links is not None:
            shutil.rmtree(self._links, ignore_errors=True)

    async def _until(self, done: Callable[[Worker], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(done(worker) for worker in self.workers):
                    await self._wait()


def worker_count(text: str) -> int:
    """What `--workers` means: a number, or as many as there are cores."""
    if text == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= limits.WORKERS:
        raise ConfigError(f"--workers is a number from 1 to {limits.WORKERS}, or auto; not {text}")
    return int(text)


def told_apart(stores: list[str]) -> list[str]:
    """Stores in memory may have been given the same address several times; workers know stores by theirs."""
    return [
        f"{url}{number}" if url.startswith("memory:") and stores.count(url) > 1 else url
        for number, url in enumerate(stores)
    ]


async def run_workers(supervisor: Supervisor, announce: Callable[[Supervisor], None]) -> int:
    """Serves until a signal comes; 0 when all have stopped cleanly."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    starting = asyncio.ensure_future(supervisor.start())
    ending = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
        announce(supervisor)
        await ending
    else:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    log.info("stopping")
    await supervisor.stop()
    log.info("stopped")
    return 0
