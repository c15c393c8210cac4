"""What the database of a cluster holds, as plain data: members, what they own, and what all share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from polybus.errors import ConfigError

Agreed = dict[str, Any]
"""What all nodes must be given alike, by name."""


@dataclass(frozen=True)
class Owned:
    """A store that a member says it owns."""

    store: str
    epoch: int
    lease_left_ms: int
    serving: bool = True


@dataclass(frozen=True)
class MemberRow:
    """A node, as its row says."""

    name: str
    process: str
    address: str
    version: str
    protocol: int
    draining: bool
    alive: bool
    """Its lease has not run out, by the server's clock."""
    silent_s: float
    """Since its last heartbeat."""
    owned: tuple[Owned, ...] = ()
    clients: tuple[str, ...] = ()
    """Where clients reach it."""


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one moment."""

    members: tuple[MemberRow, ...]
    moving: str | None = None
    moving_to: str | None = None

    @property
    def living(self) -> list[MemberRow]:
        return [member for member in self.members if member.alive]

    def named(self, name: str) -> MemberRow | None:
        return next((member for member in self.members if member.name == name), None)


@dataclass(frozen=True)
class Shared:
    """What the first node made and all have."""

    secret: bytes
    authority: bytes
    authority_key: bytes


@dataclass
class Joining:
    """A node that wants to become a member."""

    name: str
    process: str
    address: str
    version: str
    protocol: int
    fresh: Callable[[], Shared]
    """Makes what all share; called by the first node only."""
    agreed: Callable[[bytes], Agreed] = field(default=lambda _: {})
    """What this node was given, with secrets only as the shared secret shows them."""


def check_agreed(agreed: Agreed, wanted: Agreed) -> None:
    """ConfigError where a node was given other things than the cluster's living ones."""
    for what in wanted:
        if agreed.get(what) == wanted[what]:
            continue
        theirs, ours = agreed.get(what), wanted[what]
        shown = ""
        if isinstance(theirs, dict) and isinstance(ours, dict):
            names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
            shown = f" ({', '.join(names)})"
        elif what == "stores" and isinstance(theirs, list):
            shown = f": it has {', '.join(map(str, theirs))}"
        raise ConfigError(f"the {what} of this node differ from the cluster's{shown}: give all nodes the same")
