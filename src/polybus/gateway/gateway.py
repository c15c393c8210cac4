"""What clients are connected to: the bus, who may do what on it, and the connections that are open.

AMQP and HTTP share this: one way to find the namespace that a client means, and one gate that every token goes
through. SAS expiry is judged by the real clock, whatever the bus's own clock says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hmac import compare_digest
from typing import Protocol

from polybus.errors import Unauthorized
from polybus.gateway.sas import MALFORMED_TOKEN, Rights, RuleLookup, authorize, is_sas, parse_token, refusal
from polybus.gateway.stats import Stats
from polybus.namespace.bus import Bus
from polybus.namespace.description import AuthorizationRule
from polybus.namespace.namespace import Namespace

JwtVerifier = Callable[[str, str], tuple[Rights, float]]
"""Checks a JWT for an audience: (rights, expiry in seconds since 1970); raises Unauthorized."""


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


class Gateway:
    def __init__(
        self,
        bus: Bus,
        keys: list[AuthorizationRule],
        *,
        hosts: list[str] | None = None,
        jwt_verifier: JwtVerifier | None = None,
    ) -> None:
        self.bus = bus
        self.keys = keys
        self.hosts = hosts or []
        self.jwt_verifier = jwt_verifier
        self.stats = Stats()
        self.connections: dict[Connected, None] = {}
        self.stopping = False

    def namespace_for(self, host: str | None) -> Namespace:
        """The namespace that a client means: by the first label of the host name it uses, else the first one."""
        label = (host or "").split(":")[0].split(".")[0].lower()
        found = self.bus.namespaces.get(label) or self.bus.namespaces.get((host or "").lower())
        return found or next(iter(self.bus.namespaces.values()))

    def rules_of(self, namespace: Namespace) -> RuleLookup:
        """The authorization rules by folded entity path; those of the namespace for the empty path."""

        def lookup(path: str) -> list[AuthorizationRule] | tuple[AuthorizationRule, ...]:
            if not path:
                return self.keys
            entity = namespace.find(path)
            return () if entity is None else entity.description.authorization_rules

        return lookup

    def check_token(self, namespace: Namespace, text: str | None, audience: str) -> Grant:
        """What a token allows on an audience; Unauthorized where it is missing, wrong or expired."""
        if text and not is_sas(text):
            if self.jwt_verifier is None:
                raise refusal(
                    MALFORMED_TOKEN,
                    "MalformedToken: This bus takes shared access signatures; no verifier for other tokens is set.",
                )
            rights, expires_s = self.jwt_verifier(text, audience)
            return Grant(audience, rights, expires_s)
        token = parse_token(text)
        rights = authorize(token, audience, time.time(), self.rules_of(namespace), hosts=self.hosts)
        return Grant(audience, rights, token.expires_s)

    def check_password(self, name: str, password: str) -> Rights:
        """The rights of a namespace rule by its name and key (SASL PLAIN); Unauthorized where they do not fit."""
        found = Rights.NONE
        given = password.encode()
        for rule in self.keys:
            fits = False
            for key in (rule.primary_key, rule.secondary_key):
                fits |= compare_digest(key.encode(), given) and key != ""
            if fits and rule.key_name == name:
                found |= Rights.of(rule.rights)
        if not found:
            raise Unauthorized("The user name or the password is wrong.")
        return found
