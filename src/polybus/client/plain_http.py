"""The administration client always speaks https; a bus for development may be spoken to in clear text."""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import RequestsTransport


class PlainHttp(RequestsTransport):  # type: ignore[misc]
    """A transport that asks over http for what it is told to ask over https."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)
