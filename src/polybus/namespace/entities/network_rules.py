"""From which addresses clients may reach a namespace, as the cloud has it (docs/reference/arm.md#network-rules).

Where no address is named everybody may, whatever the default says: only a rule makes the default count.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polybus.errors import ArgumentError
from polybus.limits import NETWORK_RULES

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_within(host: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks; an IPv4 address in IPv6's clothes is what it is."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)


@dataclass(frozen=True)
class NetworkRules:
    masks: tuple[str, ...] = ()
    """Addresses and networks that are allowed, as they were written."""
    denies_others: bool = False
    public: bool = True
    """Whether the namespace can be reached over the network at all."""
    trusts_services: bool = False
    """Kept for clients that ask; there are no services here to be trusted."""

    def __post_init__(self) -> None:
        if len(self.masks) > NETWORK_RULES:
            raise ArgumentError(f"A namespace may have {NETWORK_RULES} IP rules.")
        self.networks()

    def networks(self) -> tuple[Network, ...]:
        try:
            return tuple(ipaddress.ip_network(mask.strip()) for mask in self.masks)
        except ValueError as error:
            raise ArgumentError(f"An IP rule is an address or a network: {error}") from None

    def allow(self, host: str | None) -> bool:
        """Whether a client at this address may come in. One whose address nobody knows is not at an allowed one."""
        if not self.public:
            return False
        if not self.denies_others or not self.masks:
            return True
        return host is not None and is_within(host, self.networks())


def network_rules_to_dict(rules: NetworkRules) -> dict[str, Any]:
    return {
        "masks": list(rules.masks),
        "denies_others": rules.denies_others,
        "public": rules.public,
        "trusts_services": rules.trusts_services,
    }


def network_rules_from_dict(record: dict[str, Any]) -> NetworkRules:
    return NetworkRules(
        tuple(record["masks"]), record["denies_others"], record["public"], record.get("trusts_services", False)
    )
