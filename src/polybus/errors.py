"""Every error that Polybus raises on purpose, in one tree.

PolybusError
├── BusError                    an operation is refused; has an AMQP condition and an HTTP status
│   ├── ArgumentError           ArgumentOutOfRange, RuleSyntaxError
│   ├── InvalidOperation        the request is well formed but breaks a rule of the bus
│   ├── NotImplementedByBus     an operation that the bus does not have
│   ├── Unauthorized            no claim, a bad token, an expired one
│   ├── EntityNotFound          EntityDeleted
│   ├── EntityAlreadyExists     OperationConflict
│   ├── DuplicateDropped        the sender wanted to hear that its message was dropped as a duplicate
│   ├── EntityDisabled, SubscriptionInUse
│   ├── QuotaExceeded           the entity, its partition or the disk is full; a count is at its limit
│   ├── MessageTooLarge
│   ├── MessageNotFound         SessionNotFound
│   ├── MessageLockLost
│   ├── SessionLockLost
│   ├── SessionCannotBeLocked
│   ├── OperationTimeout
│   ├── ServerBusy              PartitionUnavailable; both retryable
│   ├── ShuttingDown
│   ├── CursorLeased, CursorTruncated, ProducerFenced
│   └── TransactionUnknown, TransactionTimeout, TransactionRolledBack
├── StoreError                  a messaging store failed
│   ├── StoreFenced             an earlier failure closed it; reopening recovers
│   ├── StoreFull               no space; nothing of the batch was written
│   ├── StoreCorrupt            a record's checksum or shape is wrong
│   └── StoreVersionMismatch    written by another major version, or by another owner
├── ProtocolError               the peer broke AMQP; has an AMQP condition; closes one connection
├── ConfigError                 the user's configuration is wrong; says file, path, value, range
│   └── TemplateError           a Resource Manager template asks for what cannot be
└── BugError                    our own fault, never the peer's or the user's
"""

from __future__ import annotations


class PolybusError(Exception):
    """Base of every error that Polybus raises on purpose."""


class BusError(PolybusError):
    """An operation is refused. `condition` goes out over AMQP, `http_status` and `sub_code` over HTTP."""

    condition = "amqp:internal-error"
    http_status = 500
    sub_code = 50000
    retryable = False

    def __init__(self, description: str = "") -> None:
        super().__init__(description)
        self.description = description


class ArgumentError(BusError):
    condition = "com.microsoft:argument-error"
    http_status = 400
    sub_code = 40000


class ArgumentOutOfRange(ArgumentError):
    condition = "com.microsoft:argument-out-of-range"


class RuleSyntaxError(ArgumentError):
    """The text of a filter or an action is wrong at `position`."""

    def __init__(self, description: str, position: int) -> None:
        super().__init__(description)
        self.position = position


class InvalidOperation(BusError):
    condition = "amqp:not-allowed"
    http_status = 400
    sub_code = 40000


class NotImplementedByBus(BusError):
    condition = "amqp:not-implemented"
    http_status = 501
    sub_code = 50100


class Unauthorized(BusError):
    condition = "amqp:unauthorized-access"
    http_status = 401
    sub_code = 40100


class EntityNotFound(BusError):
    condition = "amqp:not-found"
    http_status = 404
    sub_code = 40400


class EntityDeleted(EntityNotFound):
    condition = "amqp:resource-deleted"
    http_status = 410
    sub_code = 41000


class EntityAlreadyExists(BusError):
    condition = "com.microsoft:entity-already-exists"
    http_status = 409
    sub_code = 40900


class OperationConflict(EntityAlreadyExists):
    """Another management operation on the same entity is under way."""

    sub_code = 40901


class SubscriptionInUse(BusError):
    """A subscription that one client has for itself is received from already."""

    condition = "amqp:resource-locked"
    http_status = 409
    sub_code = 40900


class DuplicateDropped(BusError):
    """A message was dropped as a duplicate, and its sender wanted to hear of it. Sending it again changes nothing."""

    condition = "polybus:duplicate-dropped"
    http_status = 409
    sub_code = 40904


class EntityDisabled(BusError):
    condition = "com.microsoft:entity-disabled"
    http_status = 400
    sub_code = 40000


class QuotaExceeded(BusError):
    condition = "amqp:resource-limit-exceeded"
    http_status = 403
    sub_code = 40300


class MessageTooLarge(BusError):
    condition = "amqp:link:message-size-exceeded"
    http_status = 403
    sub_code = 40300


class MessageNotFound(BusError):
    condition = "com.microsoft:message-not-found"
    http_status = 404
    sub_code = 40400


class SessionNotFound(MessageNotFound):
    condition = "com.microsoft:session-not-found"
    http_status = 204


class MessageLockLost(BusError):
    condition = "com.microsoft:message-lock-lost"
    http_status = 410
    sub_code = 41000


class SessionLockLost(BusError):
    condition = "com.microsoft:session-lock-lost"
    http_status = 410
    sub_code = 41000


class SessionCannotBeLocked(BusError):
    condition = "com.microsoft:session-cannot-be-locked"
    http_status = 410
    sub_code = 41000


class OperationTimeout(BusError):
    condition = "com.microsoft:timeout"
    http_status = 408
    sub_code = 40800
    retryable = True


class ServerBusy(BusError):
    condition = "com.microsoft:server-busy"
    http_status = 503
    sub_code = 50004
    retryable = True


class PartitionUnavailable(ServerBusy):
    """The partition that must serve this operation has no messaging store now (B9, F1)."""


class ShuttingDown(BusError):
    condition = "amqp:connection:forced"
    http_status = 503
    sub_code = 50003
    retryable = True


class CursorLeased(BusError):
    """Another holder has the cursor, or this one's fencing number is old."""

    condition = "amqp:resource-locked"
    http_status = 409
    sub_code = 40902


class CursorTruncated(BusError):
    """What the cursor points at has been removed because it lagged over its limit."""

    condition = "amqp:precondition-failed"
    http_status = 410
    sub_code = 41001


class ProducerFenced(BusError):
    """A newer query has taken the producer's name over."""

    condition = "amqp:precondition-failed"
    http_status = 409
    sub_code = 40903


class TransactionUnknown(BusError):
    condition = "amqp:transaction:unknown-id"
    http_status = 400
    sub_code = 40000


class TransactionTimeout(BusError):
    condition = "amqp:transaction:timeout"
    http_status = 400
    sub_code = 40000


class TransactionRolledBack(BusError):
    """The commit that was asked for did not happen, and the transaction is over."""

    condition = "amqp:transaction:rollback"
    http_status = 400
    sub_code = 40000


class StoreError(PolybusError):
    """A messaging store failed."""


class StoreFenced(StoreError):
    """An earlier failure closed the store to writes; opening it again recovers."""


class StoreFull(StoreError):
    """No space left; nothing of the batch was written."""


class StoreCorrupt(StoreError):
    """A record's checksum or shape is wrong."""


class StoreVersionMismatch(StoreError):
    """The store was written by another major version, or belongs to somebody else."""


class ProtocolError(PolybusError):
    """The peer broke AMQP 1.0. Closes its connection (or only its session or link) and nothing else."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class ConfigError(PolybusError):
    """The user's configuration is wrong; the text says file, path, value and what is allowed."""


class TemplateError(ConfigError):
    """A Resource Manager template cannot be read, or asks for what a bus does not have."""


class BugError(PolybusError):
    """An invariant of ours does not hold: never the peer's or the user's fault."""
