"""Where a bus is and how to get in, from a connection string.

The string says where; a string of an emulator is spoken to in clear text, any other over TLS. No text that leaves
this file, `repr` included, holds a key or a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ssl
import time
from typing import Final
from urllib.parse import quote, urlsplit

from polybus.errors import ConfigError

TOKEN_SECONDS: Final = 3_600
RENEW_BEFORE_SECONDS: Final = 600
"""A token is made anew while the old one is still good for a long read."""
FORM: Final = "Endpoint=sb://HOST[:PORT];SharedAccessKeyName=…;SharedAccessKey=…"


class Connection:
    """One bus and one key. It can be pickled, so that tasks open connections of their own."""

    def __init__(self, connection_string: str, ca_file: str | None = None) -> None:
        fields = _fields(connection_string)
        address = urlsplit(fields.get("endpoint", ""))
        if not address.hostname:
            raise ConfigError(f"the option 'connectionString' must have the form {FORM}")
        self.host = address.hostname
        self.tls = fields.get("usedevelopmentemulator", "").lower() != "true" or ca_file is not None
        self.port = address.port or (443 if self.tls else 5672)
        self.entity_path = fields.get("entitypath")
        self._named_port = address.port is not None
        self._ca_file = ca_file
        self._signature = fields.get("sharedaccesssignature")
        self._key_name = fields.get("sharedaccesskeyname", "")
        self._key = fields.get("sharedaccesskey", "")
        if self._signature is None and not (self._key_name and self._key):
            raise ConfigError("the connection string has no SharedAccessKeyName with its SharedAccessKey")
        self._token: tuple[str, float] | None = None

    def __repr__(self) -> str:
        return f"Connection({self.authority})"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self._named_port else host

    def open(self, timeout_seconds: float) -> http.client.HTTPConnection:
        """A connection that is made when the first request goes out."""
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_seconds)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_seconds, context=context)

    def token(self) -> str:
        """What the Authorization header carries."""
        if self._signature is not None:
            return self._signature
        now = time.time()
        if self._token is None or self._token[1] - now < RENEW_BEFORE_SECONDS:
            expires = int(now) + TOKEN_SECONDS
            self._token = (_signed(f"sb://{self.authority}/", self._key_name, self._key, expires), expires)
        return self._token[0]


def _signed(resource: str, key_name: str, key: str, expires: int) -> str:
    audience = quote(resource, safe="")
    text = f"{audience}\n{expires}".encode()
    digest = base64.b64encode(hmac.new(key.encode(), text, hashlib.sha256).digest()).decode()
    signature, name = quote(digest, safe=""), quote(key_name, safe="")
    return f"SharedAccessSignature sr={audience}&sig={signature}&se={expires}&skn={name}"


def _fields(connection_string: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in connection_string.strip().strip(";").split(";")]
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}
