"""Where a bus is and how to get in: a connection string, taken apart, and the trust that goes with it."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from polybus.errors import ConfigError
from polybus.gateway.sas import make_token

EMULATOR: Final = (
    "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)
"""What a bus on this machine takes that was started without keys of its own."""
TOKEN_SECONDS: Final = 3_600


class Endpoint:
    """One bus. It is spoken to in clear text where its string says that it is an emulator, else over TLS.

    Giving an authority to trust, or saying that none is asked for, is asking for TLS in any case.
    """

    def __init__(self, connection: str, ca: Path | None = None, insecure: bool = False) -> None:
        self._fields = _fields(connection)
        address = urlsplit(self._fields.get("endpoint", ""))
        if not address.hostname:
            raise ConfigError(
                "a connection string has the form Endpoint=sb://HOST[:PORT];SharedAccessKeyName=…;SharedAccessKey=…"
            )
        self.host = address.hostname
        self.port = address.port
        self.tls = ca is not None or insecure or self._fields.get("usedevelopmentemulator", "").lower() != "true"
        self._ca = ca
        self._insecure = insecure
        if ca is not None and not ca.is_file():
            raise ConfigError(f"{ca}: there is no such file")

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def http_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def connection(self) -> str:
        """The connection string as the SDK must see it to choose TLS or not."""
        kept = {name: value for name, value in self._fields.items() if name != "usedevelopmentemulator"}
        names = {"endpoint": "Endpoint", "entitypath": "EntityPath", "sharedaccesskey": "SharedAccessKey"}
        names |= {"sharedaccesskeyname": "SharedAccessKeyName", "sharedaccesssignature": "SharedAccessSignature"}
        text = "".join(f"{names[name]}={value};" for name, value in kept.items() if name in names)
        return text if self.tls else f"{text}UseDevelopmentEmulator=true;"

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
        given = self._fields.get("sharedaccesssignature")
        if given is not None:
            return given
        name, key = self._fields.get("sharedaccesskeyname"), self._fields.get("sharedaccesskey")
        if not name or not key:
            raise ConfigError("the connection string has no SharedAccessKeyName with its SharedAccessKey")
        return make_token(f"sb://{self.authority}/", name, key, int(time.time()) + TOKEN_SECONDS)


def _fields(connection: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in connection.strip().strip(";").split(";")]
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}
