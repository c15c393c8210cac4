"""Kills a whole bus under load, again and again, and has everything that clients saw judged.

A round starts `polybus serve` on fresh stores. Clients of the official SDK, each in a thread of its own, send without
and with keys, in sessions, twice with one id, for later, through a topic's rules and through queues that forward, and
others receive. After a number of acknowledged sends that the seed chooses the process gets SIGKILL and is started
again. In the end senders stop, receivers empty every place, and the verifier compares the histories.

Run it with `scripts/soak server --kills N`. A round is repeated with its seed, but threads and kills never meet twice
in the same way: the seed only says what was tried.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import random
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from polybus.clock import RealClock
from polybus.testing.history import OK, UNKNOWN, History, Op, Recorder
from polybus.testing.sdk_clients import RecordedClient, connect, message
from polybus.testing.server import ServerProcess
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, Verdict, verify

PARTITIONS: Final = 16
LOCK_MS: Final = 60_000
WINDOW_MS: Final = 600_000
COLOURS: Final = ("red", "blue")
KILLS_PER_ROUND: Final = 20
SENDS_PER_KILL: Final = (5, 120)
"""Acknowledged sends between two kills: from the first steps after a start to a bus in full swing."""
PATIENCE_S: Final = 120.0
WAIT_S: Final = 0.5
DUE_S: Final = 1.0
SLACK_MS: Final = 100
QUEUES: Final = ("wide", "unique", "later", "first")
EVERY, RED = "news/Subscriptions/every", "news/Subscriptions/red"
PLACES: Final = ("wide", "unique", "later", "last", EVERY, RED, "steps")
"""Where messages are received from."""


def entity_options() -> dict[str, EntityOptions]:
    """What the verifier must know of everything that stands in a history."""
    plain = EntityOptions(PARTITIONS, lock_ms=LOCK_MS)
    return {
        **dict.fromkeys(("wide", "later", "last", EVERY, RED), plain),
        "unique": EntityOptions(PARTITIONS, lock_ms=LOCK_MS, dedup_window_ms=WINDOW_MS),
        "steps": EntityOptions(PARTITIONS, sessions=True, lock_ms=LOCK_MS),
        "first": EntityOptions(PARTITIONS, lock_ms=LOCK_MS, delivers_to=("last",)),
        "news?red": EntityOptions(PARTITIONS, delivers_to=(EVERY, RED)),
        "news?blue": EntityOptions(PARTITIONS, delivers_to=(EVERY,)),
    }


def create_entities(server: ServerProcess) -> None:
    lasting: dict[str, Any] = {
        "enable_partitioning": True,
        "max_delivery_count": 1000,
        "lock_duration": datetime.timedelta(milliseconds=LOCK_MS),
    }
    window = datetime.timedelta(milliseconds=WINDOW_MS)
    with ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as admin:
        for name in ("wide", "later", "last"):
            admin.create_queue(name, **lasting)
        admin.create_queue("first", forward_to="last", **lasting)
        admin.create_queue("steps", requires_session=True, **lasting)
        admin.create_queue(
            "unique", requires_duplicate_detection=True, duplicate_detection_history_time_window=window, **lasting
        )
        admin.create_topic("news", enable_partitioning=True)
        for name in ("every", "red"):
            admin.create_subscription("news", name, max_delivery_count=1000, lock_duration=lasting["lock_duration"])
        admin.delete_rule("news", "red", "$Default")
        admin.create_rule("news", "red", "red", filter=SqlRuleFilter("colour = 'red'"))


@dataclass
class Round:
    """One bus, its clients, and what they share: whether it is up, and how far they are."""

    server: ServerProcess
    seed: int
    up: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Senders stop; receivers go on."""
    ended: threading.Event = field(default_factory=threading.Event)
    progress: threading.Condition = field(default_factory=threading.Condition)
    acknowledged: int = 0
    crashes: list[str] = field(default_factory=list)

    def note_progress(self) -> None:
        with self.progress:
            self.acknowledged += 1
            self.progress.notify_all()

    def wait_for(self, acknowledged: int) -> None:
        with self.progress:
            if not self.progress.wait_for(lambda: self.acknowledged >= acknowledged, PATIENCE_S):
                raise RuntimeError("the clients make no progress:\n" + "".join(self.server.output[-20:]))


class Client(threading.Thread):
    """A client in a thread of its own. When the bus is gone it waits for the next one and connects again."""

    def __init__(self, name: str, run: Round) -> None:
        super().__init__(name=name, daemon=True)
        self.round = run
        self.rng = random.Random(f"{run.seed} {name}")
        self.pen = RecordedClient(name)
        self.sent = 0

    def run(self) -> None:
        try:
            while not self.over():
                if self.round.up.wait(WAIT_S):
                    self._visit()
        except Exception as error:
            self.round.crashes.append(f"{self.name}: {error!r}")

    def _visit(self) -> None:
        """As long as one connection lasts. That it cannot be closed decently is what a kill is about."""
        sdk = connect(self.round.server.connection_string)
        with contextlib.ExitStack() as opened:
            opened.callback(_close, sdk)
            self.work(sdk)

    def over(self) -> bool:
        return self.round.stopping.is_set()

    def work(self, sdk: Any) -> None:
        raise NotImplementedError

    def next_id(self) -> str:
        self.sent += 1
        return f"{self.name} {self.sent}"


def _close(handler: Any) -> None:
    with contextlib.suppress(Exception):
        handler.close()


def _open(handler: Any) -> Any:
    """The handler, connected; None where the bus is not there."""
    try:
        return handler.__enter__()
    except Exception:
        _close(handler)
        return None


class Sending(Client):
    """Sends to one entity after the other until a send's outcome is unknown."""

    def work(self, sdk: Any) -> None:
        senders: dict[str, Any] = {}
        try:
            outcome = OK
            while outcome != UNKNOWN and not self.over():
                name = self.rng.choice((*QUEUES, "steps", "news"))
                if name not in senders and (sender := _open(sdk.get_queue_sender(name))) is None:
                    return
                outcome = self.send(name, senders.setdefault(name, senders.get(name) or sender))
                if outcome == OK:
                    self.round.note_progress()
        finally:
            for each in senders.values():
                _close(each)

    def send(self, name: str, sender: Any) -> str:
        message_id = self.next_id()
        if name == "unique":
            return self._twice(sender, message_id)
        if name == "later":
            return self._later(sender, message_id)
        if name == "steps":
            return self.pen.send(sender, name, message(message_id, session_id=f"session {self.rng.randrange(6)}"))
        if name == "news":
            colour = self.rng.choice(COLOURS)
            sent = message(message_id, partition_key=self._key(), application_properties={"colour": colour})
            return self.pen.send(sender, f"news?{colour}", sent)
        if self.rng.random() < 0.2:
            key = self._key()
            batch = [message(message_id, partition_key=key)]
            batch += [message(self.next_id(), partition_key=key) for _ in range(4)]
            return self.pen.send_batch(sender, name, message_id, batch)
        return self.pen.send(sender, name, message(message_id, partition_key=self._key()))

    def _key(self) -> str | None:
        return f"key {self.rng.randrange(20)}" if self.rng.random() < 0.5 else None

    def _twice(self, sender: Any, message_id: str) -> str:
        """The second is dropped, or takes the place of a first that was lost on its way."""
        outcome = self.pen.send(sender, "unique", message(message_id))
        return self.pen.send(sender, "unique", message(message_id)) if outcome == OK else outcome

    def _later(self, sender: Any, message_id: str) -> str:
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=DUE_S)
        number = self.pen.schedule(sender, "later", message(message_id), due)
        if number is not None and self.rng.random() < 0.4:
            self.pen.cancel(sender, "later", number, message_id)
        return self.pen.history.events[-1].outcome


class Receiving(Client):
    """Receives from one place and completes nearly everything; some is abandoned first."""

    def __init__(self, place: str, run: Round) -> None:
        super().__init__(f"receiver of {place}", run)
        self.place = place

    def over(self) -> bool:
        return self.round.ended.is_set()

    def work(self, sdk: Any) -> None:
        receiver = _open(self._receiver(sdk))
        if receiver is None:
            return
        try:
            while not self.over():
                found = self.pen.try_receive(receiver, self.place, 20, WAIT_S, LOCK_MS)
                if found is None or not all(self._settle(receiver, each) for each in found):
                    return
        finally:
            _close(receiver)

    def _receiver(self, sdk: Any) -> Any:
        topic, _, subscription = self.place.partition("/Subscriptions/")
        return sdk.get_subscription_receiver(topic, subscription) if subscription else sdk.get_queue_receiver(topic)

    def _settle(self, receiver: Any, seen: Any) -> bool:
        op = Op.ABANDON if self.rng.random() < 0.05 else Op.COMPLETE
        return self.pen.settle(receiver, self.place, seen, op) != UNKNOWN


class ReceivingSessions(Receiving):
    """Accepts whatever session has messages, takes some of them and gives it back."""

    def work(self, sdk: Any) -> None:
        while not self.over():
            receiver = sdk.get_queue_receiver(self.place, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S)
            accepted = self.pen.accept(receiver, self.place)
            if accepted is None:
                _close(receiver)
                if not self.round.up.is_set() or "OperationTimeoutError" not in self.pen.failures:
                    return
                continue
            try:
                for _ in range(self.rng.randrange(1, 4)):
                    found = self.pen.try_receive(receiver, self.place, 5, WAIT_S, LOCK_MS, accepted)
                    if found is None or not all(self._settle(receiver, each) for each in found):
                        return
            finally:
                self.pen.release(receiver, self.place)


def play(folder: Path, kills: int, seed: int) -> tuple[Verdict, Counter[str]]:
    """One round; gives the verdict and its figures. RuntimeError where the bus comes to no rest."""
    rng = random.Random(seed)
    with ServerProcess(folder) as server:
        create_entities(server)
        run = Round(server, seed)
        run.up.set()
        senders: list[Client] = [Sending(f"sender {number}", run) for number in range(3)]
        receivers: list[Client] = [Receiving(place, run) for place in PLACES if place != "steps"]
        receivers += [ReceivingSessions("steps", run)]
        for client in (*senders, *receivers):
            client.start()
        reaper = Recorder("reaper", RealClock(), History())
        for _ in range(kills):
            run.wait_for(run.acknowledged + rng.randint(*SENDS_PER_KILL))
            _kill(run, reaper)
        run.wait_for(run.acknowledged + SENDS_PER_KILL[0])
        run.stopping.set()
        _join(senders)
        final = _drained(run)
        run.ended.set()
        _join(receivers)
        if run.crashes:
            raise RuntimeError("; ".join(run.crashes))
        clients = (*senders, *receivers)
        verdict = verify([reaper.history, *(client.pen.history for client in clients)], final, slack_ms=SLACK_MS)
        figures = Counter(verdict.report) + Counter({"kills": kills, "unknown settlements": _unknown(clients)})
        return verdict, figures


def _kill(run: Round, reaper: Recorder) -> None:
    began = reaper.begin()
    run.up.clear()
    run.server.kill()
    run.server.start()
    reaper.record(Op.RESTART, began=began)
    run.up.set()


def _join(clients: list[Client]) -> None:
    for client in clients:
        client.join(PATIENCE_S)
        if client.is_alive():
            raise RuntimeError(f"{client.name} hangs")


def _unknown(clients: tuple[Client, ...]) -> int:
    ops = (Op.COMPLETE, Op.ABANDON)
    return sum(event.op in ops and event.outcome == UNKNOWN for each in clients for event in each.pen.history)


def _drained(run: Round) -> FinalState:
    """Waits until the receivers have taken everything; then nothing may be left anywhere."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        counters = _counters(run.server)
        if not any(each["total"] for each in counters.values()) or time.monotonic() > deadline:
            break
        with run.progress:
            run.progress.wait(0.1)
    options = entity_options()
    entities = {name: EntityContents(options[name], [], counters.get(name, {})) for name in options}
    return FinalState(entities, RealClock().now().wall_ms)


def _counters(server: ServerProcess) -> dict[str, dict[str, int]]:
    import httpx

    from polybus.cli.endpoint import Endpoint

    headers = {"Authorization": Endpoint(server.connection_string).token()}
    found: dict[str, dict[str, int]] = {}
    with httpx.Client(base_url=server.http_url, headers=headers, timeout=30, trust_env=False) as http:
        for name in (*PLACES, "first"):
            answer = http.get(f"/$polybus/entities/{name.replace('/', '%2F')}/partitions").raise_for_status()
            counts = [each["counts"] for each in answer.json()["partitions"]]
            total = sum(each["total"] + each["transfer"] for each in counts)
            found[name] = {"dead_letter": sum(each["dead_letter"] for each in counts), "total": total}
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak server", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="kills in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ResourceWarning)
    figures: Counter[str] = Counter()
    seed = options.seed
    while figures["kills"] < options.kills:
        kills = min(KILLS_PER_ROUND, options.kills - figures["kills"])
        with tempfile.TemporaryDirectory(prefix="polybus-soak-") as folder:
            verdict, more = play(Path(folder), kills, seed)
        figures += more
        print(
            f"seed {seed}: {figures['kills']} of {options.kills} kills, {figures['acknowledged']} sends", flush=True
        )
        if not verdict.clean:
            print(f"seed {seed} of scripts/soak server:\n{verdict.summary()}")
            return 1
        seed += 1
    print("clean: " + ", ".join(f"{name} {count}" for name, count in sorted(figures.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
