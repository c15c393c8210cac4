"""Management links that a client opens before it shows the token for them: answered when it has, or refused in time.

Releases of the Java SDK up to 7.15 open both links of a request and only then show their token, a few milliseconds
later. The cloud service does not mind. Nothing is opened here without the right: the answer alone waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polybus.amqp.link import Link
from polybus.limits import AMQP_EARLY_LINK_MS, AMQP_EARLY_LINKS

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint


class EarlyLinks:
    """The links of one connection that wait for a token."""

    __slots__ = ("_endpoint", "_waiting")

    def __init__(self, endpoint: AmqpEndpoint) -> None:
        self._endpoint = endpoint
        self._waiting: dict[Link, Callable[[Link], None]] = {}

    def wait(self, link: Link, attach: Callable[[Link], None], refuse: Callable[[Link], None]) -> bool:
        """Keeps the link until `token_shown`, or until its time is up; False where too many wait already."""
        if len(self._waiting) >= AMQP_EARLY_LINKS:
            return False
        self._waiting[link] = attach
        self._endpoint.gateway.bus.loop.call_later(AMQP_EARLY_LINK_MS / 1000, self._give_up, link, refuse)
        return True

    def token_shown(self) -> None:
        """Asks for every link again; those that the token is not for wait on."""
        for link, attach in list(self._waiting.items()):
            if link.pending:
                attach(link)
            if not link.pending:
                self._waiting.pop(link, None)

    def _give_up(self, link: Link, refuse: Callable[[Link], None]) -> None:
        if self._waiting.pop(link, None) is not None and link.pending:
            refuse(link)
