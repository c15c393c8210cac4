"""Sessions over all partitions, with their counts and holders."""

from __future__ import annotations

from polybus.errors import PartitionUnavailable
from polybus.namespace.entities.entity import Entity
from polybus.partition.data import ListedSession

__all__ = ["ListedSession", "SessionPage", "sessions_of"]


class SessionPage:
    def __init__(self) -> None:
        self.sessions: list[tuple[int, ListedSession]] = []
        """With the partition that each lies in."""
        self.unreachable: list[int] = []
        self.next: str | None = None
        """Where to go on: a partition and the last session of it; None at the end."""


async def sessions_of(entity: Entity, log_id: int, place: tuple[int, str | None], limit: int) -> SessionPage:
    """Up to `limit` sessions behind a place, partition by partition."""
    page = SessionPage()
    index, after = place
    while index < len(entity.partitions):
        left = limit - len(page.sessions)
        if not left:
            page.next = f"{index}:{'' if after is None else after}"
            return page
        try:
            found = await entity.partitions[index].describe_sessions(log_id, after, left)
        except PartitionUnavailable:
            page.unreachable.append(index)
            found = []
        page.sessions += [(index, listed) for listed in found]
        if len(found) < left:
            index, after = index + 1, None
        else:
            after = found[-1].id
    return page
