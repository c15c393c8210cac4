"""Where a running bus is reached, in the forms that clients want: for whoever has started one."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from polybus.client.connection_string import (
    EMULATOR_KEY,
    EMULATOR_KEY_NAME,
    TOKEN_SECONDS,
    broker_url,
    emulator_string,
)
from polybus.client.sas import make_token


class BusAddresses:
    """A bus on this machine, by the addresses of its listeners and one of its keys."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        """HOST:PORT of the listeners `amqp`, `http` and `tls`. Each speaks everything."""
        self.key_name = EMULATOR_KEY_NAME
        self.key = EMULATOR_KEY

    @property
    def connection_string(self) -> str:
        """For the SDKs' clients, plain AMQP."""
        return self.connection_string_for(self.key_name, self.key)

    @property
    def admin_connection_string(self) -> str:
        """For the SDKs' administration clients, which speak HTTPS on the port they are given."""
        return self.connection_string_for(self.key_name, self.key, self.addresses["http"])

    def connection_string_for(
        self, key_name: str = EMULATOR_KEY_NAME, key: str = EMULATOR_KEY, address: str | None = None
    ) -> str:
        return emulator_string(address or self.addresses["amqp"], key_name, key)

    @property
    def broker_url(self) -> str:
        """For kombu and Celery, where `polybus.kombu` was imported."""
        return broker_url(self.addresses["amqp"], self.key_name, self.key)

    @property
    def http_url(self) -> str:
        return f"http://{self.addresses['http']}"

    @property
    def authority(self) -> Path:
        """The development CA that administration clients must trust."""
        raise NotImplementedError

    def token(self) -> str:
        """A token for the whole namespace, as HTTP's Authorization header carries it."""
        return make_token(self.http_url, self.key_name, self.key, int(time.time()) + TOKEN_SECONDS)

    def switch(self, what: str, **body: Any) -> Any:
        """Turns one of the bus's fault switches over HTTP; gives their state (docs/reference/bulk.md#stores-and-faults).

        `switch("stores/0/down")` loses a store, `switch("clock", advance_ms=60_000)` lets a minute pass, `switch("heal")`
        ends every fault.
        """
        request = urllib.request.Request(  # noqa: S310 - the address is our own
            f"{self.http_url}/$polybus/faults/{what}",
            json.dumps(body).encode(),
            {"Authorization": self.token(), "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return json.load(answer)
