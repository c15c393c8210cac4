"""Kills and freezes nodes of a cluster under load, again and again, and has everything that clients saw judged.

A round starts three nodes on a fresh PostgreSQL server. The clients are those of `scripts/soak server`: some are connected
to the first node, some to the second. The second or the third is killed and started again, or frozen for longer than its
lease and thawed. In the end every place is emptied, and the verifier compares the histories.

Run it with `scripts/soak cluster --kills N --stops N`. Rounds are added to a file with their commit and seed: a campaign
that was interrupted goes on where it was, and counts only rounds of the commit that it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from polybus.clock import RealClock
from polybus.testing.history import History, Op, Recorder
from polybus.testing.verifier import Verdict, verify
from tests.support.cluster import Cluster, cluster_of
from tests.support.postgres import postgres_server
from tests.support.sdk_load import Client, Receiving, ReceivingSessions, Round, Sending
from tests.support.server_soak import PLACES, SLACK_MS, _drained, _join, create_entities
from tests.support.transacting import Transacting

HARMS_PER_ROUND: Final = 10
SENDS_BETWEEN: Final = (5, 60)
FROZEN_S: Final = (3.5, 8.0)
"""Longer than a lease lasts."""
RUNS: Final = Path(__file__).parents[1] / "crash" / "cluster_runs.jsonl"


def play(folder: Path, kills: int, stops: int, seed: int) -> tuple[Verdict, Counter[str]]:
    """One round; gives the verdict and its figures. RuntimeError where the bus comes to no rest."""
    rng = random.Random(seed)
    harms = ["kill"] * kills + ["stop"] * stops
    rng.shuffle(harms)
    with postgres_server() as server, cluster_of(Cluster(folder, server, "soak"), "a", "b", "c") as cluster:
        create_entities(cluster.nodes["a"])
        run = Round(cluster.nodes["a"], seed)
        run.up.set()
        second = replace(run, server=cluster.nodes["b"])
        senders: list[Client] = [Sending("sender a", run), Sending("sender b", second), Sending("sender c", run)]
        senders += [Transacting("transactor a", run), Transacting("transactor b", second)]
        receivers: list[Client] = [Receiving(place, run) for place in PLACES if place != "steps"]
        receivers += [ReceivingSessions("steps", run)]
        for client in (*senders, *receivers):
            client.start()
        reaper = Recorder("reaper", RealClock(), History())
        for harm in harms:
            run.wait_for(run.acknowledged + rng.randint(*SENDS_BETWEEN))
            began = reaper.begin()
            _harm(cluster, harm, rng)
            reaper.record(Op.RESTART, began=began)
        run.wait_for(run.acknowledged + SENDS_BETWEEN[0])
        run.stopping.set()
        _join(senders)
        try:
            for place in (*PLACES, "first"):
                cluster.wait_serving(place, "a", "b", "c")  # what is away is not counted
        except AssertionError:
            _show(cluster)
            raise
        final = _drained(run)
        run.ended.set()
        _join(receivers)
        if run.crashes:
            raise RuntimeError("; ".join(run.crashes))
        clients = (*senders, *receivers)
        verdict = verify([reaper.history, *(client.recorder.history for client in clients)], final, slack_ms=SLACK_MS)
        return verdict, Counter(verdict.report) + Counter({"kills": kills, "stops": stops})


def _show(cluster: Cluster) -> None:
    """What the nodes said, for whoever looks for the fault."""
    print(f"owners: {cluster.owners()}", file=sys.stderr)
    for name, node in cluster.nodes.items():
        print(f"--- {name}\n{''.join(node.output)[-8000:]}", file=sys.stderr)


def _harm(cluster: Cluster, harm: str, rng: random.Random) -> None:
    """Returns when the node is back and every store has settled."""
    node = cluster.nodes[rng.choice("bc")]
    if harm == "kill":
        node.kill()
        node.start()
    else:
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(rng.uniform(*FROZEN_S))  # this is what is tried, not a wait for something
        os.kill(node.pid, signal.SIGCONT)
    cluster.wait_even(3)


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def _done(path: Path, commit: str) -> tuple[Counter[str], int]:
    """What rounds of this commit add up to, and the next seed."""
    figures: Counter[str] = Counter()
    last = 0
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        last = max(last, run["seed"])
        if run["commit"] == commit and run["clean"]:
            figures += Counter(run["figures"])
    return figures, last + 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="kills in all")
    parser.add_argument("--stops", type=int, default=20, help="freezes in all")
    parser.add_argument("--seed", type=int, default=None, help="plays one round with this seed, and no other")
    parser.add_argument("--file", type=Path, default=RUNS, help="where rounds are added up")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ResourceWarning)
    commit = _commit()
    while True:
        figures, seed = _done(options.file, commit)
        kills, stops = options.kills - figures["kills"], options.stops - figures["stops"]
        if options.seed is not None:
            kills, stops, seed = options.kills, options.stops, options.seed
        if kills <= 0 and stops <= 0:
            print("clean: " + ", ".join(f"{name} {count}" for name, count in sorted(figures.items())))
            return 0
        kills, stops = max(min(kills, HARMS_PER_ROUND // 2), 0), max(min(stops, HARMS_PER_ROUND // 2), 0)
        with tempfile.TemporaryDirectory(prefix="polybus-soak-") as folder:
            verdict, more = play(Path(folder), kills, stops, seed)
        with options.file.open("a") as file:
            file.write(json.dumps({"commit": commit, "seed": seed, "clean": verdict.clean, "figures": more}) + "\n")
        print(f"seed {seed}: {kills} kills, {stops} freezes, {more['acknowledged']} sends", flush=True)
        if not verdict.clean:
            print(f"seed {seed} of scripts/soak cluster:\n{verdict.summary()}")
            return 1
        if options.seed is not None:
            return 0


if __name__ == "__main__":
    sys.exit(main())
