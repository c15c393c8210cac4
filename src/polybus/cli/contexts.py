"""`polybus contexts`: saved connections by name, so that a bus is named once and not in every command.

They lie in one file of the user's own (mode 0600, for they hold keys). A command takes, in this order: `--connection`
or POLYBUS_CONNECTION, `--context` or POLYBUS_CONTEXT, the context in use, the emulator's connection string.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from polybus.cli.endpoint import EMULATOR, Endpoint
from polybus.cli.options import AsJson
from polybus.cli.output import CommandOutput, one_line_errors
from polybus.errors import ConfigError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Saved connections: add, list, use, remove.")
Name = Annotated[str, typer.Argument(help="The context's name.", show_default=False)]


@dataclass(frozen=True)
class Context:
    connection: str
    ca: str | None = None
    insecure: bool = False

    def endpoint(self) -> Endpoint:
        return Endpoint(self.connection, None if self.ca is None else Path(self.ca), self.insecure)


class Contexts:
    """What the file holds."""

    def __init__(self) -> None:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        self.path = folder / "polybus" / "contexts.json"
        self.saved: dict[str, Context] = {}
        self.current: str | None = None
        if self.path.exists():
            try:
                found = json.loads(self.path.read_text(encoding="utf-8"))
                self.saved = {name: Context(**each) for name, each in found["contexts"].items()}
                self.current = found["current"]
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{self.path} cannot be read: {error}") from error

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self.path.with_suffix(".new")
        saved = {"current": self.current, "contexts": {name: asdict(each) for name, each in self.saved.items()}}
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(saved, file, indent=2)
        partial.replace(self.path)

    def named(self, name: str) -> Context:
        if name not in self.saved:
            known = ", ".join(sorted(self.saved)) or "none"
            raise ConfigError(
                f"there is no context {name!r} (there are: {known}); polybus contexts add {name} makes it"
            )
        return self.saved[name]


def chosen_endpoint(connection: str | None, ca: Path | None, insecure: bool, context: str | None) -> Endpoint:
    """The bus that a command is for."""
    if connection is not None:
        return Endpoint(connection, ca, insecure)
    contexts = Contexts()
    name = context or contexts.current
    found = Context(EMULATOR) if name is None else contexts.named(name)
    return Endpoint(found.connection, ca or (Path(found.ca) if found.ca else None), insecure or found.insecure)


@app.command()
def add(
    name: Name,
    connection: Annotated[str, typer.Option(envvar="POLYBUS_CONNECTION", help="Its connection string.")],
    ca: Annotated[Path | None, typer.Option(help="Certificate authority to trust (PEM).")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="TLS with any certificate.")] = False,
    as_json: AsJson = False,
) -> None:
    """Saves a connection under a name; the first one is in use at once."""
    with one_line_errors():
        saved = Context(connection, None if ca is None else str(ca.resolve()), insecure)
        where = saved.endpoint().authority
        contexts = Contexts()
        contexts.saved[name] = saved
        contexts.current = contexts.current or name
        contexts.write()
        CommandOutput(as_json).result({"added": name, "bus": where}, f"{name} is {where}, in {contexts.path}")


@app.command()
def use(name: Name, as_json: AsJson = False) -> None:
    """Makes a context the one that commands take where they are told nothing else."""
    with one_line_errors():
        contexts = Contexts()
        where = contexts.named(name).endpoint().authority
        contexts.current = name
        contexts.write()
        CommandOutput(as_json).result({"current": name, "bus": where}, f"commands now go to {name}, {where}")


@app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """Lists what is saved, without keys."""
    out = CommandOutput(as_json)
    with one_line_errors():
        contexts = Contexts()
        rows = [_shown(name, each, contexts.current) for name, each in sorted(contexts.saved.items())]
        if as_json:
            out.json(rows)
        else:
            nothing = "no contexts; polybus contexts add NAME --connection … saves one"
            out.table("", ("name", "in use", "~bus", "key", "TLS"), [tuple(each.values()) for each in rows], nothing)


def _shown(name: str, context: Context, current: str | None) -> dict[str, Any]:
    endpoint = context.endpoint()
    return {
        "name": name,
        "current": name == current,
        "bus": endpoint.authority,
        "key": endpoint.key_name,
        "tls": endpoint.tls,
    }


@app.command()
def remove(name: Name, as_json: AsJson = False) -> None:
    """Forgets a context."""
    with one_line_errors():
        contexts = Contexts()
        contexts.named(name)
        del contexts.saved[name]
        contexts.current = None if contexts.current == name else contexts.current
        contexts.write()
        CommandOutput(as_json).result({"removed": name}, f"{name} is forgotten")
