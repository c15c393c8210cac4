"""Completion of entity names: the shell asks the bus that the command line names so far."""

from __future__ import annotations

from typing import Any

import typer


def entity_argument(text: str) -> Any:
    """An argument that is the name of a queue, a topic or a subscription."""
    return typer.Argument(help=text, show_default=False, autocompletion=entity_names)


def entity_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names that begin so; none where the bus does not answer, for a shell must not hear of it."""
    from polybus.cli.client import Client
    from polybus.cli.contexts import chosen_endpoint
    from polybus.cli.output import CommandOutput

    given = context.params
    try:
        endpoint = chosen_endpoint(
            given.get("connection"), given.get("ca"), bool(given.get("insecure")), given.get("context")
        )
        with Client(endpoint, CommandOutput(False)) as client:
            names = [each.name for each in client.admin.list_queues()]
            for topic in client.admin.list_topics():
                names.append(topic.name)
                if incomplete.lower().startswith(topic.name.lower() + "/"):
                    subscriptions = client.admin.list_subscriptions(topic.name)
                    names += [f"{topic.name}/Subscriptions/{each.name}" for each in subscriptions]
    except Exception:
        return []
    return [name for name in sorted(names) if name.lower().startswith(incomplete.lower())]
