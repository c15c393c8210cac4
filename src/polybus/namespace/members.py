"""The other processes of the same bus, as far as a namespace needs them: who leads, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from polybus.hosting.partition_client import PartitionClient
from polybus.hosting.recovery import Recovery
from polybus.hosting.store_host import StoreHost
from polybus.partition.settings import EntitySettings
from polybus.promise import Promise, resolved, spawn

MARKS = "doubt.marks"


class Members(Protocol):
    """There where a bus has several processes; a bus alone has none."""

    @property
    def leads(self) -> bool:
        """Whether this process writes the catalogue."""

    def serve(self, name: str, answers: Callable[[Any], Promise[Any]]) -> None:
        """Says who answers a question here: plain values in, plain values out."""

    def ask_leader(self, name: str, value: object) -> Promise[Any]:
        """PartitionUnavailable, which is retryable, where the leader cannot be reached."""

    def ask_others(self, name: str, value: object) -> Promise[dict[str, Any]]:
        """The answers of all other members that can be reached, by their names."""

    def partition(
        self, entity_id: int, index: int, settings: EntitySettings, store: StoreHost, changed: PartitionChanged
    ) -> PartitionClient:
        """The client of a partition on a store of another member."""

    def appeared(self, partition: PartitionClient) -> None:
        """A partition of this process is there: others may ask for it."""


class OtherDoubts:
    """What recovery asks other members: see `hosting.recovery.OtherMembers`."""

    def __init__(self, members: Members, recovery: Recovery) -> None:
        self._members = members
        members.serve(MARKS, lambda store_id: resolved(recovery.marks_here(store_id)))

    def marks_elsewhere(self, store_id: bytes) -> Promise[list[bytes] | None]:
        return spawn(self._marks_elsewhere(store_id))

    async def _marks_elsewhere(self, store_id: bytes) -> list[bytes] | None:
        found: list[bytes] = []
        for answer in (await self._members.ask_others(MARKS, store_id)).values():
            if answer is None:
                return None
            found += answer
        return found


PartitionChanged = Callable[[PartitionClient], None]
