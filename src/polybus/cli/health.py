"""`polybus healthcheck` and `polybus version`."""

from __future__ import annotations

import platform
import time
from typing import Annotated

import typer

import polybus
from polybus.cli.client import Client
from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, CommandFailure, CommandOutput

_PAUSE_S = 0.5


def healthcheck(
    client: Client,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until the bus takes messages.")] = 0,
) -> None:
    """Asks whether the bus takes messages. Exit code 0: it does; 1: it does not; 3: nobody answers."""
    deadline = time.monotonic() + wait
    while True:
        try:
            _ask(client)
        except CommandFailure:
            if time.monotonic() + _PAUSE_S > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _ask(client: Client) -> None:
    answer = client.get("/health")
    try:
        data = answer.json()
        text = str(data["message"])
    except (ValueError, KeyError, TypeError):
        raise CommandFailure(
            f"{client.endpoint.http_url} answers {answer.status_code}, not as a bus does", REFUSED
        ) from None
    if answer.status_code != 200:
        raise CommandFailure(text, REFUSED)
    client.out.result(data, text)


def version(as_json: AsJson = False) -> None:
    """Says which version this is."""
    data = {"version": polybus.__version__, "build": polybus.BUILD, "python": platform.python_version()}
    CommandOutput(as_json).result(
        data, f"polybus {polybus.__version__} ({polybus.BUILD} build, Python {data['python']})"
    )


def print_version(wanted: bool) -> None:
    """`polybus --version`: what `polybus version` says."""
    if wanted:
        version()
        raise typer.Exit
