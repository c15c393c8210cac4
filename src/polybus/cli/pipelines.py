"""`polybus pipelines`: Spark pipelines declared in a file. Spark and YAML are loaded only when one of these runs."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, USAGE, CommandFailure, CommandOutput, one_line_errors

if TYPE_CHECKING:
    from polybus.pipelines.control import PauseMark
    from polybus.pipelines.declaration import Declaration
    from polybus.pipelines.runner import Runner

File = Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file that declares the pipelines.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="This pipeline only (repeatable).")]

app = typer.Typer(
    help="Spark pipelines declared in one YAML file: capture, replay, redrive and more.", no_args_is_help=True
)


def _load(file: Path, only: list[str] | None = None) -> Declaration:
    try:
        from polybus.pipelines.declaration import load
    except ImportError:
        raise CommandFailure("pipelines need: pip install 'polybus[pipelines]'", USAGE) from None
    return load(file).named(tuple(only or ()))


@app.command()
def check(
    file: File,
    only: Only = None,
    connect: Annotated[bool, typer.Option(help="Also ask the bus for the entities.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reads the file and says what is wrong with it, or what would run. Exit code 2: something is wrong."""
    out = CommandOutput(as_json)
    with one_line_errors():
        declaration = _load(file, only)
        from polybus.pipelines.checking import check_pipelines

        found = check_pipelines(declaration, connect)
        if as_json:
            out.json(found)
        else:
            out.table(
                "", ("pipeline", "kind", "what"), [(each["name"], each["kind"], each["what"]) for each in found]
            )
            for each in found:
                for remark in each["remarks"]:
                    typer.echo(f"{each['name']}: {remark}")


@app.command()
def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Do what there is to do now and end: for schedulers.")] = False,
    only: Only = None,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 for /metrics, /status, /health; 0 picks one.")
    ] = 0,
    seed: Annotated[int | None, typer.Option(help="Makes the pauses between restarts repeatable.")] = None,
) -> None:
    """Runs the pipelines until Ctrl-C or SIGTERM; what fails is started again from its checkpoint, with back-off.

    Exit code 1: a pipeline was given up (after `restart.attempts`; with --once after three).
    """
    with one_line_errors():
        declaration = _load(file, only)
        from polybus.pipelines.resident import serve

        ended_well = serve(declaration, once, metrics_port, random.Random(seed), typer.echo, _on_signals)
    raise typer.Exit(0 if ended_well else REFUSED)


def _on_signals(runner: Runner) -> None:
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: runner.stopping.set())


@app.command()
def status(file: File, only: Only = None, as_json: AsJson = False) -> None:
    """What each pipeline does: asked of its runner, or what its last run has left where none runs."""
    out = CommandOutput(as_json)
    with one_line_errors():
        declaration = _load(file, only)
        from polybus.pipelines.status import pipeline_states

        found = pipeline_states(declaration)
        if as_json:
            out.json(found)
        else:
            columns = ("pipeline", "kind", "state", "#batch", "#rows", "#lag", "#ms", "error")
            keys = ("name", "kind", "state", "batch", "rows", "lag", "ms", "error")
            out.table("", columns, [tuple(each.get(key) for key in keys) for each in found])


@app.command()
def runs(file: File, only: Only = None, as_json: AsJson = False) -> None:
    """What each pipeline has done, run by run, also when no runner is there any more."""
    out = CommandOutput(as_json)
    with one_line_errors():
        declaration = _load(file, only)
        from polybus.pipelines.status import pipeline_runs

        found = pipeline_runs(declaration)
        if as_json:
            out.json(found)
        else:
            columns = (
                "pipeline",
                "began",
                "outcome",
                "#batches",
                "#rows",
                "#files",
                "#bytes",
                "#lag",
                "#ms",
                "error",
            )
            keys = ("name", "began", "outcome", "batches", "rows", "files", "bytes", "lag", "ms", "error")
            out.table("", columns, [tuple(each.get(key) for key in keys) for each in found])


@app.command()
def compact(
    file: File,
    name: Annotated[str, typer.Argument(help="A capture's name.")],
    target: Annotated[str, typer.Option(help="How large files are made.")] = "256m",
    older_than: Annotated[str, typer.Option(help="Leave batches alone that are younger.")] = "0s",
    as_json: AsJson = False,
) -> None:
    """Makes few large files of the many small ones that a capture has written. It may go on capturing meanwhile."""
    out = CommandOutput(as_json)
    with one_line_errors():
        (kind,) = _load(file, [name]).pipelines
        from polybus.pipelines.compacting import compact_capture

        done = compact_capture(kind, target, older_than)
        out.result(done.record(), f"{name}: {done.files_before} files became {done.files_after} ({done.rows:,} rows)")


@app.command()
def pause(file: File, name: Annotated[str, typer.Argument(help="The pipeline's name.")]) -> None:
    """Stops a pipeline, in its runner if there is one, until it is resumed; its cursor keeps its place."""
    with one_line_errors():
        told = _pause_mark(file, name).set()
    typer.echo(f"{name}: {'is paused' if told else 'was paused already'}")


@app.command()
def resume(file: File, name: Annotated[str, typer.Argument(help="The pipeline's name.")]) -> None:
    """Lets a paused pipeline go on where it was."""
    with one_line_errors():
        told = _pause_mark(file, name).clear()
    typer.echo(f"{name}: {'goes on' if told else 'was not paused'}")


def _pause_mark(file: File, name: str) -> PauseMark:
    declaration = _load(file, [name])
    from polybus.pipelines.control import PauseMark

    return PauseMark(declaration.checkpoints / name)


@app.command()
def reset(
    file: File,
    name: Annotated[str, typer.Argument(help="The pipeline's name.")],
    to: Annotated[str, typer.Option("--to", help="A time in ISO 8601, earliest, or latest.")],
    as_json: AsJson = False,
) -> None:
    """Lets a stream begin anew at a time. No runner may have it. What it has written stays, so rows may come again."""
    out = CommandOutput(as_json)
    with one_line_errors():
        declaration = _load(file, [name])
        from polybus.pipelines.control import reset as set_back

        (kind,) = declaration.pipelines
        told = set_back(kind, declaration.checkpoints, to)
        out.result(told, f"{name}: begins at {to}; its old checkpoint was put aside")


@app.command()
def backfill(
    file: File,
    name: Annotated[str, typer.Argument(help="A capture's name.")],
    first: Annotated[str, typer.Option("--from", help="Time of enqueueing from which on, in ISO 8601.")],
    end: Annotated[str, typer.Option("--to", help="Time of enqueueing before which.")],
) -> None:
    """Captures what the log still has of a time range, once, beside the capture itself."""
    with one_line_errors():
        declaration = _load(file, [name])
        from polybus.pipelines.backfill import backfill_alone

        rows = backfill_alone(declaration, first, end, lambda text: typer.echo(f"{name}: {text}"))
        typer.echo(f"{name}: {rows:,} rows came")
