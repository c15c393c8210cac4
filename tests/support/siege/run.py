"""An adversary against a real server beside a well-behaved SDK client: `scripts/siege`.

The short run does each attack once and judges, attack by attack, the longest step of the server's loop, its memory and
its descriptors, and that the client is served at the end as at the beginning. The long run (`--minutes`) repeats them
in an order drawn from a seed, with a pause between two of them, and judges also the client's 99th percentile: at most
three times that of the same server left in peace.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.siege import attacks_http, attacks_known, attacks_strangers
from tests.support.siege.attack import MB, Attack, Scene
from tests.support.siege.watched import WatchedServer

ATTACKS: list[Attack] = [*attacks_strangers.ATTACKS, *attacks_http.ATTACKS, *attacks_known.ATTACKS]
QUIET_SECONDS = 5.0
SETTLE_SECONDS = 0.15
"""After an attack: what it has left for the server to do is counted as its own."""
PAUSE_SECONDS = 0.2
"""Between two attacks of the long run: the adversary's rate is capped, the question is what each one costs others."""
P99_FACTOR = 3.0
P99_FLOOR_S = 0.05
"""Below this a client does not feel the difference, and the machine's own noise is as large."""
FULL, LIKES = 4_000, 2_000


@dataclass
class Verdict:
    attack: Attack
    step_ms: float
    step: str
    grown: int
    descriptors: int
    took_s: float

    @property
    def faults(self) -> list[str]:
        found = []
        if self.step_ms > self.attack.step_ms:
            found.append(f"a step of {self.step_ms} ms ({self.step})")
        if self.grown > self.attack.bytes:
            found.append(f"{self.grown / MB:.0f} MB")
        if self.descriptors > self.attack.descriptors:
            found.append(f"{self.descriptors} descriptors")
        return found


class GoodClient:
    """Sends a message and receives it, again and again; how long each round took."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self.rounds: list[float] = []
        self.errors: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _run(self) -> None:
        with ServiceBusClient.from_connection_string(self._connection) as client:
            sender, receiver = client.get_queue_sender("good"), client.get_queue_receiver("good")
            with sender, receiver:
                while not self._stopped.is_set():
                    try:
                        self._round(sender, receiver)
                    except Exception as error:
                        self.errors.append(repr(error))

    def _round(self, sender: object, receiver: object) -> None:
        begun = time.perf_counter()
        sender.send_messages(ServiceBusMessage("good"))  # type: ignore[attr-defined]
        for message in receiver.receive_messages(1, max_wait_time=30):  # type: ignore[attr-defined]
            receiver.complete_message(message)  # type: ignore[attr-defined]
        self.rounds.append(time.perf_counter() - begun)
        self._stopped.wait(0.01)


def config() -> str:
    """Entities to attack: an empty queue, one for a backlog, a topic full of rules."""
    rules = [
        {
            "Name": f"r{number}",
            "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": f"p LIKE '%_b_c{number}%'"}},
        }
        for number in range(LIKES)
    ]
    topic = {"Name": "likes", "Subscriptions": [{"Name": "all", "Rules": rules}]}
    queues = [{"Name": name} for name in ("good", "victim", "empty", "full")]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": [topic]}
    return json.dumps({"UserConfig": {"Namespaces": [namespace]}})


def fill(server: WatchedServer) -> None:
    client = ServiceBusClient.from_connection_string(server.connection_string)
    with client, client.get_queue_sender("full") as sender:
        for _ in range(FULL // 500):
            sender.send_messages([ServiceBusMessage("x" * 100) for _ in range(500)])


def judge(server: WatchedServer, scene: Scene, attack: Attack) -> Verdict:
    before = server.cost()
    begun = time.monotonic()
    attack.run(scene)
    took_s = time.monotonic() - begun
    time.sleep(SETTLE_SECONDS)
    after = server.cost()
    grown = after.resident_bytes - before.resident_bytes
    return Verdict(attack, after.step_ms, after.step, grown, after.descriptors - before.descriptors, took_s)


def report(verdicts: list[Verdict]) -> None:
    worst: dict[str, Verdict] = {}
    for verdict in verdicts:
        known = worst.setdefault(verdict.attack.name, verdict)
        if verdict.step_ms > known.step_ms or verdict.faults:
            worst[verdict.attack.name] = verdict
    print("| attack | by | step ms (bound) | MB (bound) | descriptors (bound) |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name, one in worst.items():
        bound = one.attack
        who = "known" if bound.known else "stranger"
        memory = f"{one.grown / MB:.1f} ({bound.bytes // MB})"
        files = f"{one.descriptors} ({bound.descriptors})"
        print(f"| {name} | {who} | {one.step_ms} ({bound.step_ms:g}) | {memory} | {files} |")


def percentile(rounds: list[float]) -> float:
    return statistics.quantiles(rounds, n=100)[98] if len(rounds) > 1 else 0.0


def run(minutes: float, seed: int, only: str) -> int:
    chosen = [attack for attack in ATTACKS if only in attack.name]
    drawn = random.Random(seed)
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(config())
        options = ("--store", f"rocksdb:{folder}/store", "--config", str(file))
        server = WatchedServer(Path(folder) / "bus", *options)
        with server:
            fill(server)
            scene, good = Scene(server), GoodClient(server.connection_string)
            good.start()
            time.sleep(QUIET_SECONDS)
            quiet = list(good.rounds)
            verdicts = []
            until = time.monotonic() + 60 * minutes
            for attack in chosen:
                verdicts.append(judge(server, scene, attack))
                print(f"{verdicts[-1].took_s:5.1f} s  {attack.name}", "; ".join(verdicts[-1].faults), flush=True)
            while minutes and time.monotonic() < until:
                verdicts.append(judge(server, scene, drawn.choice(chosen)))
                time.sleep(PAUSE_SECONDS)
            served = len(good.rounds)
            time.sleep(1)
            good.stop()
            faults += [f"{one.attack.name}: {fault}" for one in verdicts for fault in one.faults]
            faults += [] if len(good.rounds) > served else ["the client is not served any more"]
            faults += [f"the client heard of {error}" for error in good.errors[:5]]
            loud = [line for line in server.output if "Traceback" in line or "could not be handled" in line]
            faults += [f"the server says {line.strip()}" for line in loud[:5]]
            report(verdicts)
            calm, busy = percentile(quiet), percentile(good.rounds[len(quiet) :])
            print(f"client: {len(good.rounds)} rounds, p99 {1000 * calm:.0f} ms quiet, {1000 * busy:.0f} ms besieged")
            if minutes and busy > P99_FACTOR * max(calm, P99_FLOOR_S):
                faults.append(f"the client's p99 is {busy / calm:.1f} times that of quiet")
    print(f"{len(chosen)} attacks, {len(verdicts)} times, seed {seed}: {len(faults)} faults")
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/siege", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="go on for so long, and judge the client's p99 (0)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    given = parser.parse_args()
    sys.exit(run(given.minutes, given.seed, given.only))
