"""A bus over HTTP, from a connection string: one of an emulator in clear text, any other over TLS."""

from __future__ import annotations

import http.client
import ssl

from polybus.client.connection_string import ConnectionString


class BusConnection:
    """One bus and one key. It can be pickled, so that tasks open connections of their own."""

    def __init__(self, connection_string: str, ca_file: str | None = None) -> None:
        self._given = ConnectionString(connection_string, "the option 'connectionString'")
        self._given.check_key()
        self.host = self._given.host
        self.tls = not self._given.is_emulator or ca_file is not None
        self.port = self._given.port or (443 if self.tls else 5672)
        self.authority = self._given.authority
        self.entity_path = self._given.entity_path
        self._ca_file = ca_file

    def __repr__(self) -> str:
        return f"Connection({self.authority})"

    def open(self, timeout_seconds: float) -> http.client.HTTPConnection:
        """A connection that is made when the first request goes out."""
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_seconds)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_seconds, context=context)

    def token(self) -> str:
        """What the Authorization header carries."""
        return self._given.token()
