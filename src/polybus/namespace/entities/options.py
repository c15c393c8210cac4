"""Options of ours that no SDK has a property for, carried by one that every SDK has: the user metadata.

Where that text is a JSON object with a member `polybus`, the member holds them; everything else in it is the user's own:

    {"polybus": {"deadLetterTimeToLive": "P7D", "retryDelay": "PT10S", "retryDelayGrowth": "double"}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polybus.errors import ArgumentError
from polybus.limits import INFINITE_MS, RETRY_SECONDS, USER_METADATA_CHARACTERS
from polybus.namespace.entities import timespan

MEMBER = "polybus"
_GROWTHS = {"none": False, "double": True}
OPTION_NAMES = ("deadLetterTimeToLive", "retryDelay", "retryDelayGrowth", "retryDelayMax")


@dataclass(frozen=True, kw_only=True)
class EntityOptions:
    dead_letter_ttl_ms: int = INFINITE_MS
    retry_ms: int = 0
    retry_grows: bool = False
    retry_max_ms: int = INFINITE_MS


NO_OPTIONS = EntityOptions()


def options_of(user_metadata: str | None) -> EntityOptions:
    """What the user metadata asks for; ArgumentError where it asks for what cannot be."""
    if user_metadata is None or MEMBER not in user_metadata:
        return NO_OPTIONS
    whole = _object(user_metadata)
    if whole is None or MEMBER not in whole:
        return NO_OPTIONS
    return _read(whole[MEMBER])


def _object(user_metadata: str) -> dict[str, Any] | None:
    """The text as a JSON object; None where it is the user's own text."""
    try:
        whole = json.loads(user_metadata)
    except (ValueError, RecursionError):
        return None
    return whole if isinstance(whole, dict) else None


def _read(given: object) -> EntityOptions:
    if not isinstance(given, dict):
        raise ArgumentError(f"'{MEMBER}' in the user metadata must be a JSON object.")
    unknown = [name for name in given if name not in OPTION_NAMES]
    if unknown:
        raise ArgumentError(f"There is no option {str(unknown[0])[:60]!a}; there are {', '.join(OPTION_NAMES)}.")
    growth = given.get("retryDelayGrowth", "none")
    if growth not in _GROWTHS:
        raise ArgumentError("'retryDelayGrowth' must be none or double.")
    return EntityOptions(
        dead_letter_ttl_ms=_duration(given, "deadLetterTimeToLive", INFINITE_MS, 1000, INFINITE_MS),
        retry_ms=_duration(given, "retryDelay", 0, 0, RETRY_SECONDS * 1000),
        retry_grows=_GROWTHS[growth],
        retry_max_ms=_duration(given, "retryDelayMax", INFINITE_MS, 1000, INFINITE_MS),
    )


def _duration(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    if name not in given:
        return default
    try:
        ms = timespan.ms_from_text(str(given[name]).strip())
    except ValueError:
        raise ArgumentError(f"'{name}' must be a duration such as PT10S or P7D.") from None
    if not least <= ms <= most:
        raise ArgumentError(f"'{name}' must be from {least // 1000} to {most // 1000} seconds.")
    return ms


def with_options(user_metadata: str | None, given: Mapping[str, Any]) -> str | None:
    """The user metadata with other options in it; the rest of it stays."""
    whole: dict[str, Any] | None = {} if not user_metadata else _object(user_metadata)
    if whole is None:
        raise ArgumentError("The user metadata is a text of its own; options need it to be a JSON object, or empty.")
    kept = {name: value for name, value in given.items() if value is not None}
    _read(kept)
    whole.pop(MEMBER, None)
    if kept:
        whole[MEMBER] = kept
    text = json.dumps(whole) if whole else None
    if text is not None and len(text) > USER_METADATA_CHARACTERS:
        raise ArgumentError(f"The user metadata may have {USER_METADATA_CHARACTERS} characters.")
    return text


def given_options(user_metadata: str | None) -> dict[str, Any]:
    """The options as they are written."""
    whole = None if not user_metadata else _object(user_metadata)
    found = None if whole is None else whole.get(MEMBER)
    return dict(found) if isinstance(found, dict) else {}
