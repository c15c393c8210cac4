"""`polybus queue`, `topic` and `subscription`: create, list, show, update, delete."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from polybus.cli.client import Client, client_command
from polybus.cli.confirming import Yes, confirm
from polybus.cli.entity_options import given_values, option_parameters
from polybus.cli.output import plain, size
from polybus.namespace.entities.description import (
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.keys import parse_key

Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="A key: NAME=KEY[:Send,Listen,Manage] (repeatable); replaces those there are."),
]
_COUNTS = ("active", "dead_letter", "scheduled", "transfer", "transfer_dead_letter", "total")


@dataclass(frozen=True)
class EntityKind:
    """One kind of entity, and how the SDK's calls for it are named."""

    noun: str
    description: type[Description]
    parent: str | None = None
    has_keys: bool = True

    def call(self, client: Client, verb: str, suffix: str = "") -> Any:
        return getattr(client.admin, f"{verb}_{self.noun}{suffix}")

    def names(self) -> list[inspect.Parameter]:
        parameters = [_name(self.parent, f"The {self.parent}'s name.")] if self.parent else []
        return [*parameters, _name("name", f"The {self.noun}'s name.")]

    def path(self, given: dict[str, Any]) -> list[str]:
        """The names that were given, the outer one first; they are taken out."""
        parents = [given.pop(self.parent)] if self.parent else []
        return [*parents, given.pop("name")]


QUEUE = EntityKind("queue", QueueDescription)
TOPIC = EntityKind("topic", TopicDescription)
SUBSCRIPTION = EntityKind("subscription", SubscriptionDescription, parent="topic", has_keys=False)


def _name(name: str, text: str) -> inspect.Parameter:
    annotation = Annotated[str, typer.Argument(help=text, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def entity_commands(kind: EntityKind) -> typer.Typer:
    """The five commands of one kind of entity."""
    app = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help=f"Create, list, show, update and delete {kind.noun}s."
    )
    keys = [inspect.Parameter("key", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Keys)]
    keys = keys if kind.has_keys else []
    names, parents = kind.names(), kind.names()[:-1]
    yes = [inspect.Parameter("yes", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Yes)]
    created = [*names, *option_parameters(kind.description, fixed=True), *keys]
    updated = [*names, *option_parameters(kind.description, fixed=False), *keys]
    for verb, parameters, work, text in (
        ("create", created, _create, f"Creates a {kind.noun}."),
        ("list", parents, _list, f"Lists the {kind.noun}s with their counts."),
        ("show", names, _show, f"Shows a {kind.noun}'s properties and counts."),
        ("update", updated, _update, f"Changes the given properties of a {kind.noun}, and no others."),
        ("delete", [*names, *yes], _delete, f"Deletes a {kind.noun} with everything in it."),
    ):
        app.command(verb, help=text)(client_command(_bound(work, kind), parameters))
    return app


def _bound(work: Any, kind: EntityKind) -> Any:
    def command(client: Client, **given: Any) -> None:
        work(kind, client, given)

    return command


def _create(kind: EntityKind, client: Client, given: dict[str, Any]) -> None:
    path = kind.path(given)
    values = given_values(kind.description, given) | _keys(given)
    status = values.pop("status", None)
    made = kind.call(client, "create")(*path, **values)
    if status is not None:
        made.status = status
        kind.call(client, "update")(*path[:-1], made)
    client.out.result(shown(made), f"created {kind.noun} {'/'.join(path)}")


def _update(kind: EntityKind, client: Client, given: dict[str, Any]) -> None:
    path = kind.path(given)
    found = kind.call(client, "get")(*path)
    for name, value in (given_values(kind.description, given) | _keys(given)).items():
        setattr(found, name, value)
    kind.call(client, "update")(*path[:-1], found)
    client.out.result(shown(kind.call(client, "get")(*path)), f"updated {kind.noun} {'/'.join(path)}")


def _keys(given: dict[str, Any]) -> dict[str, Any]:
    """Authorization rules for the SDK, of the keys that were given."""
    texts = given.pop("key", None)
    return {"authorization_rules": [_sdk_rule(parse_key(text)) for text in texts]} if texts else {}


def _sdk_rule(rule: AuthorizationRule) -> Any:
    from azure.servicebus.management import AuthorizationRule as SdkRule

    return SdkRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[right.value for right in rule.rights],
        key_name=rule.key_name,
        primary_key=rule.primary_key,
        secondary_key=rule.secondary_key,
    )


def _delete(kind: EntityKind, client: Client, given: dict[str, Any]) -> None:
    path = kind.path(given)
    if not given["yes"]:
        held = _held(kind.call(client, "get", "_runtime_properties")(*path))
        confirm(f"delete {kind.noun} {'/'.join(path)} with {held}", given["yes"])
    kind.call(client, "delete")(*path)
    client.out.result({"deleted": "/".join(path)}, f"deleted {kind.noun} {'/'.join(path)}")


def _held(runtime: Any) -> str:
    """What goes with an entity."""
    total = getattr(runtime, "total_message_count", None)
    if total is None:
        return f"{runtime.subscription_count:,} subscriptions and all their messages"
    return f"{total:,} message{'s' if total != 1 else ''}"


def _show(kind: EntityKind, client: Client, given: dict[str, Any]) -> None:
    path = kind.path(given)
    data = shown(kind.call(client, "get")(*path))
    runtime = kind.call(client, "get", "_runtime_properties")(*path)
    data["counts"] = _counts(runtime)
    data |= {name: plain(value) for name, value in _runtime(runtime).items()}
    if client.out.as_json:
        client.out.json(data)
        return
    counts = data.pop("counts")
    rows = {name.replace("_", " "): value for name, value in data.items() if name != "authorization_rules"}
    rows |= {f"{name.replace('_', ' ')} messages": value for name, value in counts.items()}
    rows |= {f"key {rule['key_name']}": ", ".join(rule["rights"]) for rule in data.get("authorization_rules") or []}
    client.out.properties("", rows)


def _list(kind: EntityKind, client: Client, given: dict[str, Any]) -> None:
    parents = [given.pop(kind.parent)] if kind.parent else []
    described = {each.name: each for each in kind.call(client, "list", "s")(*parents)}
    found = []
    for runtime in kind.call(client, "list", "s_runtime_properties")(*parents):
        status = getattr(described.get(runtime.name), "status", None)
        found.append({"name": runtime.name, "status": plain(status), **_counts(runtime), **_runtime(runtime)})
    if client.out.as_json:
        client.out.json(found)
        return
    counts = [name for name in _COUNTS if any(name in each for each in found)]
    seldom = ("transfer", "transfer_dead_letter")
    counts = [name for name in counts if name not in seldom or any(each.get(name) for each in found)]
    extra = ["subscription_count"] if any("subscription_count" in each for each in found) else []
    heads = [f"#{_HEADS.get(name, name)}" for name in (*counts, *extra)]
    sized = any("size_in_bytes" in each for each in found)
    rows = [
        [
            each["name"],
            each["status"],
            *(each.get(name) for name in (*counts, *extra)),
            *([size(each.get("size_in_bytes"))] if sized else []),
        ]
        for each in found
    ]
    where = f" {parents[0]}" if parents else ""
    nothing = f"no {kind.noun}s{' of' if where else ''}{where}; polybus {kind.noun} create{where} NAME makes one"
    client.out.table("", ("~name", "status", *heads, *(["#size"] if sized else [])), rows, nothing)


_HEADS = {
    "dead_letter": "dead",
    "transfer_dead_letter": "transfer dead",
    "subscription_count": "subscriptions",
}


def shown(properties: Any) -> dict[str, Any]:
    """The SDK's properties as JSON has them. Keys stay out of it: `export --keys` writes them."""
    data = {name: plain(value) for name, value in properties.items() if name != "authorization_rules"}
    rules = getattr(properties, "authorization_rules", None)
    if rules:
        data["authorization_rules"] = [
            {"key_name": rule.key_name, "rights": [plain(right) for right in rule.rights]} for rule in rules
        ]
    return data


def _counts(runtime: Any) -> dict[str, int]:
    found = {name: getattr(runtime, f"{name}_message_count", None) for name in _COUNTS}
    return {name: value for name, value in found.items() if value is not None}


def _runtime(runtime: Any) -> dict[str, Any]:
    names = ("size_in_bytes", "subscription_count", "created_at_utc", "updated_at_utc", "accessed_at_utc")
    found = {name: getattr(runtime, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}
