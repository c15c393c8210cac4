"""Refusals as people need them: which bus, which key, which entity, and the command to type next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polybus.cli.output import UNREACHABLE, CommandFailure

if TYPE_CHECKING:
    from polybus.cli.endpoint import Endpoint

_TRACKING: Final = re.compile(r",?\s*\b(?:TrackingId|SystemTracker|Timestamp):\S+")
_SUB_CODE: Final = re.compile(r"^SubCode=\d+\.\s*")
_MISSING: Final = re.compile(r"The messaging entity '(?:sb://[^/']+/)?(?P<path>[^']+)' could not be found")
_NO_SUCH: Final = re.compile(r"^(?P<kind>Queue|Topic) '(?P<path>[^']+)' does not exist")
WRONG_KEY: Final = "InvalidSignature"


def explained(failure: CommandFailure, endpoint: Endpoint, verbose: bool) -> CommandFailure:
    """The same failure in words that help. With `verbose` what the bus said stays behind them, tracking ids included."""
    said = " ".join(str(failure).split())
    text = _told(said, endpoint, failure.code)
    if verbose and said not in text:
        text = f"{text} ({said})"
    return CommandFailure(text, failure.code)


def _told(said: str, endpoint: Endpoint, code: int) -> str:
    if WRONG_KEY in said:
        return (
            f"{endpoint.authority} refuses the key {endpoint.key_name!r}: the name is unknown there or the key is another; "
            "see SharedAccessKeyName and SharedAccessKey in --connection or POLYBUS_CONNECTION"
        )
    missing = _MISSING.search(said) or _NO_SUCH.search(said)
    if missing is not None:
        path, kind = missing["path"], missing.groupdict().get("kind")
        return f"there is no {path!r} on {endpoint.authority}; make it with: {_create(path, kind)}"
    said = _SUB_CODE.sub("", _TRACKING.sub("", said)).strip()
    if code == UNREACHABLE and "does not answer" in said:
        return f"{said}; is a bus running there? polybus serve starts one"
    return said


def _create(path: str, kind: str | None) -> str:
    topic, middle, subscription = path.partition("/Subscriptions/")
    if middle:
        return f"polybus subscription create {topic} {subscription.partition('/')[0]}"
    name = path.partition("/$")[0]
    return f"polybus {'topic' if kind == 'Topic' else 'queue'} create {name}"
