"""`polybus backup`: copies a data folder whose bus is stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from polybus.cli.options import AsJson, CatalogueUrl, StoreUrls
from polybus.cli.output import Output, one_line_errors


def backup(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder of a bus that is stopped.")],
    to: Annotated[Path, typer.Option("--to", help="The folder for the copy; it must not exist.")],
    store: StoreUrls = None,
    catalogue: CatalogueUrl = None,
    as_json: AsJson = False,
) -> None:
    """Copies the catalogue and every store into one folder. To restore, start a bus on it."""
    from polybus.operations.backup import backup as copy
    from polybus.operations.check import catalogue_url, store_urls

    with one_line_errors():
        report = copy(catalogue or catalogue_url(data), store or store_urls(data), to)
        stores = len(report.stores)
        text = f"{report.entities} entities in {stores} stores copied to {to}"
        restore = f"to restore: polybus serve --data {to} --stores {stores}"
        Output(as_json).result(dataclasses.asdict(report), f"{text}\n{restore}")
