"""A small, honest model of partitioned queues: what a correct bus does, without any of its speed.

The verifier is tested on it, whole and with planted bugs, and a real partition can be compared with it. It
knows queues with sessions, duplicate detection, schedules, deferral, dead-lettering, time-to-live, locks,
transactions, outages and rerouting; topics, rules and forwarding do not live here.
"""

from __future__ import annotations

from tests.support.reference.bus import ReferenceBus
from tests.support.reference.partition import ReferencePartition
from tests.support.reference.parts import Delivery, Message, SessionLock, Ticket

__all__ = ["Delivery", "Message", "ReferenceBus", "ReferencePartition", "SessionLock", "Ticket"]
