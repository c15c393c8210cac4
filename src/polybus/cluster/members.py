"""The other members as a namespace and a gateway know them: who leads, what is asked of them, partitions of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybus.cluster.peers import Caller, Peers
from polybus.cluster.remote_store import RemoteStore
from polybus.hosting.local_partition import LocalPartition
from polybus.hosting.partition_client import PartitionClient
from polybus.hosting.store_host import StoreHost
from polybus.partition.settings import EntitySettings
from polybus.promise import Promise


class OtherMembers:
    def __init__(self, peers: Peers) -> None:
        self.peers = peers

    @property
    def leads(self) -> bool:
        return self.peers.leads

    def serve(self, name: str, answers: Callable[[Any], Promise[Any]]) -> None:
        def handler(caller: Caller, value: Any) -> Promise[Any]:
            del caller
            return answers(value)

        self.peers.serve(name, handler)

    def ask_leader(self, name: str, value: object) -> Promise[Any]:
        return self.peers.call_leader(name, value)

    def ask_others(self, name: str, value: object) -> Promise[dict[str, Any]]:
        return self.peers.call_others(name, value)

    def partition(
        self,
        entity_id: int,
        index: int,
        settings: EntitySettings,
        store: StoreHost,
        changed: Callable[[PartitionClient], None],
    ) -> PartitionClient:
        assert isinstance(store, RemoteStore), "a store elsewhere is a remote one"
        partition = self.peers.remote_partition(entity_id, index, settings, store)
        partition.on_change = changed
        return partition

    def appeared(self, partition: PartitionClient) -> None:
        assert isinstance(partition, LocalPartition), "a partition of this process is a local one"
        self.peers.appeared(partition)
