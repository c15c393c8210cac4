"""The counters of a partition and of its logs, by name, as their records hold them."""

from __future__ import annotations

from polybus.partition import records


class PartitionCounters:
    """What a partition's own record says."""

    def __init__(self, value: bytes | None) -> None:
        self.missing = value is None
        (
            self.bodies,
            self.due_low,
            self.expiry_low,
            self.scheduled,
            self.scheduled_bytes,
            self.size,
            self.wall_ms,
            self.transfers,
            self.transfer_counter,
        ) = [0] * 9 if value is None else records.broker_numbers(value)


class LogCounters:
    """What a log's record says."""

    def __init__(self, value: bytes | None) -> None:
        self.missing = value is None
        (
            self.counter,
            self.positions,
            self.active,
            self.active_bytes,
            self.deferred,
            self.deferred_bytes,
            self.retained,
            self.retained_bytes,
            self.events,
            self.low,
        ) = [0] * 10 if value is None else records.log_numbers(value)
