"""The names by which the bus is known, against pages that reach it by a name of their own (DNS rebinding).

A browser says in `Origin` whose page makes a request. Where both that and `Host` are names that the bus does not have,
the page's owner has made its own name lead here: it is refused before anything is looked at. Clients that are no
browsers send no Origin, and are never judged.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit


def host_in(origin: str) -> str:
    """Name and port of an origin; empty where it is none (`null`)."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


class OwnNames:
    """Host names of the bus; every address of loopback is its own, and so is everything under `localhost`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in names}

    def add(self, names: Iterable[str]) -> None:
        self._names.update(name.lower().rstrip(".") for name in names)

    def has(self, host: str) -> bool:
        """Whether a Host, with or without a port, is the bus; a namespace's name may have a domain behind it."""
        name = _without_port(host).lower().rstrip(".")
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return any(known.startswith("*.") and name.partition(".")[2] == known[2:] for known in self._names)

    def refuses(self, origin: str | None, host: str) -> bool:
        """Whether a request comes from a page that reaches the bus by a name of its own."""
        return origin is not None and not self.has(host_in(origin)) and not self.has(host)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]
