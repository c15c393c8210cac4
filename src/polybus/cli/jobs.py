"""Work on many messages: the bus does it as a job (docs/reference/bulk.md#verbs-on-many-messages), here it is begun,
watched and told. The count comes first, and a question where messages are removed for good."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from polybus.cli.client import Client, json_of
from polybus.cli.confirming import confirm
from polybus.cli.output import REFUSED, CommandFailure
from polybus.cli.progress import Progress
from polybus.cli.values import moment
from polybus.namespace.entities.names import Address

_WAIT_S: Final = 1
_PAUSE_S: Final = 0.2

From = Annotated[str | None, typer.Option("--from", help="Enqueued at this time or later: 2026-01-31T12:00:00Z.")]
Before = Annotated[str | None, typer.Option(help="Enqueued before this time.")]
Filter = Annotated[str | None, typer.Option("--filter", help="Only those for which it holds, as in a SQL rule.")]
Limit = Annotated[int | None, typer.Option(min=1, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


def choice(since: str | None, before: str | None, condition: str | None, limit: int | None) -> dict[str, Any]:
    """Which messages are meant, in the words of the bus."""
    times = {"from": since, "before": before}
    chosen: dict[str, Any] = {name: moment(text).isoformat() for name, text in times.items() if text is not None}
    if condition is not None:
        chosen["filter"] = condition
    if limit is not None:
        chosen["limit"] = limit
    return chosen


_CHOICE = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    for name, kind in (("since", From), ("before", Before), ("condition", Filter), ("limit", Limit))
]


def choosing(function: Callable[..., None]) -> Callable[..., None]:
    """A command about a choice of messages: its `chosen` is made of the options that all such commands have."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    others = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own[1:] if each.name != "chosen"]

    @functools.wraps(function)
    def command(client: Client, **given: Any) -> None:
        chosen = choice(*(given.pop(each.name) for each in _CHOICE))
        function(client, chosen=chosen, **given)

    command.__signature__ = inspect.Signature([own[0], *others, *_CHOICE])  # type: ignore[attr-defined]
    return command


def work(
    client: Client,
    address: Address,
    verb: str,
    body: dict[str, Any],
    *,
    done: str,
    dry_run: bool = False,
    yes: bool = True,
    question: str = "",
) -> None:
    """Runs a verb. `done` says what happened to the messages; with `question` somebody is asked first."""
    if dry_run or not yes:
        counted = _run(client, address, verb, body | {"dry_run": True}, "counted")
        if dry_run:
            client.out.result(counted, f"{counted['total']:,} would be {done}")
            return
        if not counted["total"]:
            client.out.result(counted, "there is nothing to do")
            return
        confirm(f"{question} {counted['total']:,} message{'s' if counted['total'] != 1 else ''}", yes)
    result = _run(client, address, verb, body | {"count": True}, done)
    client.out.result(result, _told(result, done))
    if result["state"] not in ("done", "stopped"):
        away = ", ".join(map(str, result["unreachable"]))
        why = f"partitions {away} cannot be reached" if away else result["error"]
        raise CommandFailure(f"the job ended {result['state']}: {why}; ask again", REFUSED)


def _told(result: dict[str, Any], done: str) -> str:
    told = f"{done} {result['done']:,} of {result['chosen']:,}"
    return told + (f"; {result['locked']:,} are held by receivers and were left to them" if result["locked"] else "")


def _run(client: Client, address: Address, verb: str, body: dict[str, Any], doing: str) -> dict[str, Any]:
    """The job at its end."""
    path = f"/$polybus/entities/{quote(address.path, safe='')}/{verb}"
    job: dict[str, Any] = json_of(client.ask("POST", path, {**body, "wait_seconds": _WAIT_S}))
    with Progress(doing, None) as progress:
        while job["state"] == "running":
            progress.at(job["done"], job["total"])
            time.sleep(_PAUSE_S)
            job = client.get_json(f"/$polybus/jobs/{job['job']}")
    return job
