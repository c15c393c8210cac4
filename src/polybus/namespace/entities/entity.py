"""Queues, topics and subscriptions as they run: descriptions, partitions, and what clients receive from."""

from __future__ import annotations

from collections.abc import Callable

from polybus.clock import Clock
from polybus.errors import ArgumentError, EntityDisabled, EntityNotFound, InvalidOperation, PartitionUnavailable
from polybus.hosting.partition_client import LogListener, PartitionClient
from polybus.namespace.delivery.session_source import SessionSource
from polybus.namespace.delivery.source import MessageSource
from polybus.namespace.entities.description import (
    EntityAvailability,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import Address, SubQueue, fold, parse_forward_target
from polybus.namespace.entities.options import NO_OPTIONS, options_of
from polybus.namespace.entities.rule import RuleDescription
from polybus.namespace.entities.rule_compiler import compile_rule
from polybus.partition.data import LogStatistics, Statistics
from polybus.partition.kinds import DEAD_LETTER, KINDS, MAIN, TRANSFER_DEAD_LETTER
from polybus.partition.settings import EntitySettings, LogSettings
from polybus.promise import Loop, Promise, spawn

_KINDS: dict[SubQueue | None, int] = {
    None: MAIN,
    "dead-letter": DEAD_LETTER,
    "transfer-dead-letter": TRANSFER_DEAD_LETTER,
}


class Counts:
    """Messages by state, over the partitions that can be reached."""

    def __init__(self) -> None:
        self.active = 0
        self.deferred = 0
        self.locked = 0
        self.scheduled = 0
        self.dead_letter = 0
        self.transfer = 0
        self.transfer_dead_letter = 0
        self.size_bytes = 0

    def add(self, log: LogStatistics) -> None:
        kind = log.id % KINDS
        if kind == MAIN:
            self.active += log.active
            self.deferred += log.deferred
            self.locked += log.locked
        elif kind == DEAD_LETTER:
            self.dead_letter += log.active + log.deferred
        elif kind == TRANSFER_DEAD_LETTER:
            self.transfer_dead_letter += log.active + log.deferred

    def add_whole(self, found: Statistics) -> None:
        """What a partition holds for its queue or topic beside the logs."""
        self.scheduled += found.scheduled
        self.transfer += found.transfers
        self.size_bytes += found.size

    def by_name(self) -> dict[str, int]:
        return {
            "active": self.active,
            "deferred": self.deferred,
            "locked": self.locked,
            "scheduled": self.scheduled,
            "dead_letter": self.dead_letter,
            "transfer": self.transfer,
            "transfer_dead_letter": self.transfer_dead_letter,
            "size_bytes": self.size_bytes,
            "total": self.total,
        }

    @property
    def total(self) -> int:
        return (
            self.active
            + self.deferred
            + self.scheduled
            + self.dead_letter
            + self.transfer
            + self.transfer_dead_letter
        )


class Subscription:
    """One subscription of a topic; its messages lie in the topic's partitions."""

    def __init__(self, number: int, description: SubscriptionDescription, settings: LogSettings) -> None:
        self.number = number
        self.description = description
        self.settings = settings
        self.rules: dict[str, tuple[int, RuleDescription]] = {}
        """By folded name: the place in the catalogue, and the rule."""
        self.next_rule = 1
        self.accessed_ms = 0
        self.receivers = 0
        self.receivers_elsewhere = 0
        self.deleted = False

    def in_use(self) -> bool:
        return self.receivers + self.receivers_elsewhere > 0

    def last_accessed_ms(self) -> int:
        return max(self.accessed_ms, self.settings.accessed_ms)


class Entity:
    """A queue or a topic."""

    def __init__(
        self,
        entity_id: int,
        description: EntityDescription,
        settings: EntitySettings,
        partitions: list[PartitionClient],
        clock: Clock,
        loop: Loop,
    ) -> None:
        self.id = entity_id
        self.describe(description)
        self.settings = settings
        self.partitions = partitions
        self.subscriptions: dict[str, Subscription] = {}
        self.next_subscription = 1
        self.max_message_bytes = 0
        """The largest message or batch that it takes; the tier decides with the description."""
        self.turn = 0
        """Where the next message without a key goes."""
        self.deleted = False
        self.receivers = 0
        """Receiving links that are open: an entity with one is not idle."""
        self.receivers_elsewhere = 0
        """Those of other processes, as they last told."""
        self.accessed_ms = 0
        self._opened_ms = clock.now().wall_ms
        """When this process came to know the entity: when it was last used before is not written down."""
        self.throttled = False
        """Sends are refused as busy: a fault that users can switch on."""
        self._clock = clock
        self._loop = loop
        self.watchers: dict[object, Callable[[], None]] = {}
        """Called when the entity is changed or deleted: links look whether they may go on."""
        self._sources: dict[int, MessageSource] = {}
        self._session_sources: dict[int, SessionSource] = {}

    def describe(self, description: EntityDescription) -> None:
        self.description = description
        self._allows_send = description.status.allows_send  # read for every message

    @property
    def name(self) -> str:
        return self.description.path

    @property
    def is_topic(self) -> bool:
        return isinstance(self.description, TopicDescription)

    @property
    def partitioned(self) -> bool:
        return len(self.partitions) > 1

    @property
    def detects_duplicates(self) -> bool:
        return self.settings.duplicate_window_ms > 0

    @property
    def availability(self) -> EntityAvailability:
        """Limited while a partition cannot be reached (F3)."""
        if all(partition.available for partition in self.partitions):
            return EntityAvailability.AVAILABLE
        return EntityAvailability.LIMITED

    def in_use(self) -> bool:
        return self.receivers + self.receivers_elsewhere > 0

    def changed(self) -> None:
        for watcher in list(self.watchers.values()):
            watcher()

    def forget_sources(self, number: int) -> None:
        """A subscription is gone, and with it what could be received from it."""
        for log_id in range(number * KINDS, number * KINDS + KINDS):
            listeners = (self._sources.pop(log_id, None), self._session_sources.pop(log_id, None))
            for partition in self.partitions:
                for listener in listeners:
                    if listener is not None:
                        partition.unwatch(log_id, listener)

    def replace_partition(self, index: int, partition: PartitionClient) -> None:
        """Another client takes the place of a partition's: its broker is in another process now, or in this one."""
        old = self.partitions[index]
        self.partitions[index] = partition
        listeners: list[tuple[int, LogListener]] = [*self._sources.items(), *self._session_sources.items()]
        for log_id, listener in listeners:
            old.unwatch(log_id, listener)
            listener.unavailable(old)
            partition.watch(log_id, listener)

    def missing_partitions(self) -> list[int]:
        return [partition.index for partition in self.partitions if not partition.available]

    # What clients address

    def add_rule(self, subscription: Subscription, order: int, rule: RuleDescription) -> None:
        """The rule decides from now on; `order` is its place in the catalogue."""
        self.settings.rules.add(subscription.number, compile_rule(rule))
        subscription.rules[fold(rule.name)] = (order, rule)
        subscription.next_rule = max(subscription.next_rule, order + 1)

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        _, rule = subscription.rules.pop(fold(name))
        self.settings.rules.remove(subscription.number, rule.name)

    def subscription(self, name: str) -> Subscription:
        found = self.subscriptions.get(fold(name))
        if found is None:
            raise EntityNotFound(f"The messaging entity '{self.name}/Subscriptions/{name}' could not be found.")
        return found

    def log_id(self, address: Address) -> int:
        """The log that an address of this entity names."""
        number = 0
        if address.subscription is not None:
            number = self.subscription(address.subscription).number
        elif self.is_topic and address.sub_queue == "dead-letter":
            raise InvalidOperation(f"The topic '{self.name}' has no dead-letter queue of its own.")
        return number * KINDS + _KINDS[address.sub_queue]

    def requires_session(self, address: Address) -> bool:
        if address.sub_queue is not None:
            return False
        if address.subscription is not None:
            return self.subscription(address.subscription).description.requires_session
        return isinstance(self.description, QueueDescription) and self.description.requires_session

    def check_receivable(self, address: Address) -> None:
        """Refuses a receiver where there is nothing to receive or receiving is disabled."""
        status = self.description.status
        forward_to = None
        if address.subscription is not None:
            described = self.subscription(address.subscription).description
            forward_to = described.forward_to
            if not described.status.allows_receive:
                status = described.status
        elif isinstance(self.description, QueueDescription):
            forward_to = self.description.forward_to
        elif address.sub_queue is None:
            raise InvalidOperation(f"Messages cannot be received from the topic '{self.name}' itself.")
        if not status.allows_receive:
            raise EntityDisabled(f"The messaging entity '{address.path}' is disabled for receiving.")
        if forward_to is not None and address.sub_queue is None:
            raise InvalidOperation(
                f"Cannot create a message receiver on an entity with auto-forwarding enabled: '{address.path}'."
            )

    def check_sendable(self) -> None:
        if self.deleted:
            raise EntityNotFound(f"The messaging entity '{self.name}' could not be found.")
        if not self._allows_send:
            raise EntityDisabled(f"The messaging entity '{self.name}' is disabled for sending.")
        if self.throttled:
            # As if its partitions were away: whoever forwards to it waits instead of giving up.
            raise PartitionUnavailable(f"The request was terminated because '{self.name}' is being throttled.")

    def source(self, address: Address) -> MessageSource:
        log_id = self.log_id(address)
        source = self._sources.get(log_id)
        if source is None:
            source = MessageSource(address.path, log_id, self.partitions)
            self._sources[log_id] = source
        return source

    def session_source(self, address: Address) -> SessionSource:
        log_id = self.log_id(address)
        source = self._session_sources.get(log_id)
        if source is None:
            source = SessionSource(address.path, log_id, self.partitions, self._loop)
            self._session_sources[log_id] = source
        return source

    # Counting, at the same cost for one message and a million

    def counts(self, number: int = 0) -> Promise[Counts]:
        """Counts of a queue, a topic (0) or a subscription, over all reachable partitions (F3)."""
        return spawn(self._counts(number))

    async def _counts(self, number: int) -> Counts:
        counts = Counts()
        for partition in self.partitions:
            found = await reached(partition.statistics([number]))
            if found is None:
                continue
            for log in found.logs:
                counts.add(log)
            if number == 0:
                counts.add_whole(found)
        return counts

    def idle_since_ms(self, subscription: Subscription | None = None) -> int:
        """Since when nobody has used the entity, or one of its subscriptions."""
        used = self if subscription is None else subscription
        return max(used.last_accessed_ms(), used.description.updated_at_ms, self._opened_ms)

    def last_accessed_ms(self) -> int:
        subscriptions = [subscription.last_accessed_ms() for subscription in self.subscriptions.values()]
        return max([self.accessed_ms, self.settings.own.accessed_ms, *subscriptions])


async def reached(asked: Promise[Statistics]) -> Statistics | None:
    """What a partition holds; None where it cannot be reached."""
    try:
        return await asked
    except PartitionUnavailable:
        return None


def forward_path(target: str | None) -> str | None:
    return None if target is None else parse_forward_target(target)


def apply_entity(settings: EntitySettings, description: EntityDescription) -> None:
    """Brings an entity's settings in line with its description."""
    settings.duplicate_window_ms = (
        description.duplicate_detection_history_time_window_ms if description.requires_duplicate_detection else 0
    )
    settings.max_bytes = description.max_size_in_megabytes << 20
    own = settings.own
    own.ttl_ms = description.default_message_time_to_live_ms
    if isinstance(description, QueueDescription):
        own.lock_ms = description.lock_duration_ms
        own.max_delivery_count = description.max_delivery_count
        own.dead_letter_expired = description.dead_lettering_on_message_expiration
        own.requires_session = description.requires_session
        own.forward_to = forward_path(description.forward_to)
        own.forward_dead_letters_to = forward_path(description.forward_dead_lettered_messages_to)
        apply_options(own, description.user_metadata)


def apply_options(settings: LogSettings, user_metadata: str | None) -> None:
    """Options in the user metadata; a text that was kept before there were any is the user's own."""
    try:
        options = options_of(user_metadata)
    except ArgumentError:
        options = NO_OPTIONS
    settings.dead_letter_ttl_ms = options.dead_letter_ttl_ms
    settings.retry_ms = options.retry_ms
    settings.retry_grows = options.retry_grows
    settings.retry_max_ms = options.retry_max_ms


def apply_subscription(settings: LogSettings, description: SubscriptionDescription) -> None:
    settings.lock_ms = description.lock_duration_ms
    settings.max_delivery_count = description.max_delivery_count
    settings.ttl_ms = description.default_message_time_to_live_ms
    settings.dead_letter_expired = description.dead_lettering_on_message_expiration
    settings.dead_letter_filter_errors = description.dead_lettering_on_filter_evaluation_exceptions
    settings.requires_session = description.requires_session
    settings.forward_to = forward_path(description.forward_to)
    settings.forward_dead_letters_to = forward_path(description.forward_dead_lettered_messages_to)
    apply_options(settings, description.user_metadata)
