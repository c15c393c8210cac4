"""Which partition a message goes to: by session id, partition key or message id, else in turn (B1-B7).

The hash itself is in `polybus.hashing`.
"""

from __future__ import annotations

from typing import Final

from polybus.errors import InvalidOperation
from polybus.message.message import Message

KEY_CONFLICT: Final = (
    "A message's PartitionKey must be the same as its SessionId where both are set: '{partition}' is not '{session}'."
)
DISTINCT_KEYS: Final = (
    "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with"
    " partitioning enabled."
)
DISTINCT_IDS: Final = (
    "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity"
    " with partitioning and duplicate detection enabled."
)


def key_of(message: Message, detects_duplicates: bool) -> str | None:
    """The message's partition key by B2-B5; None where it may go anywhere. Conflicting keys are refused (B4)."""
    session, partition = message.session_id, message.partition_key
    if session is not None:
        if partition is not None and partition != session:
            raise InvalidOperation(KEY_CONFLICT.format(partition=partition, session=session))
        return session
    if partition is not None:
        return partition
    return message.message_id if detects_duplicates else None


def batch_key(messages: list[Message], detects_duplicates: bool) -> str | None:
    """The one key of a batch that goes to a partitioned entity; distinct keys are refused."""
    first = key_of(messages[0], detects_duplicates)
    for message in messages[1:]:
        if key_of(message, detects_duplicates) != first:
            raise InvalidOperation(DISTINCT_IDS if detects_duplicates else DISTINCT_KEYS)
    return first
