"""What a node of a cluster is told, and what is refused before anything is touched."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from polybus.cluster.certificates import check_node_name
from polybus.errors import ConfigError
from polybus.store.cluster_rows import Agreed
from polybus.store.postgres_url import SCHEMES, parse_postgres_url

_UNREACHABLE = "no address that other nodes can reach: give --advertise HOST:PORT"


@dataclass(frozen=True)
class ClusterOptions:
    url: str
    """The cluster's database, with its catalogue, members and leases."""
    node: str
    advertise: str | None = None
    """HOST:PORT at which other nodes reach this one; by default where it listens for them."""

    def bind_port(self) -> int:
        """The port at which this node takes links: the advertised one, for there is no other option to name it."""
        return 0 if self.advertise is None else int(self.advertise.rpartition(":")[2])

    def address(self, host: str, port: int) -> str:
        """Where the others find the socket that is bound here."""
        if self.advertise is not None:
            advertised, _, _ = self.advertise.rpartition(":")
            return f"{advertised}:{port}"
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cluster_options(
    cluster: str | None,
    node: str | None,
    advertise: str | None,
    *,
    stores: Sequence[str],
    catalogue: str | None,
    host: str,
    workers: bool = False,
) -> ClusterOptions | None:
    """The options of a node; None where there is no cluster. ConfigError in one line where they cannot be."""
    if cluster is None:
        if node is not None or advertise is not None:
            raise ConfigError(f"{'--node' if node is not None else '--advertise'} needs --cluster URL")
        return None
    if node is None:
        raise ConfigError("--cluster needs --node NAME: by it the others know this node")
    check_node_name(node)
    if workers:
        raise ConfigError("--workers and --cluster do not go together: start a node for each core instead")
    if catalogue is not None:
        raise ConfigError("--catalogue and --cluster do not go together: the cluster's database holds the catalogue")
    _check_stores(cluster, stores)
    if advertise is not None:
        _check_address(advertise)
    elif _is_any(host):
        raise ConfigError(f"--host {host} is {_UNREACHABLE}")
    return ClusterOptions(cluster, node, advertise)


def _check_stores(cluster: str, stores: Sequence[str]) -> None:
    if not _is_postgres(cluster):
        raise ConfigError("--cluster is postgresql://HOST/DATABASE?schema=NAME")
    if not stores:
        raise ConfigError("--cluster needs --store postgresql://HOST/DATABASE?schema=NAME, the same on all nodes")
    for store in stores:
        if not _is_postgres(store):
            kind = store.partition(":")[0]
            raise ConfigError(f"--cluster takes no {kind}: store: all nodes must reach it, so give postgresql://…")
    schemas = [parse_postgres_url(store).shown for store in stores]
    if len(set(schemas)) < len(schemas):
        raise ConfigError("--store names the same messaging store twice")
    if parse_postgres_url(cluster).shown in schemas:
        raise ConfigError("--cluster and --store need schemas of their own: add schema=NAME to one of them")


def _is_postgres(url: str) -> bool:
    return url.partition(":")[0] in SCHEMES


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_address(advertise: str) -> None:
    host, colon, port = advertise.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--advertise {advertise!r} is not HOST:PORT")
    if _is_any(host.strip("[]")):
        raise ConfigError(f"--advertise {advertise} is {_UNREACHABLE}")


def agreed(secret: bytes, stores: Sequence[str], keys: dict[str, Any], settings: dict[str, Any]) -> Agreed:
    """What all nodes must be given alike. Keys are shown as the cluster's secret shows them: nobody learns one here."""

    def fingerprint(value: Any) -> str:
        return hmac.new(secret, json.dumps(value, sort_keys=True).encode(), sha256).hexdigest()

    return {
        "stores": sorted(parse_postgres_url(store).shown for store in stores),
        "keys": {name: fingerprint(value) for name, value in keys.items()},
        "settings": settings,
    }
