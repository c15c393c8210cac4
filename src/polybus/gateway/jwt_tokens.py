"""Entra ID's tokens, and those of every other issuer of JSON web tokens: checked with PyJWT, turned into rights.

A token counts where one of the issuer's published keys signed it, it is meant for this bus and it has not expired. Its
`roles` say what it opens. Keys that are secrets are never taken from a key set: whoever can read it could then sign.
"""

from __future__ import annotations

import json
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polybus import limits
from polybus.errors import ConfigError, Unauthorized
from polybus.gateway.sas import (
    EXPIRED_TOKEN,
    INVALID_AUDIENCE,
    INVALID_SIGNATURE,
    MALFORMED_TOKEN,
    Rights,
    refusal,
    scope_of,
)
from polybus.namespace.entities.description import AccessRight

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signed with a key that only the issuer has."""
AUDIENCES: Final = ("https://servicebus.azure.net", "https://servicebus.azure.net/")
"""What the SDKs ask tokens for."""
_CLAIMS: Final = ("exp", "iss", "aud")


@dataclass(frozen=True)
class Role:
    """What a role opens, and where: the whole namespace, or an entity and what is below it."""

    rights: Rights
    scope: tuple[str, ...] = ()


BUILT_IN: Final = {
    "Azure Service Bus Data Owner": Role(Rights.MANAGE),
    "Azure Service Bus Data Sender": Role(Rights.SEND),
    "Azure Service Bus Data Receiver": Role(Rights.LISTEN),
}


@dataclass(frozen=True)
class JwtSettings:
    """Whose tokens count, and for what."""

    keys: str
    """A JWKS file, or its https address."""
    issuers: Sequence[str]
    audiences: Sequence[str] = AUDIENCES
    roles: dict[str, Role] = field(default_factory=lambda: dict(BUILT_IN))


def parse_role(text: str) -> tuple[str, Role]:
    """NAME=Send,Listen,Manage[@PATH]."""
    name, equals, rest = text.rpartition("=")
    words, at, path = rest.partition("@")
    known = {right.value.lower(): right for right in AccessRight}
    rights = [known.get(word.strip().lower()) for word in words.split(",")]
    if not equals or not name or not all(rights) or (at and not path.strip("/")):
        raise ConfigError("a role is NAME=Send,Listen,Manage or NAME=Send,Listen,Manage@ENTITY")
    return name, Role(Rights.of(right for right in rights if right is not None), scope_of(path) if at else ())


def jwt_settings(
    keys: str | None, issuers: list[str] | None, audiences: list[str] | None, roles: list[str] | None
) -> JwtSettings | None:
    """What was said about tokens; None where nothing was."""
    if keys is None:
        if issuers or audiences or roles:
            raise ConfigError("--jwt-issuer, --jwt-audience and --jwt-role go with --jwt-keys")
        return None
    check_address(keys)
    own = dict(parse_role(text) for text in roles or [])
    return JwtSettings(keys, issuers or [], audiences or AUDIENCES, {**BUILT_IN, **own})


class JwtVerifier:
    """Checks tokens against the keys that were read last; reading them again is its owner's."""

    def __init__(self, settings: JwtSettings) -> None:
        try:
            import jwt
        except ImportError:
            raise ConfigError("tokens of Entra ID need: pip install 'polybus[entra]'") from None
        if not settings.issuers:
            raise ConfigError("--jwt-keys needs --jwt-issuer: keys without their issuer would be anybody's")
        self._jwt = jwt
        self._settings = settings
        self._keys: dict[str, PyJWK] = {}
        self.wanted = False
        """A token named a key that is not here: the issuer may have a new one."""

    # Keys

    @property
    def is_file(self) -> bool:
        return "://" not in self._settings.keys

    def load(self) -> None:
        """Reads the keys, and keeps those that it has where they cannot be read. It blocks."""
        self.wanted = False
        try:
            document = _read(self._settings.keys)
            self._keys = self._usable(document)
        except (OSError, ValueError, TypeError, self._jwt.PyJWTError) as error:
            log.error("%s: the keys for tokens cannot be read: %s", self._settings.keys, error)

    def _usable(self, document: Any) -> dict[str, PyJWK]:
        found: dict[str, PyJWK] = {}
        for each in document["keys"]:
            if each.get("kty") == "oct" or each.get("use", "sig") != "sig":
                continue
            try:
                found[str(each.get("kid", ""))] = self._jwt.PyJWK(each)
            except self._jwt.PyJWTError as error:
                log.warning("%s: a key cannot be used: %s", self._settings.keys, error)
        if not found:
            raise ValueError("there is no key for signatures in it")
        return found

    # Tokens

    def __call__(self, text: str, scope: tuple[str, ...]) -> tuple[Rights, float]:
        """The rights on a scope, and until when; Unauthorized where the token is not good."""
        jwt, settings = self._jwt, self._settings
        if len(text) > limits.JWT_CHARACTERS:
            raise _malformed()
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                self._key_of(text),
                algorithms=list(ALGORITHMS),
                audience=list(settings.audiences),
                issuer=list(settings.issuers),
                leeway=limits.JWT_LEEWAY_SECONDS,
                options={"require": list(_CLAIMS), "strict_aud": False},
            )
        except jwt.ExpiredSignatureError:
            raise refusal(EXPIRED_TOKEN, "ExpiredToken: The token has expired.") from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            text = "InvalidAudience: The token is not of the issuer, or not for the audience, that this bus takes."
            raise refusal(INVALID_AUDIENCE, text) from None
        except jwt.InvalidSignatureError:
            raise refusal(INVALID_SIGNATURE, "InvalidSignature: The token has an invalid signature.") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise _malformed() from None
        return self._rights(claims, scope), float(claims["exp"])

    def _key_of(self, text: str) -> PyJWK:
        kid = self._jwt.get_unverified_header(text).get("kid", "")
        found = self._keys.get(kid) if isinstance(kid, str) else None
        if found is None:
            self.wanted = True
            raise self._jwt.InvalidSignatureError("no such key")
        return found

    def _rights(self, claims: dict[str, Any], scope: tuple[str, ...]) -> Rights:
        roles = claims.get("roles", [])
        rights = Rights.NONE
        for name in roles if isinstance(roles, list) else []:
            role = self._settings.roles.get(name) if isinstance(name, str) else None
            if role is not None and scope[: len(role.scope)] == role.scope:
                rights |= role.rights
        return rights


def _malformed() -> Unauthorized:
    return refusal(MALFORMED_TOKEN, "MalformedToken: The token is not a JSON web token that this bus takes.")


def check_address(keys: str) -> None:
    """Keys come from a file or over TLS; what came in clear text could be anybody's."""
    if "://" in keys and not keys.startswith("https://"):
        raise ConfigError("--jwt-keys is a file or an https:// address")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from where they were said to be, and from nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read(keys: str) -> Any:
    if "://" not in keys:
        return json.loads(Path(keys).read_bytes())
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=ssl.create_default_context()), _NoRedirect
    )
    with opener.open(keys, timeout=limits.JWKS_SECONDS) as answer:
        return json.loads(answer.read(limits.JWKS_BYTES))
