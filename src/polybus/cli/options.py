"""Options that several commands share, each with one name and one meaning."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
StoreUrls = Annotated[
    list[str] | None,
    typer.Option("--store", help="A messaging store elsewhere: rocksdb:PATH or postgresql://… (repeatable)."),
]
CatalogueUrl = Annotated[str | None, typer.Option("--catalogue", help="Where the catalogue is, if elsewhere.")]
