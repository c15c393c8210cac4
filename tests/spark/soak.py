"""Kills drivers, executors and the bus under a running pipeline: `scripts/soak spark --kills N [--seed S]`.

Each sink has its share of the kills, and each kill a line in the table: what was killed, how many rows the sink held
when it had caught up, and whether each was there once. It ends with 1 where anything was lost, doubled or stuck.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

from polybus.testing.server import ServerProcess
from tests.spark.soak_play import SINKS, VICTIMS, Play

MASTER = "local-cluster[1,2,1024]"
"""Executors in processes of their own, so that one can be killed without its driver."""


def victims_for(kills: int, sinks: list[str], seed: int) -> dict[str, list[str]]:
    """Every kind of victim for every sink in turn, in an order that the seed chooses."""
    rng = random.Random(seed)
    pairs = [(sink, victim) for victim in VICTIMS for sink in sinks]
    rng.shuffle(pairs)
    chosen = [pairs[number % len(pairs)] for number in range(kills)]
    return {sink: [victim for place, victim in chosen if place == sink] for sink in sinks}


def soak(folder: Path, kills: int, sinks: list[str], seed: int) -> int:
    failures = number = 0
    print(f"{'kill':>4}  {'victim':<8}  {'sink':<7}  {'rows':>7}  {'s':>4}  verdict", flush=True)
    for sink, victims in victims_for(kills, sinks, seed).items():
        place = folder / sink
        place.mkdir()
        with ServerProcess(place / "data", "--stores", "4") as server:
            play = Play(server, place, sink, MASTER, seed)
            try:
                with play.running():
                    for victim in victims:
                        number, began = number + 1, time.monotonic()
                        rows = play.kill(victim)
                        _line(number, victim, sink, rows, began, "each row once")
                    began = time.monotonic()
                    _line(
                        0,
                        "none",
                        sink,
                        play.finish(),
                        began,
                        f"all rows once, cursor drained, {play.driver.starts} starts",
                    )
            except (AssertionError, RuntimeError) as error:
                failures += 1
                _line(number, "", sink, 0, began, f"FAILED: {error}")
    print(f"{number} kills, seed {seed}: {failures} of {len(sinks)} sinks with findings", flush=True)
    return 1 if failures else 0


def _line(number: int, victim: str, sink: str, rows: int, began: float, verdict: str) -> None:
    seconds = time.monotonic() - began
    print(f"{number or '':>4}  {victim:<8}  {sink:<7}  {rows:>7}  {seconds:>4.0f}  {verdict}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak spark", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="kills in all (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of victims (1)")
    parser.add_argument("--sinks", default=",".join(SINKS), help=f"only these of {','.join(SINKS)}")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="polybus-soak-", ignore_cleanup_errors=True) as folder:
        return soak(Path(folder), options.kills, options.sinks.split(","), options.seed)


if __name__ == "__main__":
    sys.exit(main())
