"""`polybus demo`: a partitioned queue loses a messaging store and nobody loses a message, shown in half a minute.

A bus of its own runs in a temporary folder and is gone afterwards. Everything that the demo does to it a user can do,
too: it sends and receives with the official SDK, and it takes the store away through the fault switches. What was
sent, acknowledged and received is judged by the verifier that the tests use, and the exit code is its verdict.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from polybus.cli.client import Client
from polybus.cli.endpoint import Endpoint
from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, CommandFailure, CommandOutput, console, one_line_errors
from polybus.cli.overview import bar, partitions_path
from polybus.hashing import partition_for
from polybus.namespace.entities.names import Address

QUEUE: Final = "demo"
PARTITIONS: Final = 16
STORES: Final = 4
LOST_STORE: Final = 1
UNKEYED: Final = 160
KEYS: Final = 32
KEYED: Final = 96
BEFORE_LOSS: Final = 20
AFTER_LOSS: Final = 80
"""Sends of the second client before the store is taken away, and those that it begins afterwards."""
PAINT_EVERY: Final = 8
RETRIES: Final = 2_000
"""How often a keyed send is tried again while the store comes back; each try is answered at once."""


def demo(as_json: AsJson = False) -> None:
    """Shows partitions at work: the spread, a store that is lost and returns, and a verdict on every message."""
    with one_line_errors(), _bus() as (server, client), Demo(server, client, CommandOutput(as_json)) as run:
        run.tell(f"A bus with {STORES} messaging stores runs at {server.addresses['amqp']}.")
        run.create()
        run.send_unkeyed()
        run.send_keyed()
        run.lose_a_store()
        run.bring_it_back()
        run.receive_everything()
        clean = run.judge()
    raise typer.Exit(0 if clean else REFUSED)


@contextmanager
def _bus() -> Iterator[tuple[Any, Client]]:
    from polybus.testing.server import ServerProcess

    with tempfile.TemporaryDirectory(prefix="polybus-demo-") as folder:
        options = ("--stores", str(STORES), "--partitions", str(PARTITIONS))
        try:
            with ServerProcess(Path(folder), *options) as server:
                endpoint = Endpoint(server.connection_string)
                with Client(endpoint, CommandOutput(False)) as client:
                    yield server, client
        except RuntimeError as error:
            raise CommandFailure(str(error), REFUSED) from error


def _painted(partitions: list[dict[str, Any]]) -> list[str]:
    most = max(part["counts"]["total"] for part in partitions)
    return [
        f"{part['index']:9}  {bar(part['counts']['total'], most) if part['available'] else 'lost'}"
        for part in partitions
    ]


def _last_line(result: dict[str, Any]) -> str:
    """The verdict on all that was shown, the sends during the outage included: the exit code in words."""
    outage = result["store lost"]
    refused = outage["sends without a key"] - outage["of these accepted"]
    wrong = outage["keys with a wrong answer"]
    if result["ok"]:
        return "Everything held: no message was lost or doubled, and only keyed sends to the lost store were refused."
    told = [] if result["verdict"]["clean"] else ["the verifier has findings"]
    told += [f"{refused} sends without a key were refused"] if refused else []
    told += [f"{len(wrong)} keys got a wrong answer ({', '.join(wrong)})"] if wrong else []
    return f"THE DEMO FAILED: {'; '.join(told)}."


class Demo:
    """The steps, and what came of them."""

    def __init__(self, server: Any, client: Client, out: CommandOutput) -> None:
        from polybus.testing.sdk_clients import RecordedClient, connect

        self._client = client
        self._out = out
        self._sdk = connect(server.connection_string)
        self._first = RecordedClient("first")
        self._second = RecordedClient("second")
        self._receiving = RecordedClient("receiver")
        self._sender: Any = None
        self._ids = 0
        self.result: dict[str, Any] = {}

    def __enter__(self) -> Demo:
        self._sdk.__enter__()
        self._sender = self._sdk.get_queue_sender(QUEUE)
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()
        self._sdk.close()

    def tell(self, text: str) -> None:
        if not self._out.as_json:
            typer.echo(text)

    # Steps

    def create(self) -> None:
        self._client.admin.create_queue(QUEUE, enable_partitioning=True)
        self.tell(f"The queue '{QUEUE}' has {PARTITIONS} partitions, {PARTITIONS // STORES} on each store.")

    def send_unkeyed(self) -> None:
        with self._picture() as paint:
            for number in range(UNKEYED):
                self._send(self._first)
                paint(number)
        self._draw("unkeyed", f"\n{UNKEYED} messages without a key go round-robin:")

    def send_keyed(self) -> None:
        with self._picture() as paint:
            for number in range(KEYED):
                self._send(self._first, f"key {number % KEYS}")
                paint(number)
        self._draw("keyed", f"\n{KEYED} more with {KEYS} partition keys: each key has its partition, for ever:")

    def lose_a_store(self) -> None:
        """One client goes on sending without keys; the other takes the store away and then sends with keys."""
        before = self._counts()
        under_way, lost = threading.Event(), threading.Event()
        sending = threading.Thread(target=self._send_on, args=(under_way, lost), daemon=True)
        sending.start()
        under_way.wait()
        self._switch(f"stores/{LOST_STORE}/down")
        lost.set()
        missing = [part["index"] for part in self._partitions() if not part["available"]]
        outcomes = []
        with self._picture() as paint:
            for number in range(KEYS):
                outcomes.append((f"key {number}", self._send(self._first, f"key {number}")))
                paint(number)
            sending.join()
        counts = self._counts()
        self._draw("outage", f"\nStore {LOST_STORE} was taken away while a client was sending:")
        wrong = [key for key, outcome in outcomes if (partition_for(key, PARTITIONS) in missing) == (outcome == "ok")]
        sent = self._second.history.events
        self.result["store lost"] = {
            "missing partitions": missing,
            "sends without a key": len(sent),
            "of these accepted": sum(event.outcome == "ok" for event in sent),
            "slowest of these (ms)": self._second.slowest_send_ms,
            "keyed sends accepted": sum(outcome == "ok" for _, outcome in outcomes),
            "keyed sends refused": sum(outcome != "ok" for _, outcome in outcomes),
            "refused with": sorted(self._first.failures),
            "keys with a wrong answer": wrong,
            "rerouted": counts["rerouted"] - before["rerouted"],
            "refused": counts["refused"] - before["refused"],
        }
        self._tell_facts("store lost")

    def _send_on(self, under_way: threading.Event, lost: threading.Event) -> None:
        """Sends until so many sends have begun after the store was lost."""
        from polybus.testing.sdk_clients import message

        left = AFTER_LOSS
        number = 0
        try:
            with self._sdk.get_queue_sender(QUEUE) as sender:
                while left > 0:
                    left -= lost.is_set()
                    number += 1
                    self._second.send(sender, QUEUE, message(f"second {number}"))
                    if number == BEFORE_LOSS:
                        under_way.set()
        finally:
            under_way.set()

    def bring_it_back(self) -> None:
        """A refused sender tries again, as the error asks it to, until the partition serves."""
        self._switch(f"stores/{LOST_STORE}/up")
        missing = self.result["store lost"]["missing partitions"]
        keys = [
            key for key in (f"key {number}" for number in range(KEYS)) if partition_for(key, PARTITIONS) in missing
        ]
        tries = 0
        with self._picture() as paint:
            for key in keys:
                while self._send(self._first, key) != "ok":
                    tries += 1
                    paint(tries)
                    if tries > RETRIES:
                        raise CommandFailure("the store does not come back", REFUSED)
        self.result["store back"] = {"keys that work again": len(keys), "refused tries before": tries}
        self._draw("back", "\nThe store is back; keyed sends are tried again until they are accepted:")
        self._tell_facts("store back")

    def receive_everything(self) -> None:
        with self._sdk.get_queue_receiver(QUEUE) as receiver:
            left = sum(part["counts"]["active"] for part in self._partitions())
            received = 0
            while received < left:
                found = self._receiving.receive(receiver, QUEUE, 100, 10)
                for each in found:
                    self._receiving.settle(receiver, QUEUE, each)
                received += len(found)
                if not found:
                    break
        self.result["received"] = {"expected": left, "received and completed": received}
        self.tell("")
        self._tell_facts("received")

    def judge(self) -> bool:
        from polybus.clock import RealClock
        from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, verify

        left = [part["counts"] for part in self._partitions()]
        counters = {name: sum(each[name] for each in left) for name in ("active", "scheduled", "deferred", "total")}
        contents = EntityContents(EntityOptions(partitions=PARTITIONS), [], counters)
        histories = [client.history for client in (self._first, self._second, self._receiving)]
        verdict = verify(histories, FinalState({QUEUE: contents}, RealClock().now().wall_ms), slack_ms=50)
        outage = self.result["store lost"]
        fair = outage["of these accepted"] == outage["sends without a key"] and not outage["keys with a wrong answer"]
        self.result |= {"verdict": verdict.as_dict(), "ok": verdict.clean and fair}
        if self._out.as_json:
            self._out.json(self.result)
        self.tell(f"\nThe verifier says: {verdict.summary()}")
        self.tell(_last_line(self.result))
        return bool(self.result["ok"])

    # Tools

    def _send(self, client: Any, key: str | None = None) -> str:
        from polybus.testing.sdk_clients import message

        self._ids += 1
        return str(client.send(self._sender, QUEUE, message(f"first {self._ids}", partition_key=key)))

    def _switch(self, switch: str) -> None:
        import httpx

        endpoint = self._client.endpoint
        headers = {"Authorization": endpoint.token()}
        url = f"{endpoint.http_url}/$polybus/faults/{switch}"
        httpx.post(url, headers=headers, json={}, timeout=30, trust_env=False).raise_for_status()

    def _partitions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.get_json(partitions_path(Address(QUEUE)))["partitions"]
        return found

    def _counts(self) -> dict[str, int]:
        """Sends that found another partition, and sends that found none."""
        lines = self._client.get("/metrics").text.splitlines()
        names = {"polybus_sends_rerouted_total": "rerouted", "polybus_sends_refused_total": "refused"}
        counts = dict.fromkeys(names.values(), 0)
        for line in lines:
            name = line.partition("{")[0].partition(" ")[0]
            if name in names:
                counts[names[name]] += int(float(line.rsplit(" ", 1)[1]))
        return counts

    @contextmanager
    def _picture(self) -> Iterator[Callable[[int], None]]:
        """Partitions as they fill, where somebody looks; the call paints them anew at every few steps."""
        shown = console()
        if self._out.as_json or not shown.is_terminal:
            yield lambda _: None
            return
        from rich.live import Live

        with Live(console=shown, auto_refresh=False, transient=True) as live:

            def paint(step: int) -> None:
                if step % PAINT_EVERY == 0:
                    live.update("\n".join(_painted(self._partitions())), refresh=True)

            yield paint

    def _draw(self, step: str, title: str) -> None:
        parts = self._partitions()
        totals = [part["counts"]["total"] for part in parts]
        self.result[f"spread, {step}"] = totals
        if self._out.as_json:
            return
        typer.echo(title)
        rows = [
            (part["index"], Path(part["store"]).name, total, bar(total, max(totals)) if part["available"] else "lost")
            for part, total in zip(parts, totals, strict=True)
        ]
        self._out.table("", ("#partition", "#store", "#messages", "spread"), rows)

    def _tell_facts(self, step: str) -> None:
        for name, value in self.result[step].items():
            shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else f"{value:,}"
            self.tell(f"  {name}: {shown}")
