"""Shared access signatures as a client makes them; the gateway checks with the same signature.

docs/protocol/sas.md#tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import quote


def signature(key: str, encoded_resource: str, expiry: str) -> str:
    """What a key says about a resource and an expiry, both as they stand in the token."""
    message = f"{encoded_resource}\n{expiry}".encode()
    digest = hmac.new(key.encode("utf-8"), message, hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")


def make_token(resource: str, key_name: str, key: str, expires_s: int) -> str:
    """A token that opens `resource`, and whatever lies below it, until then."""
    encoded = quote(resource, safe="")
    signed = quote(signature(key, encoded, str(expires_s)), safe="")
    return f"SharedAccessSignature sr={encoded}&sig={signed}&se={expires_s}&skn={quote(key_name, safe='')}"
