"""What clients are connected to: the bus, who may do what on it, and the connections that are open.

AMQP and HTTP share this: one way to find the namespace that a client means, and one gate that every token goes
through. A namespace is meant by the host name that a client uses, else by the key that it shows, else it is the first
one; which one is meant is found before the gate, and opens nothing. SAS expiry is judged by the real clock, whatever
the bus's own clock says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from hmac import compare_digest
from pathlib import Path
from typing import Protocol

from polybus.errors import Unauthorized
from polybus.gateway.http.own_names import OwnNames
from polybus.gateway.pipelines import PipelineBoard
from polybus.gateway.sas import (
    MALFORMED_TOKEN,
    Rights,
    RuleLookup,
    authorize,
    is_sas,
    parse_token,
    refusal,
    scope_of,
    signed_here,
)
from polybus.gateway.sockets import Sockets
from polybus.gateway.stats import Stats
from polybus.gateway.telemetry import open_telemetry
from polybus.gateway.turns import Turns
from polybus.namespace.bus import Bus
from polybus.namespace.entities.description import AuthorizationRule
from polybus.namespace.namespace import Namespace

TokenVerifier = Callable[[str, tuple[str, ...]], tuple[Rights, float]]
"""Checks a JWT for a scope, see `sas.scope_of`: (rights, expiry in seconds since 1970); raises Unauthorized."""


class Grant:
    """What a checked token allows, on what, and for how long."""

    __slots__ = ("audience", "expires_s", "rights")

    def __init__(self, audience: str, rights: Rights, expires_s: float) -> None:
        self.audience = audience
        self.rights = rights
        self.expires_s = expires_s


class Connected(Protocol):
    """A client's connection, as the gateway sees it when it stops."""

    def shut_down(self) -> None:
        """Takes no new work, answers what is in flight, then closes with a retryable condition."""

    @property
    def told(self) -> bool:
        """Whether everything has left, the close included: only the client's own goodbye is missing."""

    def hang_up(self) -> None:
        """The bus waits no longer."""

    def access_changed(self, namespace: Namespace) -> None:
        """Keys of the namespace, or of an entity in it, are others now: what was allowed by a key that is gone ends."""


class Gateway:
    def __init__(
        self,
        bus: Bus,
        keys: list[AuthorizationRule],
        *,
        hosts: list[str] | None = None,
        jwt_verifier: TokenVerifier | None = None,
        own_keys: Mapping[str, Sequence[AuthorizationRule]] | None = None,
        on_demand: bool = False,
    ) -> None:
        """`own_keys` are those of single namespaces, by name; `keys` open all the others."""
        self.bus = bus
        self.keys = keys
        self._own_keys = {name.lower(): rules for name, rules in (own_keys or {}).items() if rules}
        self.hosts = hosts or []
        self.jwt_verifier = jwt_verifier
        self.on_demand = on_demand
        """Whether clients' links make the entities that they ask for (docs/protocol/amqp.md#on-demand)."""
        self.turns = Turns()
        self.stats = Stats()
        self.telemetry = open_telemetry(self.stats)
        """Spans and metrics for OpenTelemetry; None where it is not set up."""
        self.pipelines = PipelineBoard()
        self.sockets = Sockets(len(bus.stores))
        self.own_names = OwnNames()
        self.outgoing: Path | None = None
        """Where copies of the bus are made before they leave; None where there is no place for them."""
        self.connections: dict[Connected, None] = {}
        self.http_connections: Sized = ()
        """Those that speak HTTP, whether they ask for something now or not."""
        bus.on_access_changed = self._access_changed
        self.stopping = False

    def namespace_named(self, host: str | None) -> Namespace | None:
        """The namespace whose name is the host name that a client uses, or its first label."""
        label = (host or "").split(":")[0].split(".")[0].lower()
        return self.bus.namespaces.get(label) or self.bus.namespaces.get((host or "").lower())

    @property
    def first_namespace(self) -> Namespace:
        return next(iter(self.bus.namespaces.values()))

    def namespace_signing(self, text: str | None, audience: str) -> Namespace:
        """The namespace whose key made a token, for a client that says no name; else the first one."""
        if len(self.bus.namespaces) > 1 and text and is_sas(text):
            with contextlib.suppress(Unauthorized):
                token = parse_token(text)
                for namespace in self.bus.namespaces.values():
                    if signed_here(token, audience, self.rules_of(namespace), hosts=self.hosts):
                        return namespace
        return self.first_namespace

    def keys_of(self, namespace: Namespace) -> Sequence[AuthorizationRule]:
        """The rules of a namespace as a whole."""
        return (*self.given_keys(namespace), *self.bus.access_rules.of(namespace))

    def given_keys(self, namespace: Namespace) -> Sequence[AuthorizationRule]:
        """Those that were given when the bus was started."""
        return self._own_keys.get(namespace.name.lower(), self.keys)

    def _access_changed(self, namespace: Namespace) -> None:
        for connection in list(self.connections):
            connection.access_changed(namespace)

    def rules_of(self, namespace: Namespace) -> RuleLookup:
        """The authorization rules by folded entity path; those of the namespace for the empty path."""

        def lookup(path: str) -> Sequence[AuthorizationRule]:
            if not path:
                return self.keys_of(namespace)
            entity = namespace.find(path)
            return () if entity is None else entity.description.authorization_rules

        return lookup

    def check_address(self, namespace: Namespace, host: str | None) -> None:
        """Unauthorized where the namespace's IP rules keep this address out; the answer says nothing of them."""
        if not self.bus.access_rules.network_of(namespace).allow(host):
            raise Unauthorized(f"Unauthorized access to '{namespace.name}'.")

    def check_token(self, namespace: Namespace, text: str | None, audience: str) -> Grant:
        """What a token allows on an audience; Unauthorized where it is missing, wrong or expired."""
        if text and not is_sas(text):
            if self.jwt_verifier is None:
                raise refusal(
                    MALFORMED_TOKEN,
                    "MalformedToken: This bus takes shared access signatures; no verifier for other tokens is set.",
                )
            rights, expires_s = self.jwt_verifier(text, scope_of(audience, self.hosts))
            return Grant(audience, rights, expires_s)
        token = parse_token(text)
        rights = authorize(token, audience, time.time(), self.rules_of(namespace), hosts=self.hosts)
        return Grant(audience, rights, token.expires_s)

    def check_password(self, name: str, password: str) -> dict[str, Rights]:
        """The rights of the rule of that name and key (SASL PLAIN), by the name of each namespace that has it.

        Unauthorized where no namespace has one.
        """
        found = {
            namespace.name: rights
            for namespace in self.bus.namespaces.values()
            if (rights := _password_rights(self.keys_of(namespace), name, password.encode()))
        }
        if not found:
            raise Unauthorized("The user name or the password is wrong.")
        return found


def _password_rights(rules: Sequence[AuthorizationRule], name: str, given: bytes) -> Rights:
    found = Rights.NONE
    for rule in rules:
        fits = False
        for key in (rule.primary_key, rule.secondary_key):
            fits |= compare_digest(key.encode(), given) and key != ""
        if fits and rule.key_name == name:
            found |= Rights.of(rule.rights)
    return found
