"""Kills a whole bus under load, again and again, and has everything that clients saw judged.

A round starts `polybus serve` on fresh stores. Clients of the official SDK, each in a thread of its own, send without
and with keys, in sessions, twice with one id, for later, through a topic's rules and through queues that forward, and
others receive; two more work in transactions by raw AMQP. After a number of acknowledged sends that the seed chooses
the process gets SIGKILL and is started again. In the end senders stop, receivers empty every place, and the verifier
compares the histories.

Run it with `scripts/soak server --kills N`. A round is repeated with its seed, but threads and kills never meet twice
in the same way: the seed only says what was tried.
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from polybus.clock import RealClock
from polybus.testing.history import OK, SENDS, UNKNOWN, History, Op, Recorder
from polybus.testing.server import ServerProcess
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, Verdict, verify
from tests.support.campaigns import next_seed, note
from tests.support.sdk_load import LOCK_MS, PATIENCE_S, Client, Receiving, ReceivingSessions, Round, Sending
from tests.support.transacting import HOME, Transacting

PARTITIONS: Final = 16
WINDOW_MS: Final = 600_000
KIND = "kills of the server"
"""As the file of campaigns calls it."""
KILLS_PER_ROUND: Final = 20
SENDS_PER_KILL: Final = (5, 60)
"""Acknowledged sends between two kills: from the first steps after a start to a bus in full swing."""
SLACK_MS: Final = 100
EVERY, RED = "news/Subscriptions/every", "news/Subscriptions/red"
PLACES: Final = ("wide", "unique", "later", "last", HOME, EVERY, RED, "steps")
"""Where messages are received from."""


def entity_options() -> dict[str, EntityOptions]:
    """What the verifier must know of everything that stands in a history."""
    plain = EntityOptions(PARTITIONS, lock_ms=LOCK_MS)
    return {
        **dict.fromkeys(("wide", "later", "last", HOME, EVERY, RED), plain),
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
        for name in ("wide", "later", "last", HOME):
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


def play(folder: Path, kills: int, seed: int) -> tuple[Verdict, Counter[str]]:
    """One round; gives the verdict and its figures. RuntimeError where the bus comes to no rest."""
    rng = random.Random(seed)
    with ServerProcess(folder) as server:
        create_entities(server)
        run = Round(server, seed)
        run.up.set()
        senders: list[Client] = [Sending(f"sender {number}", run) for number in range(3)]
        senders += [Transacting(f"transactor {number}", run) for number in range(2)]
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
        verdict = verify([reaper.history, *(client.recorder.history for client in clients)], final, slack_ms=SLACK_MS)
        figures = Counter(verdict.report) + Counter({"kills": kills, "unknown settlements": _unknown(clients)})
        return verdict, figures + _kinds(clients)


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
    return sum(event.op in ops and event.outcome == UNKNOWN for each in clients for event in each.recorder.history)


def _kinds(clients: tuple[Client, ...]) -> Counter[str]:
    """How many acknowledged sends went to each entity, so that a reader sees which kinds of load there were."""
    events = [
        event for client in clients for event in client.recorder.history if event.op in SENDS and event.outcome == OK
    ]
    return Counter(f"to {event.entity}" for event in events)


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
    parser.add_argument("--seed", type=int, help="of the first round (behind those that were played)")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ResourceWarning)
    figures: Counter[str] = Counter()
    seed = options.seed if options.seed is not None else next_seed(KIND)
    while figures["kills"] < options.kills:
        kills = min(KILLS_PER_ROUND, options.kills - figures["kills"])
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="polybus-soak-") as folder:
            verdict, more = play(Path(folder), kills, seed)
        note(KIND, more["kills"], time.monotonic() - began, seed, not verdict.clean)
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
