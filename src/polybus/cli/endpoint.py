"""Where a bus is and how to get in: a connection string, taken apart, and the trust that goes with it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from polybus.client.connection_string import ConnectionString, emulator_string
from polybus.errors import ConfigError

EMULATOR: Final = emulator_string("localhost:5672")
"""What a bus on this machine takes that was started without keys of its own."""


class Endpoint:
    """One bus. It is spoken to in clear text where its string says that it is an emulator, else over TLS.

    Giving an authority to trust, or saying that none is asked for, is asking for TLS in any case.
    """

    def __init__(self, connection: str, ca: Path | None = None, insecure: bool = False) -> None:
        self._given = ConnectionString(connection)
        self.host = self._given.host
        self.port = self._given.port
        self.authority = self._given.authority
        self.tls = ca is not None or insecure or not self._given.is_emulator
        self._ca = ca
        self._insecure = insecure
        if ca is not None and not ca.is_file():
            raise ConfigError(f"{ca}: there is no such file")

    @property
    def key_name(self) -> str:
        """Of the key, or what the connection string has in its place."""
        return self._given.key_name or "of the signature"

    @property
    def http_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def connection(self) -> str:
        """The connection string as the SDK must see it to choose TLS or not."""
        return self._given.text(tls=self.tls)

    @property
    def verify(self) -> str | bool:
        """What `requests` is told about certificates."""
        return False if self._insecure else str(self._ca) if self._ca is not None else True

    def ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def token(self) -> str:
        """A token for the whole namespace, as HTTP's Authorization header carries it."""
        return self._given.token()

    def token_for(self, entity: str) -> str:
        """A token for one entity, which that entity's own keys can sign, too."""
        return self._given.token_for(entity)
