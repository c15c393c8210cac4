"""`polybus backup`: copies a bus that runs, or the data folder of one that is stopped; `polybus restore`, the way back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from polybus.cli.client import Authority, Client, Connection, Context, Insecure
from polybus.cli.contexts import chosen_endpoint
from polybus.cli.options import AsJson, CatalogueUrl, StoreUrls
from polybus.cli.output import REFUSED, UNREACHABLE, CommandFailure, CommandOutput, one_line_errors
from polybus.errors import ConfigError
from polybus.store.permissions import keep_to_ourselves

if TYPE_CHECKING:
    import httpx


def backup(
    to: Annotated[Path, typer.Option("--to", help="The folder for the copy; it must not exist.")],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The data folder of a bus that is stopped.")
    ] = None,
    store: StoreUrls = None,
    catalogue: CatalogueUrl = None,
    connection: Connection = None,
    context: Context = None,
    ca: Authority = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Copies the catalogue and every store of one moment into one folder: of the bus that runs at --connection, or of
    the data folder DIR, whose bus must be stopped."""
    keep_to_ourselves()
    out = CommandOutput(as_json)
    with one_line_errors():
        if data is None:
            if store or catalogue:
                raise ConfigError("a bus that runs knows its stores; --store and --catalogue go with a folder")
            _copy_running(Client(chosen_endpoint(connection, ca, insecure, context), out), to)
        else:
            _copy_stopped(data, to, store, catalogue, out)


def _copy_stopped(data: Path, to: Path, store: list[str] | None, catalogue: str | None, out: CommandOutput) -> None:
    from polybus.operations.backup import backup as copy
    from polybus.operations.check import catalogue_url, store_urls

    report = copy(catalogue or catalogue_url(data), store or store_urls(data), to)
    out.result(
        dataclasses.asdict(report),
        f"{report.entities} entities in {len(report.stores)} stores copied to {to}\n{_way_back(to)}",
    )


def _copy_running(client: Client, to: Path) -> None:
    from polybus.operations.backup import whole_or_nothing
    from polybus.store.backup_files import read_manifest, sync_all, unpack

    if to.exists():
        raise ConfigError(f"{to} exists already; a backup goes into a folder of its own")
    with whole_or_nothing(to) as folder:
        for answer in client.stream("/$polybus/backup"):
            unpack(cast("IO[bytes]", _Body(answer)), folder)
        sync_all(folder)
    stores = read_manifest(to)["stores"]
    text = f"{client.endpoint.authority}: catalogue and {len(stores)} stores copied to {to}, and verified"
    client.out.result({"target": str(to), "stores": stores}, f"{text}\n{_way_back(to)}")


def _way_back(to: Path) -> str:
    return f"to restore: polybus restore {to} --to DIR"


class _Body:
    """The body of an answer as something that can be read."""

    def __init__(self, answer: httpx.Response) -> None:
        self._pieces: Iterator[bytes] = answer.iter_bytes()
        self._left = b""

    def read(self, size: int) -> bytes:
        import httpx

        try:
            while len(self._left) < size and (piece := next(self._pieces, b"")):
                self._left += piece
        except httpx.HTTPError as error:
            raise CommandFailure(f"the backup broke off: {error or type(error).__name__}", UNREACHABLE) from error
        given, self._left = self._left[:size], self._left[size:]
        return given


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder that `polybus backup` has made.")],
    to: Annotated[Path, typer.Option("--to", help="The new data folder; it must not exist, or be empty.")],
    store: Annotated[
        list[str] | None,
        typer.Option(
            help="Where messaging stores go instead: empty postgresql://… databases, in the backup's order."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Makes a data folder of a backup: every file against its checksum, every record as `polybus check` looks at it."""
    from polybus.operations.restore import restore as put_back
    from polybus.store.backup_files import NotWhole

    keep_to_ourselves()
    with one_line_errors():
        try:
            report = put_back(backup, to, store or [])
        except NotWhole as error:
            raise CommandFailure(str(error), REFUSED) from error
        named = "".join(f" --store {url}" for url in store or [])
        text = f"{report.entities} entities with {report.messages:,} messages restored to {to}, and verified"
        CommandOutput(as_json).result(
            dataclasses.asdict(report), f"{text}\nto start: polybus serve --data {to}{named}"
        )
