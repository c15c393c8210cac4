"""A connection string taken apart: where a bus is, and how to get in.

A string of an emulator is spoken to in clear text, any other over TLS. No text that leaves this file by itself,
`repr` included, holds a key or a token.
"""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit

from polybus.client.sas import make_token
from polybus.errors import ConfigError

FORM: Final = "Endpoint=sb://HOST[:PORT];SharedAccessKeyName=…;SharedAccessKey=…"
EMULATOR_KEY_NAME: Final = "RootManageSharedAccessKey"
EMULATOR_KEY: Final = "SAS_KEY_VALUE"
"""The pair that every user of an emulator knows."""
TOKEN_SECONDS: Final = 3_600
RENEW_BEFORE_SECONDS: Final = 600
"""A token is made anew while the old one is still good for a long read."""
_NAMES: Final = {
    "endpoint": "Endpoint",
    "entitypath": "EntityPath",
    "sharedaccesskey": "SharedAccessKey",
    "sharedaccesskeyname": "SharedAccessKeyName",
    "sharedaccesssignature": "SharedAccessSignature",
}


def emulator_string(address: str, key_name: str = EMULATOR_KEY_NAME, key: str = EMULATOR_KEY) -> str:
    """The connection string of a bus that is spoken to in clear text at HOST:PORT."""
    return (
        f"Endpoint=sb://{address};SharedAccessKeyName={key_name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )


def broker_url(address: str, key_name: str = EMULATOR_KEY_NAME, key: str = EMULATOR_KEY) -> str:
    """The same for kombu and Celery, which know buses by a URL (`polybus.kombu`)."""
    return f"polybus://{key_name}:{key}@{address}"


class ConnectionString:
    """One bus and one way in. It can be pickled, so that other processes open connections of their own."""

    def __init__(self, text: str, called: str = "a connection string") -> None:
        pairs = [part.partition("=") for part in text.strip().strip(";").split(";")]
        self._fields = {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}
        address = urlsplit(self._fields.get("endpoint", ""))
        if not address.hostname:
            raise ConfigError(f"{called} must have the form {FORM}")
        self.host = address.hostname
        self.port = address.port
        """None where the string names none."""
        self.entity_path = self._fields.get("entitypath")
        self.key_name = self._fields.get("sharedaccesskeyname")
        self.is_emulator = self._fields.get("usedevelopmentemulator", "").lower() == "true"
        self._made: tuple[str, float] | None = None

    def __repr__(self) -> str:
        return f"ConnectionString({self.authority})"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def text(self, *, tls: bool) -> str:
        """The string as an SDK must see it to choose TLS or not."""
        kept = "".join(f"{_NAMES[name]}={value};" for name, value in self._fields.items() if name in _NAMES)
        return kept if tls else f"{kept}UseDevelopmentEmulator=true;"

    def check_key(self) -> None:
        """ConfigError where there is nothing to get in with."""
        fields = self._fields
        if "sharedaccesssignature" not in fields and not (
            fields.get("sharedaccesskeyname") and fields.get("sharedaccesskey")
        ):
            raise ConfigError("the connection string has no SharedAccessKeyName with its SharedAccessKey")

    def token(self) -> str:
        """A token for the whole namespace, as HTTP's Authorization header carries it."""
        given = self._fields.get("sharedaccesssignature")
        if given is not None:
            return given
        self.check_key()
        now = time.time()
        if self._made is None or self._made[1] - now < RENEW_BEFORE_SECONDS:
            expires = int(now) + TOKEN_SECONDS
            self._made = (self._signed("", expires), expires)
        return self._made[0]

    def token_for(self, entity: str) -> str:
        """A token for one entity, whose own keys sign for nothing else."""
        given = self._fields.get("sharedaccesssignature")
        if given is not None:
            return given
        self.check_key()
        return self._signed(entity, int(time.time()) + TOKEN_SECONDS)

    def _signed(self, path: str, expires: int) -> str:
        name, key = self._fields["sharedaccesskeyname"], self._fields["sharedaccesskey"]
        return make_token(f"sb://{self.authority}/{path}", name, key, expires)
