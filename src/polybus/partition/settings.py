"""What a broker must know of its entity: the parts of the descriptions that decide about messages.

One object is shared by all partitions of an entity; management replaces its fields in place, so a change of a
lock duration reaches every broker at once.
"""

from __future__ import annotations

from polybus import limits
from polybus.partition.totals import Totals
from polybus.rules.ruleset import TopicRules


class Bounds:
    """How much of a partition is in memory at once. Simulations and tests make the numbers small."""

    def __init__(self) -> None:
        self.window_entries = limits.WINDOW_ENTRIES
        self.window_bytes = limits.WINDOW_BYTES
        self.page_entries = limits.PAGE_ENTRIES
        self.session_entries = limits.SESSION_WINDOW_ENTRIES
        self.session_bytes = limits.SESSION_WINDOW_BYTES
        self.sessions = limits.SESSIONS_IN_MEMORY
        self.recent_ids = limits.RECENT_IDS
        self.sweep_rows = limits.SWEEP_ROWS
        self.stage_rows = limits.STAGE_ROWS
        self.shared_body_bytes = limits.SHARED_BODY_BYTES
        self.separate_body_bytes = limits.SEPARATE_BODY_BYTES


class LogSettings:
    """Settings of a queue, or of one subscription."""

    def __init__(self, number: int, source: str) -> None:
        self.number = number
        """0 for a queue and for a topic itself, else the subscription's number."""
        self.source = source
        """The name that dead letters carry: `queue`, or `topic/Subscriptions/name`."""
        self.lock_ms = 60_000
        self.max_delivery_count = 10
        self.ttl_ms = limits.INFINITE_MS
        self.dead_letter_expired = False
        self.dead_letter_filter_errors = True
        self.requires_session = False
        self.forward_to: str | None = None
        self.forward_dead_letters_to: str | None = None
        self.dead_letter_ttl_ms = limits.INFINITE_MS
        """How long dead letters live, from when they died."""
        self.retry_ms = 0
        """How long an abandoned message rests before it comes again, where its receiver does not say."""
        self.retry_grows = False
        """Whether that doubles with each delivery, up to `retry_max_ms`."""
        self.retry_max_ms = limits.INFINITE_MS
        self.totals = Totals()
        self.accessed_ms = 0
        """When somebody last sent here, received, or looked at messages."""


class EntitySettings:
    """Settings of a queue or topic as a whole."""

    def __init__(self, name: str, partitions: int, topic: bool) -> None:
        self.name = name
        self.partitions = partitions
        self.topic = topic
        self.own = LogSettings(0, name)
        self.subscriptions: dict[int, LogSettings] = {}
        self.rules = TopicRules()
        self.duplicate_window_ms = 0
        """0 where duplicates are not detected."""
        self.max_bytes = 1 << 30
        """For each partition."""
        self.keep_topic_log = False
        """True while a cursor reads the topic itself."""
        self.events = False
        self.bounds = Bounds()
