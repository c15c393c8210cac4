"""`polybus healthcheck` and `polybus version`."""

from __future__ import annotations

import platform

import polybus
from polybus.cli.client import Client
from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, Failure, Output


def healthcheck(client: Client) -> None:
    """Asks whether the bus takes messages. Exit code 0: it does; 1: it does not; 3: nobody answers."""
    answer = client.get("/health")
    try:
        data = answer.json()
        text = str(data["message"])
    except (ValueError, KeyError, TypeError):
        raise Failure(
            f"{client.endpoint.http_url} answers {answer.status_code}, not as a bus does", REFUSED
        ) from None
    if answer.status_code != 200:
        raise Failure(text, REFUSED)
    client.out.result(data, text)


def version(as_json: AsJson = False) -> None:
    """Says which version this is."""
    data = {"version": polybus.__version__, "build": polybus.BUILD, "python": platform.python_version()}
    Output(as_json).result(data, f"polybus {polybus.__version__} ({polybus.BUILD} build, Python {data['python']})")
