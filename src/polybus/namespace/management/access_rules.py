"""Authorization rules of namespaces that were made while the bus ran.

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
from polybus.namespace.entities.validation import authorization_violations
from polybus.namespace.namespace import Namespace

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus


class AccessRules:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._rules: dict[str, tuple[AuthorizationRule, ...]] = {}

    async def load(self) -> None:
        self._rules = {}
        for row in await self._bus.catalogue.rows(records.ACCESS):
            record = decode(row)
            name = record["namespace"].lower()
            self._rules[name] = tuple(authorization_rule_from_dict(rule) for rule in record["rules"])

    async def reload(self) -> None:
        """Another process has written them: what was allowed by a key that is gone ends."""
        known = self._rules
        await self.load()
        for namespace in list(self._bus.namespaces.values()):
            if known.get(namespace.name.lower()) != self._rules.get(namespace.name.lower()):
                self._bus.access_changed(namespace)

    def of(self, namespace: Namespace) -> tuple[AuthorizationRule, ...]:
        return self._rules.get(namespace.name.lower(), ())

    async def set_rules(self, namespace: Namespace, rules: tuple[AuthorizationRule, ...]) -> None:
        """Replaces what was made; keys that are missing are made."""
        whole = tuple(self._with_keys(rule) for rule in rules)
        for violation in authorization_violations(whole):
            raise ArgumentError(violation.text)
        record: dict[str, Any] = {
            "namespace": namespace.name,
            "rules": [authorization_rule_to_dict(rule) for rule in whole],
        }
        key = records.ACCESS + namespace.name.lower().encode()
        await self._bus.catalogue.write(Changes().put(key, record))
        self._rules[namespace.name.lower()] = whole
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
