"""`polybus rule`: the rules of a subscription."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from polybus.cli.client import Client, client_command
from polybus.cli.confirming import Yes, confirm
from polybus.cli.output import plain
from polybus.cli.values import properties
from polybus.errors import ConfigError
from polybus.namespace.entities.rule import CORRELATION_FIELDS

Topic = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]
Subscription = Annotated[str, typer.Argument(help="The subscription's name.", show_default=False)]
Name = Annotated[str, typer.Argument(help="The rule's name.", show_default=False)]
Sql = Annotated[str | None, typer.Option("--sql", help="A filter, such as \"color = 'red' AND size > 3\".")]
Parameters = Annotated[
    list[str] | None, typer.Option("--parameter", help="@NAME=VALUE of the SQL texts (repeatable).")
]
Everything = Annotated[bool, typer.Option("--everything", help="Let every message through.")]
Nothing = Annotated[bool, typer.Option("--nothing", help="Let no message through.")]
Fields = Annotated[
    list[str] | None,
    typer.Option("--match", help="FIELD=VALUE that must be equal: label, correlation_id, to… (repeatable)."),
]
Properties = Annotated[
    list[str] | None, typer.Option("--property", help="NAME=VALUE of the sender's properties (repeatable).")
]
Action = Annotated[
    str | None, typer.Option("--action", help='What changes, such as "SET seen = 1"; empty for nothing.')
]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create, list, show, update and delete rules of subscriptions."
)


def create(
    client: Client,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    parameter: Parameters = None,
    match: Fields = None,
    prop: Properties = None,
    everything: Everything = False,
    nothing: Nothing = False,
    action: Action = None,
) -> None:
    """Creates a rule: a SQL filter, fields and properties that must be equal, or all, or nothing."""
    made = _filter(sql, parameter, match, prop, everything, nothing)
    if made is None:
        raise ConfigError(
            "say which messages the rule lets through: --sql, --match, --property, --everything or --nothing"
        )
    rule = client.admin.create_rule(topic, subscription, name, filter=made, action=_action(action, parameter))
    client.out.result(shown(rule), f"created rule {topic}/{subscription}/{name}")


def update(
    client: Client,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    parameter: Parameters = None,
    match: Fields = None,
    prop: Properties = None,
    everything: Everything = False,
    nothing: Nothing = False,
    action: Action = None,
) -> None:
    """Changes a rule's filter or its action."""
    rule = client.admin.get_rule(topic, subscription, name)
    made = _filter(sql, parameter, match, prop, everything, nothing)
    if made is not None:
        rule.filter = made
    if action is not None:
        rule.action = _action(action, parameter)
    client.admin.update_rule(topic, subscription, rule)
    client.out.result(shown(rule), f"updated rule {topic}/{subscription}/{name}")


def list_rules(client: Client, topic: Topic, subscription: Subscription) -> None:
    """Lists the rules of a subscription."""
    rules = [shown(rule) for rule in client.admin.list_rules(topic, subscription)]
    if client.out.as_json:
        client.out.json(rules)
        return
    rows = [(rule["name"], rule["filter"]["kind"], _filter_text(rule), _action_text(rule)) for rule in rules]
    client.out.table("", ("name", "kind", "filter", "action"), rows)


def show(client: Client, topic: Topic, subscription: Subscription, name: Name) -> None:
    """Shows one rule."""
    rule = shown(client.admin.get_rule(topic, subscription, name))
    if client.out.as_json:
        client.out.json(rule)
        return
    rows = {"name": rule["name"], "kind": rule["filter"]["kind"], "filter": _filter_text(rule)}
    client.out.properties("", rows | {"action": _action_text(rule), "created": rule["created_at_utc"]})


def delete(client: Client, topic: Topic, subscription: Subscription, name: Name, yes: Yes = False) -> None:
    """Deletes a rule."""
    if not yes:
        left = sum(1 for rule in client.admin.list_rules(topic, subscription) if rule.name != name)
        then = f"{left} {'stays' if left == 1 else 'stay'}" if left else "the subscription gets nothing then"
        confirm(f"delete rule {topic}/{subscription}/{name} ({then})", yes)
    client.admin.delete_rule(topic, subscription, name)
    client.out.result({"deleted": name}, f"deleted rule {topic}/{subscription}/{name}")


for _verb, _work in (
    ("create", create),
    ("list", list_rules),
    ("show", show),
    ("update", update),
    ("delete", delete),
):
    app.command(_verb)(client_command(_work))


def _filter(
    sql: str | None,
    parameter: list[str] | None,
    match: list[str] | None,
    prop: list[str] | None,
    everything: bool,
    nothing: bool,
) -> Any:
    """The SDK's filter of what was said; None where nothing was."""
    from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleFilter, TrueRuleFilter

    said = [sql is not None, bool(match or prop), everything, nothing]
    if sum(said) > 1:
        raise ConfigError("a rule has one filter: --sql, or --match and --property, or --everything, or --nothing")
    if sql is not None:
        return SqlRuleFilter(sql, properties(parameter) or None)
    if match or prop:
        return CorrelationRuleFilter(**_fields(match), properties=properties(prop) or None)
    if everything:
        return TrueRuleFilter()
    return FalseRuleFilter() if nothing else None


def _fields(pairs: list[str] | None) -> dict[str, str]:
    known = {attribute for _, attribute in CORRELATION_FIELDS}
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        name = name.strip().lower().replace("-", "_").replace("subject", "label")
        if not equals or name not in known:
            raise ConfigError(f"{pair!r} is not FIELD=VALUE; the fields are {', '.join(sorted(known))}")
        found[name] = value
    return found


def _action(text: str | None, parameter: list[str] | None) -> Any:
    from azure.servicebus.management import SqlRuleAction

    return SqlRuleAction(text, properties(parameter) or None) if text else None


def shown(rule: Any) -> dict[str, Any]:
    """The SDK's rule as JSON has it."""
    kind = type(rule.filter).__name__.removesuffix("RuleFilter").lower()
    filter_ = {name: plain(value) for name, value in vars(rule.filter).items() if value and not name.startswith("_")}
    expression = getattr(rule.action, "sql_expression", None)
    action = None
    if expression:
        action = {"sql_expression": expression, "parameters": _parameters(rule.action)}
    filter_.pop("requires_preprocessing", None)
    return {
        "name": rule.name,
        "filter": {"kind": kind, **filter_},
        "action": action,
        "created_at_utc": plain(rule.created_at_utc),
    }


def _parameters(part: Any) -> dict[str, Any] | None:
    found = getattr(part, "parameters", None)
    return {name: plain(value) for name, value in found.items()} if found else None


def _filter_text(rule: dict[str, Any]) -> str:
    parts = rule["filter"]
    if "sql_expression" in parts:
        return str(parts["sql_expression"])
    fields = {name: value for name, value in parts.items() if name not in ("kind", "properties")}
    fields |= parts.get("properties") or {}
    return " AND ".join(f"{name} = {value!r}" for name, value in fields.items())


def _action_text(rule: dict[str, Any]) -> str | None:
    return rule["action"]["sql_expression"] if rule["action"] else None
