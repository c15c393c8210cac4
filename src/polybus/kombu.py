"""`polybus://KEYNAME:KEY@HOST:PORT`: a bus as the broker of kombu and Celery, with nothing to prepare.

kombu's own transport `azureservicebus://` names neither a port nor a certificate, and cannot be told that it speaks to
an emulator: its URL becomes a connection string, in which `;` parts the fields, and a `;` in a URL parts kombu's
alternatives. So this transport is kombu's, with the one change of where its two clients connect to: in clear text, to
the address in the URL. Importing this file makes the URL known:

    import polybus.kombu
    app = Celery("work", broker="polybus://RootManageSharedAccessKey:SAS_KEY_VALUE@localhost:5672")
"""

from __future__ import annotations

from typing import Final

from azure.servicebus.management import ServiceBusAdministrationClient
from kombu.transport import TRANSPORT_ALIASES, azureservicebus
from kombu.utils.objects import cached_property

from polybus.client.connection_string import emulator_string
from polybus.client.plain_http import PlainHttp

SCHEME: Final = "polybus"
FORM: Final = f"{SCHEME}://KEYNAME:KEY@HOST:PORT"


def parse_url(url: str) -> tuple[str, str, str]:
    """Address, key name and key. A key may hold what splits other URLs: slashes, colons, an at sign."""
    credential, at, address = url.removeprefix(f"{SCHEME}://").rpartition("@")
    key_name, colon, key = credential.partition(":")
    if not (at and colon and address and key_name and key):
        raise ValueError(f"the URL of a bus has the form {FORM}")
    return address.rstrip("/"), key_name, key


class Channel(azureservicebus.Channel):  # type: ignore[misc]
    """kombu's own, whose clients speak to the bus in the URL."""

    def _try_parse_connection_string(self) -> None:
        address, key_name, key = parse_url(self.conninfo.hostname)
        self._connection_string = emulator_string(address, key_name, key)

    @cached_property  # type: ignore[untyped-decorator]
    def queue_mgmt_service(self) -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(self._connection_string, transport=PlainHttp())


class Transport(azureservicebus.Transport):  # type: ignore[misc]
    """What kombu makes of a URL that starts with `polybus://`."""

    Channel = Channel

    @staticmethod
    def parse_uri(uri: str) -> tuple[str, str]:
        address, key_name, key = parse_url(uri)
        return address, f"{key_name}:{key}"

    @classmethod
    def as_uri(cls, uri: str, include_password: bool = False, mask: str = "**") -> str:
        address, key_name, key = parse_url(uri)
        return f"{SCHEME}://{key_name}:{key if include_password else mask}@{address}"


TRANSPORT_ALIASES[SCHEME] = f"{__name__}:{Transport.__name__}"
