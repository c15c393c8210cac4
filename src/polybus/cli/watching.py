"""`polybus tail` and `polybus top`: what arrives, and how the bus is doing, until Ctrl-C."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from polybus.cli.client import Client, json_of
from polybus.cli.completing import entity_argument
from polybus.cli.messages import address_of
from polybus.cli.output import console, size
from polybus.cli.receive import BodyOnly, DeadLetter, Subscription

_PAUSE_S: Final = 0.25
_STATE: Final = {True: "open", False: "AWAY"}


def tail(
    client: Client,
    entity: Annotated[str, entity_argument("A queue, or TOPIC/Subscriptions/NAME.")],
    subscription: Subscription = None,
    dead_letter: DeadLetter = False,
    last: Annotated[int, typer.Option("--last", min=0, help="Begin with so many older ones of each partition.")] = 0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many; else at Ctrl-C.")] = None,
    body_only: BodyOnly = False,
) -> None:
    """Shows messages as they arrive. Nothing is locked or taken away, receivers notice nothing."""
    address = address_of(entity, subscription, dead_letter, False)
    base = f"/$polybus/entities/{quote(address.path, safe='')}"
    ends = {each["partition"]: each["stable_end"] for each in _log(client, base)}
    after = {partition: max(end - last, 0) for partition, end in ends.items()}
    shown = 0
    try:
        while count is None or shown < count:
            for row in _arrived(client, base, after):
                _show(client, row, body_only)
                shown += 1
                if shown == count:
                    return
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        return


def _log(client: Client, base: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = client.get_json(f"{base}/log")["partitions"]
    return [each for each in partitions if each["available"]]


def _arrived(client: Client, base: str, after: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Rows behind what was seen, in the order in which they were enqueued; `after` moves on with them."""
    rows: list[dict[str, Any]] = []
    for each in _log(client, base):
        partition, end = each["partition"], each["stable_end"]
        first = after.setdefault(partition, 0) + 1
        if end < first:
            continue
        query = {"partition": str(partition), "first": str(first), "last": str(end), "format": "json"}
        answer = client.get(f"{base}/range", **query)
        if answer.status_code >= 400:
            json_of(answer)
        *found, last = [json.loads(line) for line in answer.text.splitlines()]
        rows += found
        after[partition] = last["end"]["complete_to"]
    return iter(sorted(rows, key=lambda row: str(row["enqueued_time"])))


def _show(client: Client, row: dict[str, Any], body_only: bool) -> None:
    raw = base64.b64decode(row.pop("body", None) or "")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = f"{len(raw):,} bytes that are not text"
    if body_only:
        typer.echo(raw)
    elif client.out.as_json:
        client.out.line({**row, "body": text})
    else:
        names = ("message_id", "session_id", "subject", "dead_letter_reason")
        facts = " ".join(f"{name}={row[name]}" for name in names if row.get(name))
        typer.echo(f"#{row['sequence_number']} {facts}\n{text}")


def top(
    client: Client,
    entity: Annotated[str | None, entity_argument("Show the partitions of this one, too.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many pictures; else at Ctrl-C.")] = None,
) -> None:
    """Shows live rates, backlogs, dead letters, hot partitions and stores."""
    from rich.live import Live

    before: dict[str, Any] = {}
    seen = 0
    try:
        with Live(console=console(), auto_refresh=False, transient=False) as live:
            for frame in _frames(client, entity):
                if client.out.as_json:
                    client.out.line(frame)
                else:
                    live.update(_picture(frame, before), refresh=True)
                before = frame
                seen += 1
                if seen == count:
                    return
    except KeyboardInterrupt:
        return


def _frames(client: Client, entity: str | None) -> Iterator[dict[str, Any]]:
    path = "/$polybus/console/live" + (f"?focus={quote(entity, safe='')}" if entity else "")
    for answer in client.stream(path):
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == "figures":
                yield json.loads(line.removeprefix("data: "))


def _picture(frame: dict[str, Any], before: dict[str, Any]) -> Any:
    from rich.console import Group

    seconds = max((frame["time_ms"] - before.get("time_ms", 0)) / 1000, 0.001) if before else None
    parts = [_stores(frame), _entities(frame, before, seconds)]
    if frame.get("focus"):
        parts.append(_partitions(frame["focus"], before.get("focus"), seconds))
    return Group(f"{frame['connections']} connections, {frame['rerouted']:,} sends rerouted", *parts)


def _rate(now: int | None, then: int | None, seconds: float | None) -> str:
    return "-" if seconds is None or now is None or then is None else f"{(now - then) / seconds:,.0f}"


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.lstrip("#"), justify="right" if column.startswith("#") else "left", no_wrap=True)
    return table


def _stores(frame: dict[str, Any]) -> Any:
    table = _table("#store", "state", "#partitions", "#free")
    for each in frame["stores"]:
        style = "" if each["available"] else "red"
        state = each["state"] + (", full" if each["full"] else "") + (", unsafe" if each["unsafe"] else "")
        table.add_row(
            str(each["store"]), state, str(each["partitions"]), size(each["free_bytes"]) or "-", style=style
        )
    return table


_ROWS: Final = 20


def _entities(frame: dict[str, Any], before: dict[str, Any], seconds: float | None) -> Any:
    """The busiest first; those that most is waiting in where nothing moves."""
    then = {each["path"]: each for each in before.get("entities", [])}
    table = _table("entity", "#in/s", "#out/s", "#active", "#dead", "#scheduled", "#away")

    def moved(each: dict[str, Any]) -> tuple[int, int]:
        old = then.get(each["path"], each)
        return each["in"] + each["out"] - old["in"] - old["out"], each["active"]

    for each in sorted(frame["entities"], key=moved, reverse=True)[:_ROWS]:
        old = then.get(each["path"], {})
        rates = (_rate(each[name], old.get(name), seconds) for name in ("in", "out"))
        counts = (f"{each.get(name, 0):,}" for name in ("active", "dead_letter", "scheduled", "away"))
        table.add_row(each["path"], *rates, *counts, style="red" if each.get("away") else "")
    return table


def _partitions(focus: dict[str, Any], before: dict[str, Any] | None, seconds: float | None) -> Any:
    from polybus.cli.overview import bar

    then = {each["index"]: each.get("entered") for each in (before or {}).get("partitions", [])}
    table = _table("#partition", "#store", "#in/s", "#total", "spread")
    most = max((each["counts"]["total"] for each in focus["partitions"]), default=0)
    for each in focus["partitions"]:
        total = each["counts"]["total"]
        rate = _rate(each.get("entered"), then.get(each["index"]), seconds)
        shown = bar(total, most) if each["available"] else "away"
        table.add_row(str(each["index"]), str(each["store_number"]), rate, f"{total:,}", shown)
    return table
