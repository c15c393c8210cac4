"""A partition as everything above it sees it: verbs that answer by reply or promise, and hints that its owner pushes.

Gateways and the namespace reach a partition through this alone. They never see its broker: a delivery is data and is
settled by its lock, a session is held by its own lock, and what cannot be had at once is promised. So the broker may as
well be in another process: `LocalPartition` calls it directly, and one that sends frames has the same verbs.

A verb that takes a reply raises at once where it can tell that nothing will happen; else the reply is called once,
after the commit that the answer depends on. Those that give a promise never raise.
"""

from __future__ import annotations

from polybus.clock import Now
from polybus.errors import BusError, PartitionUnavailable
from polybus.hosting.store_host import StoreHost
from polybus.message.edit import Edit
from polybus.message.message import Message
from polybus.message.overlay import Overlay
from polybus.message.peeked import Peeked
from polybus.message.rendering import Marks
from polybus.partition.data import ListedSession, LogEvent, LogRange, Moved, OutboxMessage, Records, Statistics
from polybus.partition.settings import EntitySettings
from polybus.promise import C, Promise, Reply
from polybus.rules.selectors import Selector


class Delivery(Marks):
    """A message handed to a receiver, under a lock or for good: its bytes, what the broker says of it, and its lock."""

    __slots__ = ("expires_ms", "head", "lock", "log_id", "message", "partition", "size")

    def __init__(
        self,
        partition: PartitionClient,
        log_id: int,
        head: bytes,
        lock: int,
        message: Message,
        size: int,
        sequence: int,
        enqueued_ms: int,
        expires_ms: int,
        original_sequence: int,
        delivery_count: int,
        state: int,
        locked_until_ms: int,
        overlay: Overlay | None,
    ) -> None:
        self.partition = partition
        self.log_id = log_id
        self.head = head
        """Names the entity, the partition and the life of its broker: one that came after it does not know the lock."""
        self.lock = lock
        """The lock's number; 0 where the message was removed."""
        self.message = message
        self.size = size
        self.sequence = sequence
        self.enqueued_ms = enqueued_ms
        self.expires_ms = expires_ms
        self.original_sequence = original_sequence
        self.delivery_count = delivery_count
        self.state = state
        self.locked_until_ms = locked_until_ms
        self.overlay = overlay
        self.lock_token = None

    @property
    def token(self) -> bytes:
        """The sixteen bytes by which anybody can settle this delivery; empty where there is no lock."""
        return self.head + self.lock.to_bytes(6, "big") if self.lock else b""


class LogListener:
    """Whoever receives from a log, over all partitions: what their owners tell it."""

    def available(self, partition: PartitionClient) -> None:
        """The partition serves again, or its log may have something to give."""
        raise NotImplementedError

    def unavailable(self, partition: PartitionClient) -> None:
        """The partition does not serve any more."""
        raise NotImplementedError

    def searching(self, partition: PartitionClient) -> None:
        """The partition looks in its store for more than it has at hand."""
        raise NotImplementedError

    def searched(self, partition: PartitionClient) -> None:
        """It has looked; what it found was announced by `available` before."""
        raise NotImplementedError


class SessionListener:
    """Whoever holds a session: what the session's owner tells it."""

    def available(self) -> None:
        """The session may have a message to give."""
        raise NotImplementedError

    def searching(self) -> None:
        raise NotImplementedError

    def searched(self) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The session's lock has run out, or its partition is gone."""
        raise NotImplementedError


class SessionLock:
    """A session that a receiver holds."""

    def __init__(self, log_id: int, session_id: str, holder: str) -> None:
        self.log_id = log_id
        self.id = session_id
        self.holder = holder
        """Whoever holds it, in words for those who ask."""
        self.locked_until_ms = 0
        """In wall time."""
        self.lost = False
        self.listener: SessionListener | None = None


class UnkeyedSend:
    """A send that another partition may have to take over, and what is known of its rows."""

    __slots__ = ("doubtful",)

    def __init__(self) -> None:
        self.doubtful: list[tuple[bytes, list[bytes]]] | None = None
        """Ids of stores that may hold the messages already, and the rows that they would be: whoever stores them now
        names these in the same batch."""

    def written(self, keys: list[bytes]) -> None:
        """Its messages are in these rows of the partition, or will be with its next commit."""
        raise NotImplementedError


class TransactionWork:
    """What a transaction will do at its partition when it is committed; what it settles the partition itself knows."""

    def __init__(self, txn_id: bytes) -> None:
        self.id = txn_id
        self.sends: list[Message] = []
        self.transfers: list[tuple[str, Message]] = []
        """Destination entity and message."""
        self.reserved: dict[Message, int] = {}
        """The numbers of scheduled messages, which their sender knows before the commit."""
        self.held = 0
        """Settlements that the partition keeps for it: an owner that knows of fewer has lost some."""
        self.intent = b""
        """What has to be done elsewhere after the commit: written with it, and removed when it is applied."""


class PartitionClient:
    """One partition of a queue or topic."""

    def __init__(self, entity_id: int, index: int, settings: EntitySettings, store: StoreHost) -> None:
        self.entity_id = entity_id
        self.index = index
        self.settings = settings
        self.store = store
        """The messaging store that it lies on."""
        self.elsewhere = False
        """Whether its broker is in another process: what it has must be asked for before it can be taken."""
        self.problem: str | None = None
        """Why the partition did not come up though its store did, or cannot do its work: a damaged record."""

    # Health, as far as the owner has told

    @property
    def available(self) -> bool:
        raise NotImplementedError

    def unavailable(self) -> PartitionUnavailable:
        return self.store.unavailable()

    def check_available(self) -> None:
        """PartitionUnavailable where its store is down (B9, F1)."""
        if not self.available:
            raise self.store.unavailable()

    def check_open(self) -> None:
        """Refuses a send that the partition cannot take now: it is away, full, or has too much to write."""
        raise NotImplementedError

    # Sending

    def send(
        self, messages: list[Message], reply: Reply[C, list[int]], context: C, sent: UnkeyedSend | None = None
    ) -> None:
        """Stores messages, all or none, in order of the calls; replies with their sequence numbers.

        InDoubt where the commit failed: what `sent` was told may or may not be stored.
        """
        raise NotImplementedError

    def reserve(self, count: int) -> Promise[list[int]]:
        """Sequence numbers for messages that will be scheduled later; settled when nobody else can get them."""
        raise NotImplementedError

    def cancel_scheduled(self, numbers: list[int]) -> Promise[None]:
        """Takes scheduled messages back, all or none."""
        raise NotImplementedError

    # Receiving

    def watch(self, log_id: int, listener: LogListener) -> None:
        """Tells the listener whenever the log may have something; one that may have is told of at once."""
        raise NotImplementedError

    def unwatch(self, log_id: int, listener: LogListener) -> None:
        raise NotImplementedError

    def at_hand(self, log_id: int) -> int:
        """Of a partition elsewhere: messages that its owner has sent and nobody has taken."""
        raise NotImplementedError

    def asked(self, log_id: int) -> int:
        """Of a partition elsewhere: messages that its owner was asked for and has neither sent nor said not to have."""
        raise NotImplementedError

    def take(self, log_id: int, credit: int) -> Delivery | None:
        """The next message at hand, locked; None where none is, and the listener hears when one may be.

        `credit` is how many the receiver could take: an owner elsewhere need not be asked for each.
        """
        raise NotImplementedError

    def take_away(self, log_id: int, credit: int, reply: Reply[C, Delivery], context: C) -> bool:
        """Removes the next message at hand, and replies with the delivery; False where none is at hand."""
        raise NotImplementedError

    def take_selected(self, log_id: int, selector: Selector, count: int) -> list[Delivery]:
        """Messages at hand that the selector wants, locked; the listener hears when there may be more."""
        raise NotImplementedError

    def take_away_selected(
        self, log_id: int, selector: Selector, count: int, reply: Reply[C, Delivery], context: C
    ) -> int:
        """Removes such messages, and replies with each delivery; gives how many."""
        raise NotImplementedError

    def take_deferred(
        self, log_id: int, numbers: list[int], lock: bool, session: SessionLock | None
    ) -> Promise[list[Delivery]]:
        """Deferred messages by number, all or none, locked or removed; of one session where it is given."""
        raise NotImplementedError

    def peek(self, log_id: int, first: int, count: int, max_bytes: int, session: str | None) -> Promise[list[Peeked]]:
        """Messages from a number on, in order of number; at least one where there is one."""
        raise NotImplementedError

    # By number, for whoever manages messages: what somebody holds is left alone and told

    def delete_numbers(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        """Removes messages for good, active or deferred ones."""
        raise NotImplementedError

    def defer_numbers(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        """Defers active messages, each under the number that it has."""
        raise NotImplementedError

    def undefer(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        """Makes deferred messages active again, at the end of where they are."""
        raise NotImplementedError

    def cancel_numbers(self, numbers: list[int]) -> Promise[Moved]:
        """Takes those scheduled messages back that there are."""
        raise NotImplementedError

    def reschedule(self, numbers: list[int], due_ms: int, by_ms: int) -> Promise[Moved]:
        """Gives scheduled messages another time: `due_ms`, or where that is 0, `by_ms` more than they have."""
        raise NotImplementedError

    # Settling, by lock

    def complete(self, delivery: Delivery, now: Now, reply: Reply[C, None] | None, context: C) -> None:
        """`now` is the caller's look at the clock that it shares with the owner."""
        raise NotImplementedError

    def settle(
        self,
        delivery: Delivery,
        now: Now,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
        reply: Reply[C, None] | None,
        context: C,
    ) -> None:
        raise NotImplementedError

    def release(self, delivery: Delivery, now: Now, reply: Reply[C, None] | None, context: C) -> None:
        """Gives a message back as if it had never been taken: nothing is counted, nothing written."""
        raise NotImplementedError

    def give_back(self, delivery: Delivery) -> None:
        """The same for one that never left for its receiver (C2); a lock that is gone is no error, and none hears."""
        raise NotImplementedError

    def renew(self, delivery: Delivery) -> Promise[int]:
        """Extends the lock; gives its new end in wall time."""
        raise NotImplementedError

    def find_locked(self, log_id: int, token: bytes) -> Promise[Delivery]:
        """The delivery that a token of this partition names; MessageLockLost where the lock has ended."""
        raise NotImplementedError

    def are_locked(self, deliveries: list[Delivery]) -> Promise[list[bool]]:
        """Which of the deliveries are still held by their locks."""
        raise NotImplementedError

    # Sessions

    def may_have_session(self, log_id: int) -> bool:
        """Whether a session may wait for a receiver."""
        raise NotImplementedError

    def accept_session(self, log_id: int, session_id: str, holder: str) -> Promise[SessionLock]:
        """Locks the session; settled when what its last holder did is safe. SessionCannotBeLocked where it is held."""
        raise NotImplementedError

    def accept_next_session(self, log_id: int, holder: str) -> Promise[SessionLock | None]:
        """Locks the session that has waited longest; None where none waits, or more must be looked at first: then the
        listener hears that one may be available."""
        raise NotImplementedError

    def take_in_session(self, session: SessionLock, credit: int) -> Delivery | None:
        """The session's next message at hand, in strict order, under the session's lock."""
        raise NotImplementedError

    def take_away_in_session(self, session: SessionLock, credit: int, reply: Reply[C, Delivery], context: C) -> bool:
        raise NotImplementedError

    def renew_session(self, session: SessionLock) -> Promise[int]:
        raise NotImplementedError

    def release_session(self, session: SessionLock) -> None:
        """The receiver is done: the session is free at once, and so are its unsettled messages (C2)."""
        raise NotImplementedError

    def get_session_state(self, session: SessionLock) -> Promise[bytes | None]:
        raise NotImplementedError

    def set_session_state(self, session: SessionLock, state: bytes | None) -> Promise[None]:
        raise NotImplementedError

    def peek_session_state(self, log_id: int, session_id: str) -> Promise[bytes | None]:
        """A session's state for whoever looks, whether somebody holds the session or not."""
        raise NotImplementedError

    def list_sessions(self, log_id: int, limit: int, updated_after_ms: int | None) -> Promise[list[str]]:
        """Ids of sessions in a stable order, with messages or state; or those whose state was updated since."""
        raise NotImplementedError

    def describe_sessions(self, log_id: int, after: str | None, limit: int) -> Promise[list[ListedSession]]:
        """Sessions with messages, a state or a holder, in a stable order; with their counts and holders."""
        raise NotImplementedError

    # Transactions

    def hold_in_transaction(
        self,
        work: TransactionWork,
        delivery: Delivery,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
    ) -> Promise[None]:
        """Adds a settlement to a transaction: the message stays locked, and nobody else can settle it."""
        raise NotImplementedError

    def commit(self, work: TransactionWork) -> Promise[None]:
        """Everything happens, or it is rejected and nothing has."""
        raise NotImplementedError

    def roll_back(self, work: TransactionWork) -> None:
        """Nothing happens; what was to be settled keeps what is left of its locks."""
        raise NotImplementedError

    def remove_intent(self) -> Promise[None]:
        """What the last transaction intended elsewhere is applied."""
        raise NotImplementedError

    # Moving messages to other entities

    def destinations(self) -> Promise[list[tuple[int, int]]]:
        """The (entity id, partition index) pairs for which the outbox holds messages."""
        raise NotImplementedError

    def outgoing(self, destination: tuple[int, int], limit: int, max_bytes: int) -> Promise[list[OutboxMessage]]:
        """The next messages of the outbox for one destination, in order."""
        raise NotImplementedError

    def remove_outgoing(self, destination: tuple[int, int], moved: list[OutboxMessage]) -> Promise[None]:
        """The destination has these: they leave the outbox. Saying it twice is harmless."""
        raise NotImplementedError

    def refuse_outgoing(
        self, destination: tuple[int, int], refused: list[OutboxMessage], error: BusError
    ) -> Promise[None]:
        """The destination will never take these: they go to the transfer dead letters of where they came from."""
        raise NotImplementedError

    def take_over(self, source: tuple[int, int], arriving: list[OutboxMessage]) -> Promise[None]:
        """Stores what has not been seen from this source yet; all or none."""
        raise NotImplementedError

    def forward_backlog(self) -> None:
        """Puts on their way what lay in the logs before they forwarded."""
        raise NotImplementedError

    def move(
        self,
        log_id: int,
        numbers: list[int],
        changed: dict[int, Message],
        edits: dict[int, Edit],
        destination: str,
        subscription: int,
    ) -> Promise[Moved]:
        """Takes messages out by number and puts them on their way to another entity, in one batch."""
        raise NotImplementedError

    def delete_before(self, log_id: int, count: int, before_ms: int, session: SessionLock | None) -> Promise[int]:
        """Deletes free messages that were enqueued before a time; gives how many."""
        raise NotImplementedError

    # Pipelines

    def log_end(self, log_id: int) -> Promise[LogRange]:
        """How far the log goes, and how much it holds; without where it begins."""
        raise NotImplementedError

    def log_range(self, log_id: int, time_ms: int | None) -> Promise[LogRange]:
        raise NotImplementedError

    def read_records(
        self, log_id: int, first: int, last: int, limit: int, max_bytes: int, start: bytes
    ) -> Promise[Records]:
        """Messages by position as they are stored; `start` is `after` of the read before, where this one goes on."""
        raise NotImplementedError

    def read_events(self, log_id: int, first: int, limit: int) -> Promise[list[LogEvent]]:
        raise NotImplementedError

    def trim_events(self) -> None:
        """Removes the oldest events of logs that have too many."""
        raise NotImplementedError

    def set_floor(self, log_id: int, floor: int) -> None:
        """What is settled above this position is kept, also by a broker that is not there yet; the rest goes soon."""
        raise NotImplementedError

    def excess(self, log_id: int, max_lag_ms: int, max_lag_bytes: int) -> Promise[int]:
        """The position up to which kept messages are too old or too many; 0 where none are."""
        raise NotImplementedError

    def stage(self, stage_id: bytes, first: int, messages: list[Message]) -> Promise[None]:
        """Stores messages under a stage, numbered from `first`; the same numbers written twice are one."""
        raise NotImplementedError

    def publish_chunk(self, stage_id: bytes) -> Promise[bool]:
        """Moves the next messages of a stage into the log; True where more are left."""
        raise NotImplementedError

    def drop_stage(self, stage_id: bytes) -> Promise[None]:
        """Throws a stage away; one that is being written or published meanwhile stays, and expires."""
        raise NotImplementedError

    def old_stages(self, before_ms: int) -> Promise[list[bytes]]:
        """Ids of stages that nobody has written to since."""
        raise NotImplementedError

    # Management

    def statistics(self, numbers: list[int]) -> Promise[Statistics]:
        """What the partition holds, for the queue or topic (0) and for subscriptions."""
        raise NotImplementedError

    def highest_subscription(self) -> Promise[int]:
        """The highest number of a subscription that the store has ever held rows of."""
        raise NotImplementedError

    def forget_subscription(self, number: int) -> None:
        """A subscription was deleted: its logs and locks leave memory; its rows are removed by `purge`."""
        raise NotImplementedError

    def purge_subscription(self, number: int) -> Promise[None]:
        raise NotImplementedError

    def retire(self) -> None:
        """The entity is deleted: nothing more happens here."""
        raise NotImplementedError

    def clock_moved(self) -> None:
        """The clock was moved by hand: whatever has become due happens now."""
        raise NotImplementedError

    def lose_message_locks(self, log_id: int, number: int | None) -> Promise[int]:
        """Ends the lock of one message, or of all of a log, as if its time were up; gives how many."""
        raise NotImplementedError

    def lose_session_locks(self, log_id: int, session_id: str | None) -> Promise[int]:
        """Ends the hold on one session, or on all of a log; gives how many."""
        raise NotImplementedError
