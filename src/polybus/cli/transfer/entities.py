"""The entities of one bus made on another: what is there already stays as it is."""

from __future__ import annotations

from typing import Any

from polybus.cli.client import Client, json_of
from polybus.cli.entity_options import sdk_name, settable
from polybus.cli.overview import partitions_path
from polybus.limits import PARTITIONS_STANDARD
from polybus.namespace.entities.description import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import Address, parse_forward_target

_FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")
_DEFAULT = "$Default"


class Copier:
    """Makes entities, without their forwards; these come last, or messages would not stay where they are put."""

    def __init__(self, source: Client, target: Client) -> None:
        self._source = source
        self._target = target
        self.created = 0
        self.present = 0

    def copy(self) -> None:
        admin, there = self._source.admin, self._target.admin
        known = {each.name.lower() for each in [*there.list_queues(), *there.list_topics()]}
        for queue in admin.list_queues():
            self._make(known, queue.name, there.create_queue, self._values(QueueDescription, queue))
        for topic in admin.list_topics():
            self._make(known, topic.name, there.create_topic, self._values(TopicDescription, topic))
            self._subscriptions(topic.name)

    def _make(self, known: set[str], name: str, create: Any, values: dict[str, Any]) -> None:
        if name.lower() in known:
            self.present += 1
            return
        create(name, **values)
        self.created += 1

    def _values(self, kind: type[Description], found: Any) -> dict[str, Any]:
        names = [sdk_name(item) for item in settable(kind)]
        left_out = (*_FORWARDS, "support_ordering", "max_message_size_in_kilobytes")
        given = {name: getattr(found, name, None) for name in names if name not in left_out}
        values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if values.get("enable_partitioning"):
            values["max_size_in_megabytes"] //= self._partitions(found.name)
        if getattr(found, "authorization_rules", None):
            values["authorization_rules"] = found.authorization_rules
        return values

    def _partitions(self, name: str) -> int:
        answer = self._source.get(partitions_path(Address(name)))
        if 400 <= answer.status_code < 500:
            return PARTITIONS_STANDARD  # another service than ours, which has always as many
        return len(json_of(answer)["partitions"])

    def _subscriptions(self, topic: str) -> None:
        admin, there = self._source.admin, self._target.admin
        known = {each.name.lower() for each in there.list_subscriptions(topic)}
        for each in admin.list_subscriptions(topic):
            if each.name.lower() in known:
                self.present += 1
                continue
            there.create_subscription(topic, each.name, **self._values(SubscriptionDescription, each))
            rules = list(admin.list_rules(topic, each.name))
            if _DEFAULT not in [rule.name for rule in rules]:
                there.delete_rule(topic, each.name, _DEFAULT)
            for rule in rules:
                if rule.name != _DEFAULT:
                    there.create_rule(topic, each.name, rule.name, filter=rule.filter, action=rule.action)
                else:
                    made = there.get_rule(topic, each.name, _DEFAULT)
                    made.filter, made.action = rule.filter, rule.action
                    there.update_rule(topic, each.name, made)
            self.created += 1

    def forward(self) -> None:
        """Forwards as the source has them, now that everything is where it belongs."""
        admin, there = self._source.admin, self._target.admin
        for queue in admin.list_queues():
            if self._set_forwards(queue, made := there.get_queue(queue.name)):
                there.update_queue(made)
        for topic in admin.list_topics():
            for each in admin.list_subscriptions(topic.name):
                if self._set_forwards(each, made := there.get_subscription(topic.name, each.name)):
                    there.update_subscription(topic.name, made)

    def _set_forwards(self, found: Any, made: Any) -> bool:
        changed = False
        for name in _FORWARDS:
            wanted = getattr(found, name)
            if wanted and not getattr(made, name):
                setattr(made, name, f"sb://{self._target.endpoint.host}/{parse_forward_target(wanted)}")
                changed = True
        return changed
