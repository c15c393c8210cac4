"""The web console's side of the bus: its files, who is logged in, and the stream of live figures.

The page is a client: for everything that changes something it calls the management, message and bulk APIs with its
user's own token. There is no session and no cookie here, so no other web page can act in its name.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from starlette.responses import Response

import polybus
from polybus.console import assets
from polybus.errors import ConfigError, EntityNotFound
from polybus.gateway.arm.template import template_text
from polybus.gateway.bulk.call import answer
from polybus.gateway.config.dump import declared_subscription, dump
from polybus.gateway.config.model import ConfigFile, NamespaceConfig, TopicConfig
from polybus.gateway.gateway import Grant
from polybus.gateway.http.auth import authorize, authorize_any
from polybus.gateway.http.errors import JSON_TYPE, not_allowed
from polybus.gateway.http.faults import FaultPanel
from polybus.gateway.http.live import Live
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.entities.description import QueueDescription, TopicDescription
from polybus.namespace.entities.tiers import Tier
from polybus.namespace.namespace import Namespace

_PATH = "/$polybus/console"


def is_console(call: HttpCall) -> bool:
    """Whether a request is the console's: something below its own path, or a browser that opens the bus."""
    path = call.path.lower()
    if path == "/":
        return (
            call.method in ("GET", "HEAD")
            and "text/html" in call.headers.get("accept", "")
            and "authorization" not in call.headers
            and "api-version" not in call.query
        )
    return path == _PATH or path.startswith(_PATH + "/")


class Console:
    def __init__(self, live: Live, panel: FaultPanel | None) -> None:
        self._live = live
        self._panel = panel

    async def handle(self, call: HttpCall) -> Response:
        """Answers a request to the console."""
        if call.method not in ("GET", "HEAD"):
            raise not_allowed(call.method)
        words = [unquote(word) for word in call.raw_path.strip("/").split("/")][2:]
        if not words:
            return _served(assets.page())
        if words[0] == "assets" and len(words) > 2:
            found = assets.asset(words[1], "/".join(words[2:]))
            if found is not None:
                return _served(found)
        elif words == ["session"]:
            return self._session(call)
        elif words == ["live"]:
            return self._live.stream(call, _scope(call))
        elif len(words) == 1 and words[0] in _EXPORTS:
            return _export(call, words[0])
        raise EntityNotFound(f"There is nothing at '{call.path[:200]}'.")

    def _session(self, call: HttpCall) -> Response:
        """What the page must know of the bus and of its user to show what is possible."""
        scope = _scope(call)
        grant = authorize_any(call, scope)
        tier = call.gateway.bus.tier
        return answer(
            {
                "namespace": call.namespace.name,
                "entity": scope,
                "rights": _rights(grant),
                "expires_s": grant.expires_s,
                "version": polybus.__version__,
                "build": polybus.BUILD,
                "tier": {
                    "name": tier.name.value,
                    "partitions": tier.premium_partitions if tier.always_partitioned else tier.partitions,
                    "may_partition": tier.may_ask_for_partitioning,
                    "always_partitioned": tier.always_partitioned,
                    "sizes_mb": tier.sizes_mb,
                    "has_topics": tier.has_topics,
                    "message_kilobytes": tier.message_kilobytes,
                },
                "faults": self._panel is not None,
                "movable_clock": _is_movable(self._panel),
            }
        )


def _served(file: assets.Served) -> Response:
    return Response(file.content, 200, file.headers)


def _scope(call: HttpCall) -> str:
    """The entity whose own key the user has; empty where it is a key of the namespace."""
    return call.query.get("entity", "").strip("/")


def _rights(grant: Grant) -> list[str]:
    return [
        name
        for name, right in (("Manage", Rights.MANAGE), ("Send", Rights.SEND), ("Listen", Rights.LISTEN))
        if grant.rights & right == right
    ]


def _is_movable(panel: FaultPanel | None) -> bool:
    if panel is None:
        return False
    try:
        panel.advance_clock(0)
    except ConfigError:
        return False
    return True


_EXPORTS: dict[str, Callable[[NamespaceConfig, Tier], str]] = {
    "config.json": lambda declared, _: dump(ConfigFile((declared,)), with_keys=False),
    "template.json": lambda declared, tier: template_text(declared, tier.name.value),
}
"""The namespace as files that make it again: of the emulator's form, and for the Resource Manager. No key is in them."""


def _export(call: HttpCall, name: str) -> Response:
    authorize(call, "", Rights.MANAGE)
    text = _EXPORTS[name](_declared(call.namespace), call.gateway.bus.tier)
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, 200, headers, JSON_TYPE)


def _declared(namespace: Namespace) -> NamespaceConfig:
    queues, topics = [], []
    for _, entity in sorted(namespace.entities.items()):
        described = entity.description
        if isinstance(described, QueueDescription):
            queues.append(described)
        elif isinstance(described, TopicDescription):
            subscriptions = tuple(
                declared_subscription(each.description, [rule for _, rule in each.rules.values()])
                for _, each in sorted(entity.subscriptions.items())
            )
            topics.append(TopicConfig(described, subscriptions))
    return NamespaceConfig(namespace.name, tuple(queues), tuple(topics))
