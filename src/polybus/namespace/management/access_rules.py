"""Who may come into a namespace, as it was decided while the bus ran: authorization rules, and addresses.

Rules that were given when the bus was started are not among them: they are changed where they were given. What is made
here is kept in the catalogue and is in force when the change is on disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polybus.errors import ArgumentError
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, decode
from polybus.namespace.entities.codec import authorization_rule_from_dict, authorization_rule_to_dict
from polybus.namespace.entities.description import AuthorizationRule
from polybus.namespace.entities.network_rules import NetworkRules, network_rules_from_dict, network_rules_to_dict
from polybus.namespace.entities.validation import authorization_violations
from polybus.namespace.namespace import Namespace

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

EVERYBODY = NetworkRules()


class AccessRules:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._rules: dict[str, tuple[AuthorizationRule, ...]] = {}
        self._networks: dict[str, NetworkRules] = {}

    async def load(self) -> None:
        self._rules = {}
        self._networks = {}
        for row in await self._bus.catalogue.rows(records.ACCESS):
            record = decode(row)
            name = record["namespace"].lower()
            self._rules[name] = tuple(authorization_rule_from_dict(rule) for rule in record["rules"])
            if "network" in record:
                self._networks[name] = network_rules_from_dict(record["network"])

    async def reload(self) -> None:
        """Another process has written them: what was allowed by a key that is gone ends."""
        known, before = self._rules, self._networks
        await self.load()
        for namespace in list(self._bus.namespaces.values()):
            name = namespace.name.lower()
            if known.get(name) != self._rules.get(name) or before.get(name) != self._networks.get(name):
                self._bus.access_changed(namespace)

    def of(self, namespace: Namespace) -> tuple[AuthorizationRule, ...]:
        return self._rules.get(namespace.name.lower(), ())

    async def set_rules(self, namespace: Namespace, rules: tuple[AuthorizationRule, ...]) -> None:
        """Replaces what was made; keys that are missing are made."""
        whole = tuple(self._with_keys(rule) for rule in rules)
        for violation in authorization_violations(whole):
            raise ArgumentError(violation.text)
        await self._write(namespace, whole, self.network_of(namespace))

    def network_of(self, namespace: Namespace) -> NetworkRules:
        return self._networks.get(namespace.name.lower(), EVERYBODY)

    async def set_network(self, namespace: Namespace, rules: NetworkRules) -> None:
        """From now on clients come from these addresses; the connections of others end."""
        await self._write(namespace, self.of(namespace), rules)

    async def _write(self, namespace: Namespace, rules: tuple[AuthorizationRule, ...], network: NetworkRules) -> None:
        name = namespace.name.lower()
        record: dict[str, Any] = {
            "namespace": namespace.name,
            "rules": [authorization_rule_to_dict(rule) for rule in rules],
            "network": network_rules_to_dict(network),
        }
        await self._bus.catalogue.write(Changes().put(records.ACCESS + name.encode(), record))
        self._rules[name], self._networks[name] = rules, network
        self._bus.access_changed(namespace)

    def _with_keys(self, rule: AuthorizationRule) -> AuthorizationRule:
        now_ms = self._bus.clock.now().wall_ms
        return replace(
            rule,
            primary_key=rule.primary_key or self._bus.new_key(),
            secondary_key=rule.secondary_key or self._bus.new_key(),
            created_at_ms=rule.created_at_ms or now_ms,
            modified_at_ms=rule.modified_at_ms or now_ms,
        )
