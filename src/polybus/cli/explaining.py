"""Errors as people need them: one line and an exit code; which bus, which key, which entity, the command to type next."""

from __future__ import annotations

import re
import sys
from html import unescape
from typing import TYPE_CHECKING, Any, Final

from polybus.cli.output import REFUSED, UNREACHABLE, USAGE, CommandFailure

if TYPE_CHECKING:
    from polybus.cli.endpoint import Endpoint

_TRACKING: Final = re.compile(r",?\s*\b(?:TrackingId|SystemTracker|Timestamp):\S+")
_SUB_CODE: Final = re.compile(r"^SubCode=\d+\.\s*")
_MISSING: Final = re.compile(r"The messaging entity '(?:sb://[^/']+/)?(?P<path>[^']+)' could not be found")
_NO_SUCH: Final = re.compile(r"^(?P<kind>Queue|Topic) '(?P<path>[^']+)' does not exist")
_DETAIL: Final = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)
_LONGEST: Final = 600
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


def sdk_failure(error: Exception, authority: str) -> CommandFailure | None:
    """What an error of the SDK means for the user; None where it is not the SDK's, or the SDK was never loaded."""
    core: Any = sys.modules.get("azure.core.exceptions")
    if core is None or not isinstance(error, core.AzureError):
        return None
    text = _text(error)
    if isinstance(error, core.ServiceRequestError | core.ServiceResponseError):
        return _unreachable(text, authority)
    bus: Any = sys.modules.get("azure.servicebus.exceptions")
    if bus is not None and isinstance(error, bus.ServiceBusConnectionError | bus.ServiceBusCommunicationError):
        return _unreachable(text, authority)
    return CommandFailure(text, REFUSED)


def _unreachable(text: str, authority: str) -> CommandFailure:
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return CommandFailure(
            f"the certificate of {authority} is not trusted; give its authority with --ca, or --insecure", USAGE
        )
    return CommandFailure(f"{authority} does not answer: {text}", UNREACHABLE)


def _text(error: Exception) -> str:
    """What the bus itself said where it answered; else the SDK's first sentence or so."""
    text = str(getattr(error, "message", None) or error)
    detail = _DETAIL.search(_answer(error)) or _DETAIL.search(text)
    if detail is not None:
        text = unescape(detail[1])
    text = re.split(r"\s+(?:Error condition:|Content:|Status Code:)", text, maxsplit=1)[0]
    return text[:_LONGEST].strip() or type(error).__name__


def _answer(error: Exception) -> str:
    response: Any = getattr(error, "response", None)
    try:
        return str(response.text()) if response is not None else ""
    except (ValueError, AttributeError):
        return ""
