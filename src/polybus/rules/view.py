"""What a rule sees of a message, and the names of its system properties (docs/protocol/rules.md#system-properties)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Protocol

from polybus.rules.values import Value


class MessageView(Protocol):
    """One message as rules see it. An implementation must not change while a rule is evaluated."""

    def system(self, name: str) -> Value:
        """The system property of that canonical name (a value of `SYSTEM_PROPERTIES`), None where unset.

        Message id and correlation id are text, whatever type they have on the wire.
        """

    def user(self) -> dict[str, Value]:
        """The application properties by their exact names. Integers beyond Int64 come as Decimal."""


SYSTEM_PROPERTIES: Final[dict[str, str]] = {
    "messageid": "messageid",
    "correlationid": "correlationid",
    "contenttype": "contenttype",
    "label": "label",
    "subject": "label",
    "to": "to",
    "replyto": "replyto",
    "replytosessionid": "replytosessionid",
    "sessionid": "sessionid",
    "partitionkey": "partitionkey",
    "viapartitionkey": "viapartitionkey",
    "timetolive": "timetolive",
    "scheduledenqueuetimeutc": "scheduledenqueuetimeutc",
    "enqueuedtimeutc": "enqueuedtimeutc",
    "expiresatutc": "expiresatutc",
    "sequencenumber": "sequencenumber",
    "enqueuedsequencenumber": "enqueuedsequencenumber",
    "deliverycount": "deliverycount",
    "size": "size",
    "state": "state",
    "locktoken": "locktoken",
    "lockeduntilutc": "lockeduntilutc",
    "deadlettersource": "deadlettersource",
    "forcepersistence": "forcepersistence",
    "jmsdeliverymode": "jmsdeliverymode",
    "jmspriority": "jmspriority",
    "jmstimestamp": "jmstimestamp",
}
"""Every name that may follow `sys.`, in lower case, with the canonical name that a view is asked for. Those of JMS are
what its selectors become."""

SETTABLE_PROPERTIES: Final[dict[str, type]] = {
    "label": str,
    "to": str,
    "replyto": str,
    "replytosessionid": str,
    "correlationid": str,
    "contenttype": str,
    "messageid": str,
    "sessionid": str,
    "timetolive": timedelta,
    "scheduledenqueuetimeutc": datetime,
}
"""The system properties that an action may set or remove, by canonical name, with the type each takes."""

KEY_PROPERTIES: Final = ("messageid", "sessionid", "replytosessionid")
"""Those of them that are bounded by `limits.KEY_CHARACTERS`."""
