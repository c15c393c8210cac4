"""`polybus check`: looks for damage in a data folder whose bus is stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybus.cli.options import AsJson, CatalogueUrl, StoreUrls
from polybus.cli.output import REFUSED, CommandOutput, one_line_errors

if TYPE_CHECKING:
    from polybus.operations.check import EntityReport, Report

_COLUMNS = (
    "entity",
    "kind",
    "#partitions",
    "#active",
    "#deferred",
    "#scheduled",
    "#dead letters",
    "#on their way",
    "#retained",
    "#bytes",
    "#findings",
)


def check(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder of a bus that is stopped.")],
    store: StoreUrls = None,
    catalogue: CatalogueUrl = None,
    as_json: AsJson = False,
) -> None:
    """Looks at every record, index row and counter, and changes nothing. Exit code 0: clean; 1: findings."""
    from polybus.operations.check import catalogue_url, store_urls
    from polybus.operations.check import check as look_at

    out = CommandOutput(as_json)
    with one_line_errors():
        report = look_at(catalogue or catalogue_url(data), store or store_urls(data))
        if as_json:
            out.json({"clean": report.clean, "rows": report.rows, **dataclasses.asdict(report)})
        else:
            _print(out, report)
    raise typer.Exit(0 if report.clean else REFUSED)


def _print(out: CommandOutput, report: Report) -> None:
    out.table("", _COLUMNS, [_row(entity) for entity in report.entities])
    for finding in report.findings:
        typer.echo(f"{finding.store}: {finding.place}: {finding.key}{': ' if finding.key else ''}{finding.problem}")
    if report.finding_count > len(report.findings):
        typer.echo(f"and {report.finding_count - len(report.findings):,} more")
    verdict = "clean" if report.clean else f"{report.finding_count:,} findings"
    typer.echo(f"{report.rows:,} records in {len(report.stores)} stores and the catalogue: {verdict}")


def _row(entity: EntityReport) -> tuple[object, ...]:
    return (
        entity.name,
        entity.kind,
        f"{entity.reachable} of {entity.partitions}",
        entity.active,
        entity.deferred,
        entity.scheduled,
        entity.dead_letter,
        entity.transfer,
        entity.retained,
        entity.size_bytes,
        entity.findings,
    )
