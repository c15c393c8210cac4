"""A key of a namespace as text: what command lines, files and environments say."""

from __future__ import annotations

from typing import Final

from polybus.errors import ConfigError
from polybus.namespace.entities.description import AccessRight, AuthorizationRule

ALL_RIGHTS: Final = (AccessRight.MANAGE, AccessRight.SEND, AccessRight.LISTEN)
KEY_FORM: Final = "NAME=KEY or NAME=KEY:Send,Listen,Manage"


def parse_key(text: str) -> AuthorizationRule:
    """NAME=KEY[:Send,Listen,Manage]; a key may hold colons, so only known words after the last one are rights."""
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise ConfigError(f"a key is {KEY_FORM}")
    rights: tuple[AccessRight, ...] = ALL_RIGHTS
    value, colon, words = rest.rpartition(":")
    known = {right.value.lower(): right for right in AccessRight}
    chosen = [known.get(word.strip().lower()) for word in words.split(",")]
    if colon and all(right is not None for right in chosen):
        rest = value
        rights = tuple(right for right in chosen if right is not None)
    if AccessRight.MANAGE in rights:
        rights = ALL_RIGHTS
    return AuthorizationRule(key_name=name, rights=rights, primary_key=rest, secondary_key=rest)
