"""`polybus export`: a live namespace as a configuration file, which `serve --config` takes, or as a template."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from polybus.cli.client import Client, json_of
from polybus.cli.entity_options import sdk_name, settable
from polybus.cli.output import plain
from polybus.cli.overview import partitions_path
from polybus.gateway.arm.template import template_text
from polybus.gateway.config.dump import declared_subscription, dump
from polybus.gateway.config.model import ConfigFile, NamespaceConfig, TopicConfig
from polybus.limits import PARTITIONS_STANDARD
from polybus.namespace.entities.description import (
    INFINITE_MS,
    AccessRight,
    AuthorizationRule,
    Description,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import Address, parse_forward_target
from polybus.namespace.entities.properties import EntityProperty, Shape
from polybus.namespace.entities.rule import (
    CORRELATION_FIELDS,
    CorrelationFilterDescription,
    FilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.timespan import INFINITE_DAYS
from polybus.namespace.entities.typed_value import TypedValue


def export(
    client: Client,
    to: Annotated[Path | None, typer.Option("--to", help="A file; without it, standard output.")] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="With the keys of entities; without, new ones are made.")
    ] = False,
    template: Annotated[
        bool, typer.Option("--template", help="As a Resource Manager template, without keys.")
    ] = False,
) -> None:
    """Writes queues, topics, subscriptions and rules as a configuration file, or as a template."""
    found = _Export(client)
    if template:
        text = template_text(found.namespace(), found.tier)
    else:
        text = dump(ConfigFile((found.namespace(),)), with_keys=keys)
    if to is None:
        typer.echo(text, nl=False)
        return
    to.write_text(text, encoding="utf-8")
    client.out.result({"written": str(to)}, f"written to {to}")


class _Export:
    def __init__(self, client: Client) -> None:
        self._client = client
        info = client.admin.get_namespace_properties()
        self._name = info.name
        self.tier = str(plain(info.messaging_sku))
        self._premium = self.tier == "Premium"

    def namespace(self) -> NamespaceConfig:
        admin = self._client.admin
        queues = tuple(self._entity(QueueDescription, each) for each in admin.list_queues())
        topics = tuple(self._topic(each) for each in admin.list_topics())
        return NamespaceConfig(self._name, queues, topics)

    def _topic(self, found: Any) -> TopicConfig:
        admin = self._client.admin
        subscriptions = []
        for each in admin.list_subscriptions(found.name):
            rules = [_rule(rule) for rule in admin.list_rules(found.name, each.name)]
            values = _values(SubscriptionDescription, each)
            described = SubscriptionDescription(topic=found.name, name=each.name, **values)
            subscriptions.append(declared_subscription(described, rules))
        return TopicConfig(self._entity(TopicDescription, found), tuple(subscriptions))

    def _entity(self, kind: Any, found: Any) -> Any:
        """A queue or topic in the form in which it is asked for, not in the one in which it is shown."""
        values = _values(kind, found)
        if self._premium:
            values["enable_partitioning"] = False
        else:
            values["max_message_size_in_kilobytes"] = None
            if values["enable_partitioning"]:
                values["max_size_in_megabytes"] //= self._partitions(found.name)
        rules = tuple(_authorization_rule(rule) for rule in found.authorization_rules or [])
        return kind(path=found.name, authorization_rules=rules, **values)

    def _partitions(self, name: str) -> int:
        answer = self._client.get(partitions_path(Address(name)))
        if 400 <= answer.status_code < 500:
            return PARTITIONS_STANDARD  # another service than ours, which has always as many
        return len(json_of(answer)["partitions"])


def _values(kind: type[Description], found: Any) -> dict[str, Any]:
    values = {}
    for item in settable(kind):
        value = getattr(found, sdk_name(item))
        if item.attribute == "support_ordering" and kind is QueueDescription:
            continue
        if value is not None:
            values[item.attribute] = _value(item, value)
    return values


def _value(item: EntityProperty, value: Any) -> Any:
    if item.shape is Shape.DURATION:
        return INFINITE_MS if value.days >= INFINITE_DAYS else value // datetime.timedelta(milliseconds=1)
    if item.shape is Shape.STATUS:
        return EntityStatus(plain(value))
    if item.attribute in ("forward_to", "forward_dead_lettered_messages_to"):
        return parse_forward_target(value)
    return value


def _authorization_rule(rule: Any) -> AuthorizationRule:
    return AuthorizationRule(
        key_name=rule.key_name,
        rights=tuple(AccessRight(plain(right)) for right in rule.rights),
        primary_key=rule.primary_key or "",
        secondary_key=rule.secondary_key or "",
    )


def _rule(rule: Any) -> RuleDescription:
    expression = getattr(rule.action, "sql_expression", None)
    action = None
    if expression:
        action = SqlActionDescription(expression=expression, parameters=_typed(rule.action.parameters))
    return RuleDescription(name=rule.name, filter=_filter(rule.filter), action=action)


_SQL_KINDS = {
    "TrueRuleFilter": FilterKind.TRUE,
    "FalseRuleFilter": FilterKind.FALSE,
    "SqlRuleFilter": FilterKind.SQL,
}


def _filter(found: Any) -> FilterDescription:
    kind = _SQL_KINDS.get(type(found).__name__)
    if kind is not None:
        expression, parameters = found.sql_expression, _typed(found.parameters)
        return SqlFilterDescription(kind=kind, expression=expression, parameters=parameters)
    fields = {attribute: getattr(found, attribute) for _, attribute in CORRELATION_FIELDS}
    return CorrelationFilterDescription(**fields, properties=_typed(found.properties))


def _typed(values: dict[str, Any] | None) -> TypedValues:
    pairs: Sequence[tuple[str, Any]] = list((values or {}).items())
    return tuple((name, TypedValue.of(value)) for name, value in pairs)
