"""`polybus keys`: the authorization rules of a namespace, a queue or a topic, and their keys."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from polybus.cli.client import Client, client_command, json_of
from polybus.cli.confirming import confirm
from polybus.errors import ConfigError
from polybus.namespace.entities.description import AccessRight

Name = Annotated[str, typer.Argument(help="The key's name.", show_default=False)]
Entity = Annotated[str | None, typer.Option("--entity", help="Of this queue or topic; else of the whole namespace.")]
Rights = Annotated[str, typer.Option("--rights", help="Send, Listen, Manage, by commas; Manage has all three.")]
Secondary = Annotated[bool, typer.Option("--secondary", help="The second key of the two.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_ROOT = "/subscriptions/polybus/resourceGroups/polybus/providers/Microsoft.ServiceBus/namespaces"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, show, create, regenerate and delete keys while the bus runs; a key that is gone ends its links.",
)


def list_(client: Client, entity: Entity = None) -> None:
    """Lists keys by name, with what each may do."""
    rules = [_told(each) for each in json_of(client.ask("GET", _path(client, entity)))["value"]]
    if client.out.as_json:
        client.out.json(rules)
    else:
        rows = [(rule["name"], ", ".join(rule["rights"])) for rule in rules]
        client.out.table("keys", ("name", "rights"), rows, "there are no keys")


def show(client: Client, name: Name, entity: Entity = None) -> None:
    """Shows both keys, and the connection strings with them."""
    _show(client, json_of(client.ask("POST", f"{_path(client, entity, name)}/listKeys")))


def create(client: Client, name: Name, rights: Rights = "Send,Listen", entity: Entity = None) -> None:
    """Creates a key, or gives the one of that name other rights; the bus makes up its texts."""
    path = _path(client, entity, name)
    json_of(client.ask("PUT", path, {"properties": {"rights": _rights(rights)}}))
    _show(client, json_of(client.ask("POST", f"{path}/listKeys")))


def regenerate(
    client: Client, name: Name, secondary: Secondary = False, entity: Entity = None, yes: Yes = False
) -> None:
    """Makes a new text for a key; whoever uses the old one is refused from now on, and its links end."""
    confirm(f"regenerate the {'secondary' if secondary else 'primary'} key of {name}", yes)
    body = {"keyType": "SecondaryKey" if secondary else "PrimaryKey"}
    _show(client, json_of(client.ask("POST", f"{_path(client, entity, name)}/regenerateKeys", body)))


def delete(client: Client, name: Name, entity: Entity = None, yes: Yes = False) -> None:
    """Deletes a key; the links that it opened end."""
    confirm(f"delete the key {name}", yes)
    path = _path(client, entity, name)
    json_of(client.ask("GET", path))  # one that is not there is told
    answer = client.ask("DELETE", path)
    if answer.status_code >= 400:
        json_of(answer)
    client.out.result({"name": name, "deleted": True}, f"deleted the key {name}")


def _path(client: Client, entity: str | None, name: str | None = None) -> str:
    owner = f"{_ROOT}/{client.admin.get_namespace_properties().name}"
    if entity is not None:
        owner = _owner(client, owner, quote(entity.replace("/", "~"), safe="~"))
    return f"{owner}/authorizationRules" + ("" if name is None else f"/{quote(name, safe='')}")


def _owner(client: Client, namespace: str, entity: str) -> str:
    """The path of a queue, or of a topic, of that name."""
    queue = f"{namespace}/queues/{entity}"
    return queue if client.ask("GET", queue).status_code < 400 else f"{namespace}/topics/{entity}"


def _rights(text: str) -> list[str]:
    known = {right.value.lower(): right.value for right in AccessRight}
    chosen = [known.get(word.strip().lower()) for word in text.split(",")]
    if None in chosen:
        raise ConfigError(f"--rights is one or more of {', '.join(known.values())}")
    return list(known.values()) if AccessRight.MANAGE.value in chosen else [word for word in chosen if word]


def _told(rule: dict[str, Any]) -> dict[str, Any]:
    return {"name": rule["name"], "rights": rule["properties"]["rights"]}


def _show(client: Client, keys: dict[str, Any]) -> None:
    lines = [
        f"{which}: {keys[f'{which}Key']}\n  {keys[f'{which}ConnectionString']}" for which in ("primary", "secondary")
    ]
    client.out.result(keys, "\n".join([keys["keyName"], *lines]))


app.command("list")(client_command(list_))
app.command()(client_command(show))
app.command()(client_command(create))
app.command()(client_command(regenerate))
app.command()(client_command(delete))
