"""`polybus deploy`: a Resource Manager template made so on a bus, or what it would change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from polybus.cli.client import Client
from polybus.cli.output import REFUSED as EXIT_REFUSED
from polybus.cli.output import USAGE, CommandFailure
from polybus.gateway.arm.plan import CREATE, REFUSED, SAME, UPDATE, PlannedChange, change_for, check_kinds
from polybus.templates.evaluation import SUBSCRIPTION
from polybus.templates.template import Resource, parameters_of, resources_of

_SUBSCRIPTION = f"/subscriptions/{SUBSCRIPTION}"
_GROUP = f"{_SUBSCRIPTION}/resourceGroups/polybus/providers/Microsoft.ServiceBus"
_ORDER = (CREATE, UPDATE, SAME, REFUSED)


def deploy(
    client: Client,
    file: Annotated[Path, typer.Argument(help="A template in JSON; Bicep is compiled by `bicep build`.")],
    parameters: Annotated[
        list[str] | None, typer.Option("--parameters", "-p", help="A parameters file, or NAME=VALUE; repeatable.")
    ] = None,
    what_if: Annotated[bool, typer.Option("--what-if", help="Only say what would change.")] = False,
) -> None:
    """Creates and updates what a Resource Manager template asks for; nothing is deleted."""
    given: dict[str, Any] = {}
    for each in parameters or []:
        given.update(_parameters(each))
    resources = resources_of(_read(file), given)
    check_kinds(resources)
    plan = _plan(client, _placed(client, resources))
    refused = [change for change in plan if change.action == REFUSED]
    if what_if or refused:
        _tell(client, plan)
    if refused:
        reasons = "; ".join(f"{change.resource.path}: {change.reason}" for change in refused)
        raise CommandFailure(f"the template cannot be deployed, and nothing was done: {reasons}", EXIT_REFUSED)
    if not what_if:
        _apply(client, plan)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CommandFailure(f"{path}: {error.strerror}", USAGE) from None
    except ValueError as error:
        raise CommandFailure(f"{path} is not JSON: {error}", USAGE) from None


def _parameters(given: str) -> dict[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or Path(given.removeprefix("@")).is_file():
        return parameters_of(_read(Path(given.removeprefix("@"))))
    try:
        return {name: json.loads(value)}
    except ValueError:
        return {name: value}


# Namespaces


def _placed(client: Client, resources: list[Resource]) -> list[Resource]:
    """The resources with the name of a namespace that the bus has: where each has only one, it is that one."""
    answer = _call(client, "GET", f"{_SUBSCRIPTION}/providers/Microsoft.ServiceBus/namespaces")
    there = {str(each["name"]).lower(): str(each["name"]) for each in answer["value"]}
    wanted = {each.names[0].lower() for each in resources}
    if wanted <= there.keys() or len(wanted) != 1 or len(there) != 1:
        return resources
    (only,) = there.values()
    for each in resources:
        each.names = (only, *each.names[1:])
    return resources


# Plan


def _plan(client: Client, resources: list[Resource]) -> list[PlannedChange]:
    changes: list[PlannedChange] = []
    made: set[str] = set()
    for each in resources:
        inside = any(each.path.lower().startswith(path) for path in made)
        existing = None if inside else _call(client, "GET", _path(each), missing=True)
        change = change_for(each, existing)
        if change.action == CREATE:
            made.add(each.path.lower() + "/")
        changes.append(change)
    return changes


def _path(resource: Resource) -> str:
    parts = [quote(part, safe="$~") for part in resource.path.split("/")]
    return f"{_GROUP}/{'/'.join(parts)}"


def _tell(client: Client, plan: list[PlannedChange]) -> None:
    rows = [
        {
            "action": change.action,
            "resource": change.resource.path,
            "changes": {name: {"from": old, "to": new} for name, old, new in change.differences},
            "reason": change.reason,
        }
        for change in plan
    ]
    lines = []
    for change in plan:
        lines.append(f"{change.action:<10} {change.resource.path}")
        if change.action in (UPDATE, REFUSED):
            lines += [f"             {name}: {_shown(old)} -> {_shown(new)}" for name, old, new in change.differences]
        if change.reason:
            lines.append(f"             {change.reason}")
    client.out.result({"what_if": rows}, "\n".join(lines))


def _shown(value: Any) -> str:
    return json.dumps(value)


# Deeds


def _apply(client: Client, plan: list[PlannedChange]) -> None:
    counts = dict.fromkeys(_ORDER[:3], 0)
    for change in plan:
        if change.action != SAME:
            body = {"location": "local", "properties": change.resource.properties, "sku": change.resource.sku}
            _call(client, "PUT", _path(change.resource), body)
        counts[change.action] += 1
    told = {"created": counts[CREATE], "updated": counts[UPDATE], "unchanged": counts[SAME]}
    client.out.result(told, ", ".join(f"{count} {word}" for word, count in told.items()))


def _call(client: Client, method: str, path: str, body: Any = None, missing: bool = False) -> Any:
    answer = client.ask(method, path, body, **{"api-version": "2021-11-01"})
    if missing and answer.status_code == 404:
        return None
    if answer.status_code >= 400:
        raise CommandFailure(_refusal(path, answer), EXIT_REFUSED)
    return answer.json()


def _refusal(path: str, answer: Any) -> str:
    try:
        return f"{path.split('Microsoft.ServiceBus/')[-1]}: {answer.json()['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"the bus answers {answer.status_code} to {path}"
