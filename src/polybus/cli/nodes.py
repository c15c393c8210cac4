"""`polybus nodes`: the nodes of a cluster, who owns what, and draining one. It asks the cluster's database itself, so it
answers also while no node does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, UNREACHABLE, USAGE, CommandFailure, CommandOutput, one_line_errors
from polybus.errors import StoreError
from polybus.limits import NODE_LOOK_SECONDS, POSTGRES_LEASE_SECONDS
from polybus.store.cluster_rows import ClusterView, MemberRow

if TYPE_CHECKING:
    # The driver of PostgreSQL is an extra, and loaded by whoever needs it.
    from polybus.store.cluster_database import ClusterDatabase

app = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, help="The nodes of a cluster: who owns what; drain one."
)
Url = Annotated[
    str | None,
    typer.Option("--cluster", envvar="POLYBUS_CLUSTER", help="The cluster's database, as nodes are given it."),
]
Name = Annotated[str, typer.Argument(help="The node's name.", show_default=False)]


@contextmanager
def _database(url: str | None) -> Iterator[ClusterDatabase]:
    if url is None:
        raise CommandFailure("polybus nodes needs --cluster URL, or POLYBUS_CLUSTER in the environment", USAGE)
    try:
        from polybus.store.cluster_database import ClusterDatabase
    except ImportError as error:
        raise CommandFailure("polybus nodes needs: pip install 'polybus[postgres]'", USAGE) from error
    database = ClusterDatabase(url)
    try:
        if not database.is_made():
            raise CommandFailure(f"{database.shown}: no node was ever started here", REFUSED)
        yield database
    except StoreError as error:
        raise CommandFailure(str(error), UNREACHABLE) from error
    finally:
        database.close()


@app.callback()
def nodes(context: typer.Context, cluster: Url = None, as_json: AsJson = False) -> None:
    """Shows the nodes of a cluster: which live, what each owns, with which epoch and how long its leases last."""
    if context.invoked_subcommand is not None:
        return
    out = CommandOutput(as_json)
    with one_line_errors(), _database(cluster) as database:
        view = database.look()
        stores: list[str] = database.agreed().get("stores", [])
        if as_json:
            out.json(_data(view, stores))
        else:
            _print(out, view, stores)


def _data(view: ClusterView, stores: list[str]) -> dict[str, object]:
    return {
        "nodes": [
            {
                "name": member.name,
                "state": _state(member),
                "address": member.address,
                "clients": list(member.clients),
                "version": member.version,
                "silent_ms": round(member.silent_s * 1000),
                "owns": [
                    {"store": owned.store, "epoch": owned.epoch, "lease_lag_ms": _lag_ms(owned.lease_left_ms)}
                    for owned in member.owned
                ],
            }
            for member in view.members
        ],
        "unowned": _unowned(view, stores),
        "moving": view.moving,
        "moving_to": view.moving_to,
    }


def _print(out: CommandOutput, view: ClusterView, stores: list[str]) -> None:
    rows = [
        (
            member.name,
            _state(member),
            member.address,
            ", ".join(member.clients),
            member.version,
            f"{member.silent_s:.1f} s",
            len(member.owned),
        )
        for member in view.members
    ]
    columns = ("node", "state", "~links", "~clients", "version", "#silent", "#owns")
    out.table("", columns, rows, "No node is there.")
    owned = [
        (one.store, member.name, one.epoch, f"{_lag_ms(one.lease_left_ms)} ms")
        for member in view.members
        if member.alive
        for one in member.owned
    ]
    out.table("\nstores", ("~store", "owner", "#epoch", "#lease lag"), sorted(owned), "Nobody owns a store.")
    for store in _unowned(view, stores):
        typer.echo(f"nobody owns {store}")
    if view.moving is not None:
        typer.echo(f"{view.moving} moves to {view.moving_to}")


def _lag_ms(left_ms: int) -> int:
    """Since when a lease was not renewed, when its holder last spoke: more than a second means that renewals fail."""
    return max(POSTGRES_LEASE_SECONDS * 1000 - left_ms, 0)


def _state(member: MemberRow) -> str:
    if not member.alive:
        return "dead"
    return "draining" if member.draining else "alive"


def _unowned(view: ClusterView, stores: list[str]) -> list[str]:
    owned = {one.store for member in view.living for one in member.owned}
    return [store for store in stores if store not in owned]


@app.command()
def drain(
    name: Name,
    cluster: Url = None,
    undo: Annotated[bool, typer.Option("--undo", help="The node takes stores again.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait until it owns nothing; 0: not at all.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Moves everything that a node owns to the others, one store after the other; then it can be stopped."""
    out = CommandOutput(as_json)
    with one_line_errors(), _database(cluster) as database:
        found = database.look().named(name)
        if found is None or not found.alive:
            raise CommandFailure(f"there is no living node {name!r}", REFUSED)
        database.drain(name, not undo)
        left = [] if undo else _drained(database, name, wait)
        if left and wait:
            raise CommandFailure(f"the node {name!r} still owns {', '.join(left)} after {wait:g} s", REFUSED)
        done = "takes stores again" if undo else "owns nothing any more" if not left else "is being drained"
        out.result({"node": name, "draining": not undo, "owns": left}, f"the node {name!r} {done}")


def _drained(database: ClusterDatabase, name: str, seconds: float) -> list[str]:
    """What the node owns when it owns nothing any more, or the time is over."""
    until_s = time.monotonic() + seconds
    while True:
        member = database.look().named(name)
        left = [] if member is None else [one.store for one in member.owned]
        if not left or time.monotonic() >= until_s:
            return left
        time.sleep(NODE_LOOK_SECONDS)
