"""For tests that look into a partition: its host in this process, and the broker that nothing above it sees."""

from __future__ import annotations

from polybus.hosting.local_partition import LocalPartition
from polybus.hosting.partition_client import PartitionClient
from polybus.partition.broker import Broker


def host_of(partition: PartitionClient) -> LocalPartition:
    assert isinstance(partition, LocalPartition), "the partition is in this process"
    return partition


def broker_of(partition: PartitionClient) -> Broker:
    return host_of(partition).require()
