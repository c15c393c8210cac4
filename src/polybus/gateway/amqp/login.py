"""Who may come in: by password with the rights of its rule, or without one, to show tokens later.

A password is checked like a token's key, and a wrong name costs what a wrong password costs. Certificates are offered
as the cloud service offers them, and refused, since there is nothing to check them against. docs/protocol/amqp.md#sasl.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.events import SaslInit
from polybus.amqp.sasl import plain_credentials
from polybus.errors import Unauthorized
from polybus.gateway.amqp.access import Access
from polybus.gateway.gateway import Gateway

_TOKENS_FOLLOW: Final = ("MSSBCBS", "ANONYMOUS")


def log_in(gateway: Gateway, access: Access, init: SaslInit) -> bool:
    """Whether the client is welcome; what a password allows, and where, is put into `access`."""
    if init.mechanism in _TOKENS_FOLLOW:
        return True
    given = plain_credentials(init.initial_response) if init.mechanism == "PLAIN" else None
    if given is None:
        return False
    try:
        access.logins = gateway.check_password(given[0], given[1])
        access.credentials = (given[0], given[1])
    except Unauthorized:
        return False
    return True
