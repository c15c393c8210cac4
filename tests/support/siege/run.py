"""An adversary against a real server beside a well-behaved SDK client: `scripts/siege`.

The short run does each attack once and judges, attack by attack, the longest step of the server's loop, its memory and
its descriptors, and that the client is served at the end as at the beginning. The long run (`--minutes`) goes on with
them in an order drawn from a seed: peace and siege by turns, for the machine may be slower in one minute than in
another, and after each attack a pause as long as it took, so that the adversary has at most half of the time. It judges
also the client's 99th percentile: at most three times that of the same server left in peace.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.campaigns import note
from tests.support.siege import attacks_http, attacks_known, attacks_strangers
from tests.support.siege.attack import MB, Attack, Scene
from tests.support.siege.good_client import ClientRound, GoodClient
from tests.support.siege.watched import WatchedServer

ATTACKS: list[Attack] = [*attacks_strangers.ATTACKS, *attacks_http.ATTACKS, *attacks_known.ATTACKS]
QUIET_SECONDS = 5.0
SETTLE_SECONDS = 0.15
"""After an attack: what it has left for the server to do is counted as its own."""
SIEGE_SECONDS = 20.0
"""How long the adversary has its turn in the long run; then there is peace for QUIET_SECONDS."""
PAUSE_SECONDS = 0.2
"""Between two attacks of the long run, at least: the adversary's rate is capped, the question is what each one costs
others."""
P99_FACTOR = 3.0
P99_FLOOR_S = 0.02
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


@dataclass
class Turns:
    """Who had its turn when: the client's rounds are told apart by it."""

    peace: list[tuple[float, float]] = field(default_factory=list)
    siege: list[tuple[float, float]] = field(default_factory=list)

    def p99_s(self, rounds: list[ClientRound], turns: list[tuple[float, float]]) -> float:
        return percentile([one.took_s for one in rounds if any(a <= one.begun_s < b for a, b in turns)])

    def fault(self, rounds: list[ClientRound]) -> str | None:
        """What is wrong with how the client was served while besieged."""
        calm_s, busy_s = self.p99_s(rounds, self.peace), self.p99_s(rounds, self.siege)
        print(f"client: {len(rounds)} rounds, p99 {1000 * calm_s:.0f} ms quiet, {1000 * busy_s:.0f} ms besieged")
        if busy_s > P99_FACTOR * max(calm_s, P99_FLOOR_S):
            return f"the client's p99 is {busy_s / max(calm_s, P99_FLOOR_S):.1f} times that of quiet"
        return None


def peace(turns: Turns) -> None:
    begun_s = time.monotonic()
    time.sleep(QUIET_SECONDS)
    turns.peace.append((begun_s, time.monotonic()))


def besiege(server: WatchedServer, scene: Scene, chosen: list[Attack], drawn: random.Random) -> Iterator[Verdict]:
    """Attacks for one turn of the long run, each followed by a pause as long as it took."""
    until_s = time.monotonic() + SIEGE_SECONDS
    while time.monotonic() < until_s:
        verdict = judge(server, scene, drawn.choice(chosen))
        yield verdict
        time.sleep(max(PAUSE_SECONDS, verdict.took_s))


def run(minutes: float, seed: int, only: str) -> int:
    chosen = [attack for attack in ATTACKS if only in attack.name]
    drawn, turns = random.Random(seed), Turns()
    faults: list[str] = []
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(config())
        options = ("--store", f"rocksdb:{folder}/store", "--config", str(file))
        server = WatchedServer(Path(folder) / "bus", *options)
        with server:
            fill(server)
            scene, good = Scene(server), GoodClient(server.connection_string)
            peace(turns)
            verdicts = []
            for attack in chosen:
                verdicts.append(judge(server, scene, attack))
                print(f"{verdicts[-1].took_s:5.1f} s  {attack.name}", "; ".join(verdicts[-1].faults), flush=True)
            while time.monotonic() - begun_s < 60 * minutes:
                peace(turns)
                siege_s = time.monotonic()
                verdicts += besiege(server, scene, chosen, drawn)
                turns.siege.append((siege_s, time.monotonic()))
            served = len(good.rounds)
            time.sleep(1)
            faults += [] if len(good.rounds) > served else ["the client is not served any more"]
            good.stop()
            faults += [f"{one.attack.name}: {fault}" for one in verdicts for fault in one.faults]
            faults += [f"the client heard of {error}" for error in good.errors[:5]]
            loud = [line for line in server.output if "Traceback" in line or "could not be handled" in line]
            faults += [f"the server says {line.strip()}" for line in loud[:5]]
            report(verdicts)
            slow = turns.fault(good.rounds)
            faults += [slow] if slow is not None and turns.siege else []
    print(f"{len(chosen)} attacks, {len(verdicts)} times, seed {seed}: {len(faults)} faults")
    for fault in faults:
        print(f"FAULT {fault}")
    if not only:
        note("siege" if minutes else "short siege", len(verdicts), time.monotonic() - begun_s, seed, bool(faults))
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
