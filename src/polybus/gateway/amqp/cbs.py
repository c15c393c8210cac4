"""`$cbs`: a client shows a token for an audience, and what it allows holds for the connection.

The token's kind is told by its text, for the Python SDK calls a shared access signature a JWT
(docs/protocol/sas.md#token-kind). Failures are replies with a status, never rejected transfers: a rejected one leaves
Python without a reason. docs/protocol/sas.md#cbs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from polybus.amqp.incoming import IncomingLink
from polybus.amqp.types import Int
from polybus.errors import BusError, NotImplementedByBus, Unauthorized
from polybus.gateway.amqp.errors import description_of, new_tracking_id
from polybus.gateway.amqp.requests import Request, RequestLink
from polybus.gateway.sas import scope_of
from polybus.limits import ADDRESS_CHARACTERS, AMQP_TOKEN_BYTES

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

CBS: Final = ("$cbs",)
_ACCEPTED: Final = 202


class TokenLink(RequestLink):
    """The request link of `$cbs`."""

    __slots__ = ()

    def __init__(self, endpoint: AmqpEndpoint, link: IncomingLink) -> None:
        super().__init__(endpoint, link, None, CBS)

    def start(self) -> None:
        self.incoming.message_limit = AMQP_TOKEN_BYTES
        super().start()

    def serve(self, request: Request) -> None:
        try:
            self._take_token(request)
            status, description = _ACCEPTED, "Accepted"
        except Exception as error:
            tracking_id = new_tracking_id(self.endpoint.id)
            self.report(error, tracking_id, "a token was refused", self._shown(request))
            status = error.http_status if isinstance(error, BusError) else 500
            description = f"{description_of(error)} TrackingId:{tracking_id}"
        _reply(request, status, description)

    def _shown(self, request: Request) -> str:
        """The path that a token was shown for. What else the client wrote there may be the token itself."""
        audience = request.application.get("name")
        if not isinstance(audience, str) or len(audience) > ADDRESS_CHARACTERS:
            return ""
        return "/".join(scope_of(audience, self.endpoint.gateway.hosts))[:260]

    def _take_token(self, request: Request) -> None:
        if request.operation != "put-token":
            raise NotImplementedByBus(f"The operation '{request.operation[:100]}' is not known here.")
        audience, token = request.application.get("name"), request.body
        if not isinstance(audience, str) or not isinstance(token, str):
            raise Unauthorized("MalformedToken: A token and the audience that it is for are needed.")
        endpoint = self.endpoint
        grant = endpoint.show(token, audience)
        # Expiry is a wall time; the connection's own clock is monotonic.
        lasts_ms = int((grant.expires_s - time.time()) * 1000)
        scope = scope_of(audience, endpoint.gateway.hosts)
        endpoint.access.grant(scope, grant.rights, endpoint.now_ms + lasts_ms, token, audience)
        endpoint.token_shown()


def _reply(request: Request, status: int, description: str) -> None:
    application: dict[str, object] = {"status-code": Int(status), "status-description": description}
    request.reply(application, None)
