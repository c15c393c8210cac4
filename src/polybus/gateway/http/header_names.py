"""Which headers are a message's own properties, and which belong to HTTP or to somebody on the way.

docs/protocol/rest.md#custom-properties.

Both ways: what HTTP uses never becomes a property, and a property of such a name never becomes a header, so that no
message can set a cookie or open an answer to other origins.
"""

from __future__ import annotations

import re

_RESTRICTED = frozenset(
    (
        "allow",
        "alt-svc",
        "authorization",
        "brokerproperties",
        "cache-control",
        "connection",
        "cookie",
        "correlation-context",
        "date",
        "dnt",
        "etag",
        "expect",
        "expires",
        "forwarded",
        "from",
        "host",
        "http2-settings",
        "keep-alive",
        "last-modified",
        "link",
        "location",
        "max-forwards",
        "next-message",
        "origin",
        "pragma",
        "range",
        "referer",
        "refresh",
        "request-id",
        "retry-after",
        "server",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "traceparent",
        "tracestate",
        "transfer-encoding",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "x-content-type-options",
        "x-frame-options",
    )
)
_RESTRICTED_STARTS = (
    "accept",
    "access-control-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "servicebus",
    "x-forwarded-",
    "x-ms-",
    "x-polybus-",
)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")


def is_custom(name: str) -> bool:
    """Whether a header is a message's own, and not one of HTTP or of somebody on the way."""
    folded = name.lower()
    return folded not in _RESTRICTED and not folded.startswith(_RESTRICTED_STARTS)


def is_header_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_header_text(text: str) -> bool:
    """Whether a header can carry it: no control characters, which would end it or start another."""
    return text == text.strip() and all(ord(character) >= 32 and ord(character) != 127 for character in text)
