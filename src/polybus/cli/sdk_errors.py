"""The SDK's errors as one line and an exit code."""

from __future__ import annotations

import re
import sys
from html import unescape
from typing import Any

from polybus.cli.output import REFUSED, UNREACHABLE, USAGE, CommandFailure

_LONGEST = 600
_DETAIL = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)


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
