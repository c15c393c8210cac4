"""The counters of a partition and of its logs, by name, as their records hold them."""

from __future__ import annotations

from polybus.partition import records


class LogCounters:
    """What the record says in which a log's counters are."""

    def __init__(self, numbers: list[int] | None) -> None:
        self.missing = numbers is None
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
        ) = [0] * 10 if numbers is None else numbers


class PartitionCounters:
    """What a partition's own record says of it, and of its main log."""

    def __init__(self, value: bytes | None) -> None:
        self.missing = value is None
        own, main = ([0] * 9, None) if value is None else records.broker_numbers(value)
        self.main = LogCounters(main)
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
        ) = own
