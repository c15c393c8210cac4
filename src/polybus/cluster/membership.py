"""Who is in the bus, who owns which messaging store, and who leads: told, not found out.

A member is a process that is a gateway and the owner of some stores. What says so differs (a supervisor's word for
workers, leases in a database for nodes); whoever keeps links and places partitions only knows this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from polybus.cluster.link import Link


@dataclass(frozen=True)
class Member:
    """A process of the bus."""

    name: str
    address: str
    """Where it takes links: the path of a Unix socket, or HOST:PORT."""


@dataclass(frozen=True)
class Ownership:
    """Whose a messaging store is."""

    url: str
    """The store as the bus shows it, by which all members know it."""
    owner: str | None
    """The member's name; None while nobody owns it."""
    epoch: int = 0
    """Rises with each owner: what an earlier one says is old."""


class MembershipListener(Protocol):
    """Whoever keeps links and places stores."""

    def members_changed(self) -> None:
        """Somebody came, went, or has another address."""

    def owner_changed(self, ownership: Ownership) -> None:
        """A store has another owner: this member, another one, or nobody."""

    def leader_changed(self) -> None:
        """Another member writes the catalogue."""


class Membership(Protocol):
    """What a member knows of the others. It tells its listener of changes on the bus's own loop."""

    @property
    def me(self) -> str:
        """This member's name."""

    @property
    def listener(self) -> MembershipListener | None: ...

    @listener.setter
    def listener(self, listener: MembershipListener | None) -> None: ...

    def members(self) -> list[Member]:
        """All that are known, this one included."""

    def owner_of(self, url: str) -> Ownership: ...

    def leader(self) -> str | None:
        """The member that writes the catalogue; None while there is none."""

    async def connect(self, member: Member) -> Link:
        """A new link to a member; OSError where it cannot be reached."""


class FixedMembership:
    """Members and owners that stay as they are as long as the process lives."""

    def __init__(self, me: str, members: list[Member], owners: dict[str, str], leader: str, dial: Dial) -> None:
        """`owners` are names of members by the stores' addresses."""
        self.me = me
        self.listener: MembershipListener | None = None
        self._members = members
        self._owners = owners
        self._leader = leader
        self._dial = dial

    def members(self) -> list[Member]:
        return self._members

    def owner_of(self, url: str) -> Ownership:
        return Ownership(url, self._owners.get(url))

    def leader(self) -> str | None:
        return self._leader

    async def connect(self, member: Member) -> Link:
        return await self._dial(member)


class Dial(Protocol):
    async def __call__(self, member: Member) -> Link: ...
