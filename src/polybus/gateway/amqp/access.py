"""What one connection may do: by its login, or by the tokens that it has shown.

A token is kept under the audience that it was shown for; a later one for the same audience takes its place. Rights
on a path are those of every live token whose audience lies on the way to it. Times are monotonic milliseconds, as
the connection's own. docs/protocol/sas.md#tokens, docs/protocol/sas.md#token-lifetime.

Who comes in by password has the rights of its rule; whoever comes without one shows tokens later. A password is checked
like a token's key, and a wrong name costs what a wrong password costs. Certificates are
refused, since there is nothing to check them against. docs/protocol/amqp.md#sasl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polybus.amqp.events import SaslInit
from polybus.amqp.sasl import plain_credentials
from polybus.errors import QuotaExceeded, Unauthorized
from polybus.gateway.gateway import Gateway
from polybus.gateway.sas import Rights, require
from polybus.limits import AMQP_GRANTS_PER_CONNECTION

_TOKENS_FOLLOW: Final = ("MSSBCBS", "ANONYMOUS")
Scope = tuple[str, ...]
"""Folded segments of a path, empty for the whole namespace; see `sas.scope_of`."""


class _Held:
    __slots__ = ("audience", "expires_ms", "rights", "token")

    def __init__(self, rights: Rights, expires_ms: int, token: str, audience: str) -> None:
        self.rights = rights
        self.expires_ms = expires_ms
        self.token = token
        self.audience = audience


class Access:
    """The rights of one connection."""

    __slots__ = ("_held", "credentials", "login", "logins", "next_expiry_ms")

    def __init__(self) -> None:
        self.logins: dict[str, Rights] = {}
        """What a password allows, by namespace; the client says only later which one it means."""
        self.credentials: tuple[str, str] | None = None
        """Name and password of the login, to look again when keys are changed."""
        self.login = Rights.NONE
        self.next_expiry_ms: int | None = None
        self._held: dict[Scope, _Held] = {}

    @property
    def granted(self) -> bool:
        """Whether the client has shown who it is."""
        return bool(self.login) or bool(self._held)

    def enter(self, namespace: str) -> None:
        """The client is in this namespace; Unauthorized where its password opens only others."""
        self.login = self.logins.get(namespace, Rights.NONE)
        if self.logins and not self.login:
            raise Unauthorized(f"Unauthorized access. The login does not open the namespace '{namespace}'.")

    def grant(self, scope: Scope, rights: Rights, expires_ms: int, token: str = "", audience: str = "") -> None:
        """`token` and `audience` are what was shown, to be looked at again when keys are changed."""
        if scope not in self._held and len(self._held) >= AMQP_GRANTS_PER_CONNECTION:
            raise QuotaExceeded(f"A connection may hold tokens for {AMQP_GRANTS_PER_CONNECTION} audiences.")
        self._held[scope] = _Held(rights, expires_ms, token, audience)
        self._note_expiry()

    def rights(self, scope: Scope) -> Rights:
        total = self.login
        for length in range(len(scope) + 1):
            held = self._held.get(scope[:length])
            if held is not None:
                total |= held.rights
        return total

    def require(self, scope: Scope, needed: Rights, resource: str) -> None:
        """Raises Unauthorized in the words of docs/protocol/sas.md#missing-right where a right is missing."""
        require(self.rights(scope), needed, resource)

    def expire(self, now_ms: int) -> bool:
        """Forgets the tokens whose time is up; true where there was one."""
        dead = [scope for scope, held in self._held.items() if held.expires_ms <= now_ms]
        for scope in dead:
            del self._held[scope]
        self._note_expiry()
        return bool(dead)

    def recheck(self, shown: Callable[[str, str], Rights], logged_in: Callable[[str, str], Rights]) -> bool:
        """Looks at everything again that was shown, since keys have changed; true where something is no longer allowed.
        `shown` and `logged_in` say what is allowed now."""
        lost = False
        for scope, held in list(self._held.items()):
            rights = shown(held.token, held.audience)
            lost = lost or rights & held.rights != held.rights
            held.rights = rights
            if not rights:
                del self._held[scope]
        if self.login and self.credentials is not None:
            login = logged_in(*self.credentials)
            lost = lost or login & self.login != self.login
            self.login = login
        self._note_expiry()
        return lost

    def _note_expiry(self) -> None:
        self.next_expiry_ms = min((held.expires_ms for held in self._held.values()), default=None)


def log_in(gateway: Gateway, access: Access, init: SaslInit) -> bool:
    """Whether the client is welcome; what a password allows, and where, is put into `access`."""
    if init.mechanism in _TOKENS_FOLLOW:
        return True
    given = plain_credentials(init.initial_response) if init.mechanism == "PLAIN" else None
    if given is None:
        return False
    try:
        access.logins = gateway.check_password(given[0], given[1])
        access.credentials = (given[0], given[1])
    except Unauthorized:
        return False
    return True
