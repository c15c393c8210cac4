"""Writes the reference pages that are made from the code: commands, HTTP, metrics, options, limits.

`scripts/reference.py` writes them, `--check` says which are out of date. What the code cannot say about its parts
together stands in the hand-written pages beside them.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import os
import re
import sys
import tempfile
import typing
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["POLYBUS_BUILD"] = "plain"
ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
MADE = "<!-- Made by scripts/reference.py: change the code, then run it. -->"


def main() -> int:
    stale = []
    for name, make in MAKERS.items():
        path, text = PAGES / name, f"{MADE}\n{make().strip()}\n"
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    print("\n".join(f"out of date: docs/reference/{name}" for name in stale) or "the reference is true")
    return 1 if stale else 0


# Commands


def commands() -> str:
    from typer.main import get_command

    from polybus.cli.app import app

    head = (
        "# Every command and its options\n\nAs `--help` shows them. What they mean together, exit codes and examples: "
        "[the command line](cli.md). `serve` has a page of its own: [options](options.md).\n"
    )
    return head + "\n".join(_command(words, command) for words, command in _tree("polybus", get_command(app)))


def _tree(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if inner.hidden or f"{words} {name}" == "polybus serve":
            continue
        if hasattr(inner, "commands"):
            yield from _tree(f"{words} {name}", inner)
        else:
            yield f"{words} {name}", inner


def _command(words: str, command: Any) -> str:
    takes = " ".join(_argument(each) for each in command.params if each.param_type_name == "argument")
    text = f"\n## {words}\n\n```\n{f'{words} {takes}'.strip()} [OPTIONS]\n```\n\n{_plain(command.help)}\n"
    rows = [_option(each) for each in command.params if each.param_type_name == "option" and not each.hidden]
    return text + ("\n| option | |\n| --- | --- |\n" + "\n".join(rows) + "\n" if rows else "")


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()).strip("[]") + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    told = [_plain(parameter.help)]
    if choices := _choices(parameter):
        told.append("One of " + ", ".join(f"`{each}`" for each in choices) + ".")
    if getattr(parameter, "multiple", False) and "repeatable" not in told[0]:
        told.append("May be repeated.")
    if (default := _default(parameter)) is not None:
        told.append(f"By default `{default}`.")
    if parameter.envvar:
        told.append(f"From `{parameter.envvar}`.")
    return f"| {names} | {' '.join(filter(None, told))} |"


def _choices(parameter: Any) -> list[str]:
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    for each in (kind, *typing.get_args(kind)):
        if isinstance(each, type) and issubclass(each, enum.Enum):
            return [str(member.value) for member in each]
    return []


def _default(parameter: Any) -> str | None:
    default = parameter.default
    if default is None or isinstance(default, bool) or callable(default) or default in ("", (), []):
        return None
    return str(getattr(default, "value", default))


def _plain(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip().replace("|", "\\|").replace("<", "&lt;")


# Options


def options() -> str:
    from typer.main import get_command

    from polybus.cli.app import app

    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    rows = "\n".join(_option(each) for each in serve.params if not each.hidden and each.name != "help")
    return f"""# Options of a bus

## polybus serve

{_plain(serve.help)} What the options mean together: [the command line](cli.md#serve).

| option | |
| --- | --- |
{rows}

## polybus.Server

`Server(**options)` runs a bus inside of a program ([how](../how-to/tests.md)).

| option | by default | |
| --- | --- | --- |
{_server_options()}

## Properties of entities

In `config.json` and in the management API under these names; on the command line as `--lock-duration` and so on.
Durations are written in ISO 8601 there.

{_properties()}
"""


def _server_options() -> str:
    from polybus.server import ServerOptions

    told = _attribute_docs(ROOT / "src" / "polybus" / "server.py", "ServerOptions")
    rows = []
    for field in dataclasses.fields(ServerOptions):
        default = "{}" if field.default is dataclasses.MISSING else repr(field.default)
        rows.append(f"| `{field.name}` | `{default}` | {told.get(field.name, '')} |")
    return "\n".join(rows)


def _attribute_docs(path: Path, name: str) -> dict[str, str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {names[0]: text for names, _, text in _documented(found.body)}


def _properties() -> str:
    from polybus.cli.entity_options import HELP, sdk_name
    from polybus.namespace.entities import properties

    kinds = {
        "queue": properties.QUEUE_PROPERTIES,
        "topic": properties.TOPIC_PROPERTIES,
        "subscription": properties.SUBSCRIPTION_PROPERTIES,
    }
    rows = {}
    for each in (each for kind in kinds.values() for each in kind):
        of = ", ".join(name for name, kind in kinds.items() if each in kind)
        told = HELP.get(sdk_name(each), "Kept for compatibility.")
        fixed = " Chosen at creation." if each.fixed else ""
        rows[each.element] = f"| `{each.element}` | {of} | {each.shape.name.lower()} | {_plain(told)}{fixed} |"
    return "\n".join(["| property | of | form | |", "| --- | --- | --- | --- |", *rows.values()])


# Limits


def limits() -> str:
    source = ROOT / "src" / "polybus" / "limits.py"
    text = source.read_text(encoding="utf-8")
    import polybus.limits as module

    head = (
        "# Limits\n\nEvery number that bounds something, with its reason, as `src/polybus/limits.py` has it. Those of "
        "the cloud service's quotas hold here too.\n"
    )
    parts = re.split(r"^# --- (.+?) ---$", text, flags=re.MULTILINE)
    titles = ["", *parts[1::2]]
    made = [head]
    for title, part in zip(titles, parts[::2], strict=True):
        rows = [
            f"| `{name}` | {_number(getattr(module, name))} | {_plain(told)} |"
            for (name, *_), _, told in _documented(ast.parse(part).body)
            if name.isupper() and name != "PEER_COSTS"  # the page on security has it
        ]
        if rows:
            made.append(f"\n## {(title or 'Everywhere').strip()[0].upper()}{(title or 'Everywhere').strip()[1:]}\n")
            made += ["| name | value | why |", "| --- | --- | --- |", *rows]
    return "\n".join(made)


def _documented(body: list[ast.stmt]) -> Iterator[tuple[list[str], ast.expr | None, str]]:
    """Names that are set, each with the text that stands right below it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        told = ""
        if (
            isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            told = re.sub(r"\s+", " ", after.value.value)
        if names:
            yield names, node.value, told


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"`{value!r}`"


# Metrics


def metrics() -> str:
    text = _scraped()
    help_of = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    rows = []
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        labels: dict[str, None] = {}
        for found in re.findall(rf"^{name}(?:_bucket|_sum|_count)?{{([^}}]*)}}", text, re.MULTILINE):
            labels.update(dict.fromkeys(re.findall(r'(\w+)="', found)))
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{name}` | {kind} | {shown} | {_plain(help_of.get(name))} |")
    return f"""# Metrics

`GET /metrics` on every HTTP port, in Prometheus's text format 0.0.4; where keys of your own are set, with a token of
any key. Names that begin with `servicebus_` are those of the cloud's monitoring, `polybus_` are our own. Counters begin
at zero with the process, those of an entity when it is made. What to watch, alert rules and a dashboard:
[monitoring](../how-to/monitoring.md).

| name | kind | labels | |
| --- | --- | --- | --- |
{chr(10).join(rows)}
"""


def _scraped() -> str:
    """The page of a bus that holds one of each kind and has done a little, so that every name and label is on it."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

    from polybus import Server

    queue = {"Name": "orders", "Properties": {"EnablePartitioning": True}}
    topic = {"Name": "news", "Subscriptions": [{"Name": "all"}]}
    config = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [queue], "Topics": [topic]}]}}
    with tempfile.TemporaryDirectory() as folder, Server(config=config, data=folder) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
            receiver = client.get_queue_receiver("orders")
            (message,) = receiver.receive_messages(max_wait_time=30)
            receiver.dead_letter_message(message, reason="shown")
            with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
                assert letters.receive_messages(max_wait_time=30)
        with urllib.request.urlopen(f"{server.http_url}/metrics") as answer:
            return str(answer.read().decode())


# HTTP


def http() -> str:
    from polybus.gateway.bulk.openapi import openapi

    rows = []
    for path, methods in openapi()["paths"].items():
        for method, operation in methods.items():
            rows.append(_operation(method.upper(), path, operation))
    return f"""# Every HTTP call

Every port speaks HTTP and HTTPS. Calls of the cloud service have the cloud's own form: messages
([REST](../protocol/rest.md)), entities ([ATOM](../protocol/atom.md)), the resource manager's ([ARM](arm.md)). Besides:

| call | right | |
| --- | --- | --- |
| `GET /health`, `GET /health/ready` | none | 200 where the bus takes messages, else 503; JSON says what is away |
| `GET /health/live` | none | 200 while the process answers |
| `GET /metrics` | none, or any key | [metrics](metrics.md) |
| `GET /` with `Accept: text/html` | none | the [console](../how-to/console.md) |
| `POST /$polybus/faults/…` | Manage | [fault switches](bulk.md#stores-and-faults), off in production |

## Under /$polybus

Made from the description that `GET /$polybus/openapi.json` serves for tools. What the calls mean together, with bodies and
answers: [the bulk API](bulk.md). `…` stands for `/$polybus/entities/{{entity}}`.

| call | right | query, body | |
| --- | --- | --- | --- |
{chr(10).join(rows)}
"""


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    short = path.replace("/$polybus/entities/{entity}", "…")
    right = operation["description"].removeprefix("Needs: ").rstrip(".")
    query = [f"`{each['name']}`" for each in operation["parameters"] if each["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {}).get("properties", {})
    takes = [*query, *(f"`{name}`" for name in body)]
    return f"| `{method} {short}` | {right} | {', '.join(takes)} | {_plain(operation['summary'])} |"


MAKERS: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "http.md": http,
    "limits.md": limits,
    "metrics.md": metrics,
    "options.md": options,
}

if __name__ == "__main__":
    sys.exit(main())
