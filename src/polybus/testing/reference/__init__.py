"""A small, honest model of partitioned queues: what a correct bus does, without any of its speed.

The verifier is tested on it, whole and with planted bugs, and a real partition can be compared with it. It
knows queues with sessions, duplicate detection, schedules, deferral, dead-lettering, time-to-live, locks,
transactions, outages and rerouting; topics, rules and forwarding do not live here.
"""

from __future__ import annotations

from polybus.testing.reference.bus import ReferenceBus
from polybus.testing.reference.partition import ReferencePartition
from polybus.testing.reference.parts import Delivery, Message, SessionLock, Ticket

__all__ = ["Delivery", "Message", "ReferenceBus", "ReferencePartition", "SessionLock", "Ticket"]
