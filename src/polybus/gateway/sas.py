"""Shared access signatures: reading a token and checking it (docs/protocol/sas.md#tokens).

A token says: whoever holds the key called `skn` allows what lies under `sr` until `se`. The signature covers the
text of `sr` and `se` as they stand in the token, so neither is ever decoded and encoded again for the check.
Nothing about a token but its expiry and its key's name may leave this file in a text: no error and no `repr`
shows a signature or a key. Who asks with a wrong name learns nothing that a wrong key would not tell.
"""

from __future__ import annotations

import base64
import enum
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, unquote_plus

from polybus import limits
from polybus.client.sas import signature
from polybus.errors import Unauthorized
from polybus.namespace.entities.description import AccessRight, AuthorizationRule
from polybus.namespace.entities.names import fold

MISSING_TOKEN = 40102
INVALID_SIGNATURE = 40103
INVALID_AUDIENCE = 40104
MALFORMED_TOKEN = 40105
EXPIRED_TOKEN = 40106
MISSING_AUDIENCE = 40107
MISSING_EXPIRY = 40108
MISSING_ISSUER = 40109
MISSING_SIGNATURE = 40110

_PREFIX = "sharedaccesssignature "
_BEARER = "bearer "
_FIELDS = {
    "sr": (MISSING_AUDIENCE, "audience (sr)"),
    "se": (MISSING_EXPIRY, "expiry (se)"),
    "skn": (MISSING_ISSUER, "key name (skn)"),
    "sig": (MISSING_SIGNATURE, "signature (sig)"),
}
_MOST_FIELDS = 16
_EXPIRY = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_LAST_SECOND = 253_402_300_799
"""The end of year 9999, where .NET's time ends."""
_SCHEME_AND_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


class Rights(enum.IntFlag):
    """What a token opens. Manage implies the other two."""

    NONE = 0
    SEND = 1
    LISTEN = 2
    MANAGE = 7

    @classmethod
    def of(cls, rights: Iterable[AccessRight]) -> Rights:
        total = cls.NONE
        for right in rights:
            total |= _RIGHTS[right]
        return total


_RIGHTS = {
    AccessRight.SEND: Rights.SEND,
    AccessRight.LISTEN: Rights.LISTEN,
    AccessRight.MANAGE: Rights.MANAGE,
}

RuleLookup = Callable[[str], Sequence[AuthorizationRule]]
"""The rules of the entity with this folded path, or none; those of the namespace for an empty path."""


@dataclass(frozen=True)
class SasToken:
    """A token taken apart, not yet checked."""

    resource: str = field(repr=False)
    """`sr` as it stands in the token, still encoded."""
    expiry: str
    """`se` as it stands in the token."""
    key_names: tuple[str, ...]
    """What `skn` can mean: some clients encode it twice, some write a space as `+`."""
    signature: str = field(repr=False)

    @property
    def expires_s(self) -> float:
        return float(self.expiry)


class KeyRing:
    """The authorization rules of one namespace by the folded path that they are for; a ready RuleLookup."""

    def __init__(self, namespace_rules: Sequence[AuthorizationRule] = ()) -> None:
        self._rules: dict[str, tuple[AuthorizationRule, ...]] = {"": tuple(namespace_rules)}

    def set_rules(self, path: str, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the rules of an entity, or of the namespace for an empty path."""
        self._rules[fold(path)] = tuple(rules)

    def drop(self, path: str) -> None:
        self._rules.pop(fold(path), None)

    def __call__(self, path: str) -> tuple[AuthorizationRule, ...]:
        return self._rules.get(fold(path), ())


def is_sas(text: str) -> bool:
    """Whether a token is a shared access signature and not, say, a JWT. The Python SDK names its type wrongly."""
    return _without_bearer(text.strip()).lower().startswith(_PREFIX)


def parse_token(text: str | None) -> SasToken:
    """The parts of a token; Unauthorized if there is none or it is not well formed."""
    text = (text or "").strip()
    if not text:
        raise refusal(MISSING_TOKEN, "MissingToken: The authorization token was not found.")
    if len(text) > limits.SAS_TOKEN_CHARACTERS or not text.isascii() or not text.isprintable():
        raise _malformed()
    rest = _without_bearer(text)
    if not rest.lower().startswith(_PREFIX):
        raise _malformed()
    fields = _fields(rest[len(_PREFIX) :].strip())
    if not _EXPIRY.fullmatch(fields["se"]) or float(fields["se"]) > _LAST_SECOND:
        raise _malformed()
    return SasToken(fields["sr"], fields["se"], _key_names(fields["skn"]), unquote(fields["sig"]))


def authorize(
    token: SasToken, audience: str, now_s: float, rules: RuleLookup, *, hosts: Collection[str] = ()
) -> Rights:
    """The rights that a token gives on `audience`; Unauthorized if it gives none.

    `audience` is the address of the entity, or of anything below it, in any of the forms that clients use.
    `hosts` are the names that the bus goes by: the JavaScript SDK signs the bare host name for forwarding. They
    count for the audience, too: an entity may be called like a host, and its key must not open the whole namespace.
    """
    target = scope_of(audience, hosts)
    rule = _signer(token, _named(token.key_names, target, rules))
    if rule is None:
        raise refusal(INVALID_SIGNATURE, "InvalidSignature: The token has an invalid signature.")
    if token.expires_s <= now_s:
        raise refusal(EXPIRED_TOKEN, f"ExpiredToken: The token has expired. Expires on: {token.expiry}.")
    scope = scope_of(unquote(token.resource), hosts)
    if target[: len(scope)] != scope:
        raise refusal(INVALID_AUDIENCE, "InvalidAudience: The token's audience does not cover the resource.")
    return Rights.of(rule.rights)


def signed_here(token: SasToken, audience: str, rules: RuleLookup, *, hosts: Collection[str] = ()) -> bool:
    """Whether one of these rules made the token. It opens nothing: it only tells whom a token is meant for.

    A key is looked for along the audience and along what the token itself says that it is for: the bulk API's paths
    are not those of its entities.
    """
    paths = (scope_of(audience, hosts), scope_of(unquote(token.resource), hosts))
    return any(_signer(token, _named(token.key_names, path, rules)) is not None for path in paths)


def require(rights: Rights, needed: Rights, resource: str) -> None:
    """Raise Unauthorized if a right is missing, in the words that the SDKs show (docs/protocol/sas.md#missing-right)."""
    if rights & needed == needed:
        return
    claims = "Manage" if needed == Rights.MANAGE else ",".join(str(part.name).title() for part in needed)
    raise Unauthorized(
        f"Unauthorized access. '{claims}' claim(s) are required to perform this operation. Resource: '{resource}'."
    )


def scope_of(text: str, hosts: Collection[str] = ()) -> tuple[str, ...]:
    """The segments of the path that a URL or an address is about, folded; empty for the whole namespace.

    Scheme, authority and query do not count: clients reach one bus under many names. What has no scheme is a
    path, unless it begins with a port or with one of `hosts`. Whoever asks may be unknown, so what is longer than any
    address is refused before it is looked at.
    """
    if len(text) > limits.ADDRESS_CHARACTERS:
        raise refusal(INVALID_AUDIENCE, "InvalidAudience: The audience is longer than any address.")
    text = text.strip()
    match = _SCHEME_AND_AUTHORITY.match(text)
    path = unquote(re.split(r"[?#]", text[match.end() :] if match else text, maxsplit=1)[0])
    # Some letters outside of ASCII fold to ASCII ones; no name has them, so they must not match one.
    segments = (fold(path) if path.isascii() else path).strip("/").split("/")
    if match is None and (":" in segments[0] or segments[0] in hosts):
        segments = segments[1:]
    if segments and segments[-1] == "$management":
        segments = segments[:-1]
    return () if segments in ([], [""]) else tuple(segments)


def new_key() -> str:
    """A fresh key of 256 random bits, in the form that the cloud's own keys have."""
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def refusal(sub_code: int, text: str) -> Unauthorized:
    """An Unauthorized with the sub code that says why."""
    error = Unauthorized(text)
    error.sub_code = sub_code
    return error


def _malformed() -> Unauthorized:
    return refusal(MALFORMED_TOKEN, "MalformedToken: The token is not a valid shared access signature.")


def _without_bearer(text: str) -> str:
    """The Python administration client sends a given signature as a bearer token."""
    return text[len(_BEARER) :].lstrip() if text.lower().startswith(_BEARER) else text


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    parts = text.split("&")
    if len(parts) > _MOST_FIELDS:
        raise _malformed()
    for part in parts:
        name, separator, value = part.partition("=")
        if not separator or name in fields:
            raise _malformed()
        fields[name] = value
    for name, (sub_code, what) in _FIELDS.items():
        if not fields.get(name):
            raise refusal(sub_code, f"MalformedToken: The token has no {what}.")
    return fields


def _key_names(encoded: str) -> tuple[str, ...]:
    once = unquote(encoded)
    return tuple(dict.fromkeys((once, unquote(once), unquote_plus(encoded))))


def _named(key_names: tuple[str, ...], target: tuple[str, ...], rules: RuleLookup) -> list[AuthorizationRule]:
    """The rules of that name along the path, those of the entity before those of the namespace."""
    return [rule for path in _paths(target) for rule in rules(path) if rule.key_name in key_names]


def _paths(target: tuple[str, ...]) -> list[str]:
    """The paths along a scope that an entity can have, the longest first, and at last that of the namespace.

    No entity's path is longer than its limit: a scope of a thousand segments costs no more than one that fits.
    """
    paths = [""]
    for segment in target:
        path = f"{paths[-1]}/{segment}" if len(paths) > 1 else segment
        if len(path) > limits.ENTITY_PATH_CHARACTERS:
            break
        paths.append(path)
    paths.reverse()
    return paths


_NOBODY = AuthorizationRule(key_name="", rights=(), primary_key="nobody", secondary_key="nobody")
_LEAST_COMPARED = 2


def _signer(token: SasToken, candidates: list[AuthorizationRule]) -> AuthorizationRule | None:
    """The first rule with a key that made the signature. Unknown names cost as much time as known ones."""
    signer: AuthorizationRule | None = None
    given = token.signature.encode("utf-8", "replace")
    for rule in candidates + [_NOBODY] * (_LEAST_COMPARED - len(candidates)):
        matches = False
        for key in (rule.primary_key, rule.secondary_key):
            expected = signature(key, token.resource, token.expiry).encode("ascii")
            matches |= hmac.compare_digest(expected, given) and key != ""
        if matches and rule is not _NOBODY and signer is None:
            signer = rule
    return signer
