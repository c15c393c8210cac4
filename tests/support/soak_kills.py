"""Kills a bus on real stores at random moments, again and again, and judges what its clients saw.

Each life is a forked process over the same stores (see `soak_child`); it is killed after a number of lines that the
seed chooses, so that a kill meets starts, recoveries and commits alike. A last life brings everything to rest and
tells what is stored; the verifier compares that with all lives. After some kills, and in the end, the offline checker
looks at the stores.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from polybus.testing.history import UNKNOWN, Event, History, Op, from_line
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, StoredMessage, Verdict, verify
from tests.support.campaigns import note
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.soak_child import Site, finish, live

STORES = 3
SLACK_MS = 50
"""How far a client's reading of a clock may be from the bus's own: both are on one machine, which may be busy."""
CHECK_EVERY = 5
"""Kills between two looks at the stores: a look reads every row."""
SERVER_KILLS = 0.15
"""How often the database server dies as well, where there is one."""


class Chronicle:
    """One history of many lives."""

    def __init__(self) -> None:
        self.history = History()
        self.findings: list[str] = []
        self.final: FinalState | None = None
        self.lines = 0
        self._base = 0
        self._intents: dict[bytes, Event] = {}
        self._rest = b""

    def feed(self, data: bytes) -> int:
        """Takes in what came through the pipe; gives how many whole lines that were."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        self.lines += len(lines)
        return len(lines)

    def _take(self, line: bytes) -> None:
        mark, rest = line[:1], line[1:]
        if mark == b"{":
            self.history.append(self._placed(from_line(line)))
        elif mark == b"?":
            number, _, event = rest.partition(b" ")
            self._intents[number] = self._placed(from_line(event))
        elif mark == b"!":
            self._intents.pop(rest, None)
        elif mark == b"E":
            self.findings.append(f"a life ended by itself:\n{json.loads(rest)}")
        elif mark == b"L":
            self.findings += [f"no rest at the end: {what}" for what in json.loads(rest)]
        elif mark == b"F":
            self.final = _final_state(json.loads(rest))

    def _placed(self, event: Event) -> Event:
        if event.after is not None:
            event.after += self._base
        return event

    def life_ends(self, began_ms: int, ended_ms: int, killed: bool) -> None:
        """What was under way is unknown; a line that was cut off never was."""
        self._rest = b""
        wall_ms = time.time_ns() // 1_000_000
        for event in self._intents.values():
            event.ended_ms = ended_ms
            event.wall_ms = wall_ms
            self.history.append(event)
        self._intents.clear()
        if killed:
            after = len(self.history)
            self.history.append(Event(began_ms, ended_ms, wall_ms, "harness", Op.RESTART, outcome="ok", after=after))
        self._base = len(self.history)


def _final_state(told: dict[str, Any]) -> FinalState:
    entities = {}
    for name, contents in told["entities"].items():
        options = {**contents["options"], "delivers_to": tuple(contents["options"]["delivers_to"])}
        messages = [StoredMessage(**message) for message in contents["messages"]]
        entities[name] = EntityContents(EntityOptions(**options), messages, contents["counters"])
    return FinalState(entities, told["wall_ms"])


class Killer:
    """One run of kills over one site."""

    def __init__(self, site: Site, seed: int, server: PostgresServer | None = None) -> None:
        self.chronicle = Chronicle()
        self.kills = 0
        self.checks = 0
        self._site = site
        self._rng = Random(seed)
        self._server = server

    def run(self, kills: int, progress: Callable[[int], None]) -> Verdict | None:
        for life in range(kills):
            self._live(life)
            if self.chronicle.findings:
                return None
            progress(life + 1)
            if self.kills % CHECK_EVERY == 0:
                self._check()
        return self._finish()

    def _live(self, life: int) -> None:
        """Starts a life and kills it in the middle of something."""
        lines = self._rng.choice(
            (1, 2, 3, self._rng.randint(4, 60), *(self._rng.randint(200, 3_000) for _ in range(6)))
        )
        strike = self._rng.randint(50, 300) if self._rng.random() < SERVER_KILLS else 0
        pid, pipe = _fork(lambda descriptor: live(self._site, life, descriptor))
        seen = 0
        while seen < lines:
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            seen += self.chronicle.feed(data)
            if self._server is not None and strike and seen >= strike:
                strike = 0
                self._server.kill()
                self._server.start()
        self._kill(pid, pipe)

    def _kill(self, pid: int, pipe: int) -> None:
        began_ms = _mono_ms()
        os.kill(pid, signal.SIGKILL)
        self._drain(pipe)
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status)
        self.kills += killed
        if not killed and not self.chronicle.findings:
            self.chronicle.findings.append(f"a life ended by itself with status {status}")
        self.chronicle.life_ends(began_ms, _mono_ms(), killed)

    def _drain(self, pipe: int) -> None:
        while data := os.read(pipe, 1 << 16):
            self.chronicle.feed(data)
        os.close(pipe)

    def _finish(self) -> Verdict | None:
        pid, pipe = _fork(lambda descriptor: finish(self._site, descriptor))
        self._drain(pipe)
        _, status = os.waitpid(pid, 0)
        self.chronicle.life_ends(_mono_ms(), _mono_ms(), killed=False)
        if status:
            self.chronicle.findings.append(f"the last life ended with status {status}")
        self._check()
        final = self.chronicle.final
        if final is None:
            return None
        for event in self.chronicle.history:
            if event.entity.startswith("fleeting"):
                final.entities.setdefault(event.entity, EntityContents(EntityOptions(4)))
        return verify([self.chronicle.history], final, slack_ms=SLACK_MS)

    def _check(self) -> None:
        """Looks at the stores in a process of its own, for one that has opened a store cannot fork."""
        pid, pipe = _fork(lambda descriptor: _tell_findings(self._site, descriptor))
        told = b""
        while data := os.read(pipe, 1 << 16):
            told += data
        os.close(pipe)
        _, status = os.waitpid(pid, 0)
        self.checks += 1
        if status:
            self.chronicle.findings.append(f"the checker ended with status {status}")
        else:
            self.chronicle.findings += [f"on disk: {finding}" for finding in json.loads(told)]


def _tell_findings(site: Site, descriptor: int) -> None:
    from polybus.operations.check import check

    report = check(site.catalogue, list(site.stores))
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(json.dumps([str(finding) for finding in report.findings]).encode())


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _fork(work: Callable[[int], None]) -> tuple[int, int]:
    """A process that does the work with one end of a pipe; gives its id and the other end."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    status = 1
    try:
        os.close(reading)
        work(writing)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


@contextmanager
def site_of(engine: str, seed: int) -> Iterator[tuple[Site, PostgresServer | None]]:
    """Fresh stores of the engine, gone afterwards."""
    if engine == "postgres":
        with postgres_server() as server:
            stores = tuple(server.url(f"store{index}") for index in range(STORES))
            yield Site(seed, stores, server.url("catalogue")), server
        return
    with tempfile.TemporaryDirectory(prefix="polybus-kills-") as folder:
        root = Path(folder)
        stores = tuple(f"rocksdb:{root / str(index)}" for index in range(STORES))
        yield Site(seed, stores, f"rocksdb:{root / 'catalogue'}"), None


def soak_kills(engine: str, kills: int, seed: int) -> int:
    """Kills so many times, prints what came of it; 1 where anything was found."""
    began = time.monotonic()
    with site_of(engine, seed) as (site, server):
        killer = Killer(site, seed, server)
        verdict = killer.run(kills, lambda done: print(f"\r{done} of {kills} kills", end="", file=sys.stderr))
    print(file=sys.stderr)
    chronicle = killer.chronicle
    seconds = time.monotonic() - began
    print(f"{killer.kills} kills on {engine} in {seconds:.0f} s, seed {seed}, {killer.checks} looks at the stores")
    unknown = sum(event.outcome == UNKNOWN for event in chronicle.history)
    print(f"{chronicle.lines} lines, {unknown} events of unknown outcome")
    for finding in chronicle.findings:
        print(finding)
    if verdict is not None:
        print(verdict.summary())
    broken = verdict is None or not verdict.clean or bool(chronicle.findings)
    note(f"kills on {engine}", killer.kills, seconds, seed, broken)
    return 1 if broken else 0
