"""`polybus partitions` and `polybus stores`: where everything lies, how much of it, and how it is."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from polybus.cli.client import Client
from polybus.cli.completing import entity_argument
from polybus.cli.output import size
from polybus.namespace.entities.names import Address, parse_address

_BAR = 12
_SLIVERS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def partitions(
    client: Client,
    entity: Annotated[str, entity_argument("A queue or a topic.")],
    subscription: Annotated[str | None, typer.Option(help="Count only this subscription of the topic.")] = None,
) -> None:
    """Shows an entity's partitions: the store of each, its messages, its health, and how even the spread is."""
    data = client.get_json(partitions_path(Address(parse_address(entity).entity, subscription)))
    if client.out.as_json:
        client.out.json(data)
        return
    most = max((each["counts"]["total"] for each in data["partitions"]), default=0)
    rows = [_partition_row(each, most) for each in data["partitions"]]
    columns = ("#partition", "~store", "~health", "#active", "#dead", "#scheduled", "#total", "#size", "~spread")
    client.out.table(f"{data['name']}: {data['kind']}, {data['availability'].lower()}", columns, rows)


def partitions_path(address: Address) -> str:
    return f"/$polybus/entities/{quote(address.path, safe='')}/partitions"


def _partition_row(partition: dict[str, Any], most: int) -> tuple[object, ...]:
    counts = partition["counts"]
    health = "ok" if partition["available"] else partition["problem"] or "unavailable"
    return (
        partition["index"],
        partition["store"].rsplit("/", 1)[-1],
        health,
        counts["active"],
        counts["dead_letter"],
        counts["scheduled"],
        counts["total"],
        size(counts["size_bytes"]),
        bar(counts["total"], most),
    )


def bar(part: int, most: int) -> str:
    """A bar as long as the part is of the most; at least a sliver where there is anything."""
    if part <= 0 or most <= 0:
        return ""
    eighths = max(round(part * _BAR * 8 / most), 1)
    return "█" * (eighths // 8) + _SLIVERS[eighths % 8]


def stores(client: Client) -> None:
    """Shows the messaging stores: their state, their partitions, their free space."""
    data = client.get_json("/$polybus/stores")
    if client.out.as_json:
        client.out.json(data)
        return
    rows = [
        (
            each["url"],
            each["state"] + (", full" if each["full"] else "") + (", unsafe" if each["unsafe"] else ""),
            each["partitions"],
            size(each["free_bytes"]),
            each["commits"],
            each["commit_failures"],
            each["last_error"],
        )
        for each in data["stores"]
    ]
    client.out.table("", ("~store", "state", "#partitions", "#free", "#commits", "#failures", "~last error"), rows)
