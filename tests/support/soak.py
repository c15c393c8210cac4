"""Hunts for faults for as long as it is told to: seeds of the simulator, or kills of a bus on real stores.

Every finding names what to run to see it again. The figures at the end say what the run has done, so that a clean one
means something. Nothing is judged here: the simulator and the crash test bring their own verdicts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tests.support.campaigns import next_seed, note, totals
from tests.support.simulation import Outcome, simulate
from tests.support.simulation.nemesis import MISFORTUNES
from tests.support.simulation.places import KINDS

CHUNK = 10
"""Seeds that a worker plays before it reports: few enough that progress is seen."""
PROGRESS_SECONDS = 5.0


@dataclass
class Played:
    """What a worker reports."""

    seeds: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Game:
    """What to play, and with what given instead of left to the seed."""

    kinds: list[str] | None = None
    troubles: list[str] | None = None
    shuffle: bool = False
    rests: bool = False

    def one(self, seed: int) -> Outcome:
        return simulate(seed, kinds=self.kinds, troubles=self.troubles, shuffle=self.shuffle, rests=self.rests)

    def play(self, seeds: list[int]) -> Played:
        played = Played()
        for seed in seeds:
            played.seeds += 1
            try:
                outcome = self.one(seed)
            except Exception:
                played.failures.append(f"seed {seed}:\n{traceback.format_exc()}")
                continue
            played.figures.update(outcome.figures)
            if not outcome.clean:
                played.failures.append(outcome.summary())
        return played

    def kind(self) -> str:
        """As the file of campaigns calls it: seeds that were played otherwise are others."""
        return f"seeds {self.words()}".rstrip()

    def words(self) -> str:
        """The options with which a seed is played again in the same way."""
        words = [f"--kinds {','.join(self.kinds)}"] if self.kinds else []
        words += [f"--troubles '{','.join(self.troubles)}'"] if self.troubles else []
        words += ["--rests"] if self.rests else []
        return " ".join([*words, "--shuffle"] if self.shuffle else words)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.totals:
        print(totals())
        return 0
    if options.kills is not None:
        from tests.support.soak_kills import soak_kills

        start = options.start if options.start is not None else next_seed(f"kills on {options.engine}")
        return soak_kills(options.engine, options.kills, start)
    game = Game(_listed(options.kinds), _listed(options.troubles), options.shuffle, options.rests)
    if options.seed is not None:
        return _show(game, options.seed, options.trace)
    start = options.start if options.start is not None else next_seed(game.kind())
    return _soak(game, start, options.seeds, options.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Plays seeds of the namespace simulator, or kills a bus on real stores again and again."
        " Prints what it has done; ends with 1 where anything was found.",
    )
    parser.add_argument("--seeds", type=int, default=500, metavar="N", help="how many seeds to play (500)")
    parser.add_argument(
        "--start", type=int, metavar="S", help="the first seed, of plays or of kills (behind those that were played)"
    )
    parser.add_argument("--totals", action="store_true", help="only say what all runs have done so far")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="workers at once")
    parser.add_argument("--seed", type=int, metavar="S", help="play this one seed only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print its whole history")
    parser.add_argument("--kinds", metavar="LIST", help=f"only these entities: {','.join(KINDS)}")
    parser.add_argument("--troubles", metavar="LIST", help=f"only these misfortunes: {','.join(MISFORTUNES)}")
    parser.add_argument("--shuffle", action="store_true", help="choose also where an event loop would not")
    parser.add_argument(
        "--rests",
        action="store_true",
        help="clients also abandon with a delay, un-defer, reschedule, redrive and purge",
    )
    parser.add_argument("--kills", type=int, metavar="N", help="kill a bus on real stores so many times instead")
    parser.add_argument("--engine", choices=("rocksdb", "postgres"), default="rocksdb", help="with --kills: on what")
    return parser


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [item.strip() for item in text.split(",") if item.strip()]


def _show(game: Game, seed: int, trace: bool) -> int:
    outcome = game.one(seed)
    if trace:
        sys.stdout.buffer.write(outcome.history.to_bytes())
        sys.stdout.flush()
    print(outcome.summary())
    print(outcome.verdict.summary() if outcome.verdict is not None else "it was not judged")
    if outcome.error is not None:
        traceback.print_exception(outcome.error)
    return 0 if outcome.clean else 1


def _soak(game: Game, start: int, count: int, jobs: int) -> int:
    began = time.monotonic()
    total = Played()
    shown = 0.0
    for played in _chunks(game, range(start, start + count), jobs):
        total.seeds += played.seeds
        total.figures.update(played.figures)
        total.failures += played.failures
        for failure in played.failures:
            print(failure, flush=True)
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            _progress(f"{total.seeds} of {count} seeds, {len(total.failures)} with findings")
    _progress("")
    note(game.kind(), total.seeds, time.monotonic() - began, start, bool(total.failures))
    return _sum_up(game, total, start, time.monotonic() - began)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def _chunks(game: Game, seeds: range, jobs: int) -> Iterator[Played]:
    """Plays the seeds, a few at a time, in as many processes as asked for."""
    chunks = [list(seeds[at : at + CHUNK]) for at in range(0, len(seeds), CHUNK)]
    if jobs <= 1:
        yield from map(game.play, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for future in as_completed([pool.submit(game.play, chunk) for chunk in chunks]):
            yield future.result()


def _sum_up(game: Game, total: Played, start: int, seconds: float) -> int:
    figures = ", ".join(f"{name} {count}" for name, count in total.figures.items())
    print(f"{total.seeds} seeds from {start} in {seconds:.0f} s: {len(total.failures)} with findings")
    if figures:
        print(figures)
    if total.failures:
        print(f"to see one again: scripts/soak --seed SEED --trace {game.words()}".rstrip())
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
