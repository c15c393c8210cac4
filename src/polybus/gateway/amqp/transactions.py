"""The transactions that one client has open: who may use them, and what they may span.

A transaction belongs to the connection that declared it, and dies with the link over which that was done. Its work is
the namespace's; here is only whose it is. A transaction stays with one entity, unless its session has a coordinator
of its own: then sends to other entities go through the session's first one (docs/protocol/transactions.md#send-via).
"""

from __future__ import annotations

from typing import Protocol

from polybus.errors import InvalidOperation, QuotaExceeded, TransactionRolledBack, TransactionUnknown
from polybus.gateway.amqp.link_end import LinkEnd, SessionLinks
from polybus.gateway.amqp.settling import Decision
from polybus.limits import AMQP_TRANSACTIONS_PER_CONNECTION
from polybus.message.message import Message
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.delivery.transaction import Transaction
from polybus.namespace.delivery.transaction_rules import RuleChange
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise


class HeldSettlement(Protocol):
    """A delivery whose settlement waits for a transaction, as the transaction sees it."""

    def committed(self) -> None: ...

    def rolled_back(self) -> None: ...


class _OpenTransaction:
    __slots__ = ("owner", "send_refused", "settlements", "transaction")

    def __init__(self, owner: LinkEnd, transaction: Transaction) -> None:
        self.owner = owner
        self.transaction = transaction
        self.send_refused = False
        self.settlements: list[HeldSettlement] = []
        transaction.on_roll_back = self.rolled_back

    def rolled_back(self) -> None:
        held, self.settlements = self.settlements, []
        for settlement in held:
            settlement.rolled_back()

    def committed(self) -> None:
        held, self.settlements = self.settlements, []
        for settlement in held:
            settlement.committed()


class ClientTransactions:
    """The open transactions of one connection."""

    __slots__ = ("_namespace", "_open", "_reads_refusals")

    def __init__(self, namespace: Namespace, reads_refusals: bool) -> None:
        self._namespace = namespace
        self._reads_refusals = reads_refusals
        """Whether the client looks at the answers to its sends; see docs/decisions/0007."""
        self._open: dict[bytes, _OpenTransaction] = {}

    def declare(self, owner: LinkEnd) -> Transaction:
        if len(self._open) >= AMQP_TRANSACTIONS_PER_CONNECTION:
            self._open = {key: one for key, one in self._open.items() if not one.transaction.done}
        if len(self._open) >= AMQP_TRANSACTIONS_PER_CONNECTION:
            raise QuotaExceeded(f"A connection may have {AMQP_TRANSACTIONS_PER_CONNECTION} open transactions.")
        transaction = self._namespace.transactions.declare()
        self._open[transaction.id] = _OpenTransaction(owner, transaction)
        return transaction

    def _find(self, txn_id: bytes) -> _OpenTransaction:
        found = self._open.get(txn_id)
        if found is None or found.transaction.done:
            raise TransactionUnknown("The transaction is unknown: it was completed, rolled back or timed out.")
        return found

    def send(
        self, txn_id: bytes, shared: SessionLinks, entity: Entity, messages: list[Message], via: Entity | None
    ) -> None:
        """Adds sends to a transaction; `via` is what the link itself asked for."""
        transaction = self._find(txn_id).transaction
        transaction.send(entity, messages, via or self._implied_via(transaction, shared, entity))

    def note_refused_send(self, txn_id: bytes) -> None:
        """A send of the transaction was refused: a client that does not look may not commit what is left."""
        found = self._open.get(txn_id)
        if found is not None:
            found.send_refused = True

    async def schedule(
        self, txn_id: bytes, shared: SessionLinks, entity: Entity, messages: list[Message]
    ) -> list[int]:
        """Adds sends for later to a transaction; gives the numbers that they will have."""
        transaction = self._find(txn_id).transaction
        return await transaction.schedule(entity, messages, self._implied_via(transaction, shared, entity))

    def _implied_via(self, transaction: Transaction, shared: SessionLinks, entity: Entity) -> Entity | None:
        if transaction.entity is entity:
            return None
        if transaction.entity is not None:
            if not shared.coordinators:
                raise InvalidOperation(
                    f"The transaction works on '{transaction.entity.name}' and cannot be used with"
                    f" '{entity.name}': it was declared for a different entity."
                )
            return None
        first = shared.first_entity
        return first if shared.coordinators and first is not entity else None

    def settle(self, txn_id: bytes, entity: Entity, held: Delivery, decision: Decision) -> Promise[None]:
        return self._find(txn_id).transaction.settle(
            entity, held, decision.outcome, decision.reason, decision.description, decision.properties
        )

    def follow(self, txn_id: bytes, settlement: HeldSettlement) -> None:
        """Tells of the transaction's end; it is gone already where that came first."""
        found = self._open.get(txn_id)
        if found is None or found.transaction.done:
            settlement.rolled_back()
        else:
            found.settlements.append(settlement)

    def change_rule(self, txn_id: bytes, topic: Entity, change: RuleChange) -> None:
        """Adds a change of a subscription's rules to a transaction."""
        self._find(txn_id).transaction.change_rule(topic, change)

    async def discharge(self, txn_id: bytes, fail: bool) -> None:
        """Commits, or rolls back where `fail`; raises where that could not be."""
        found = self._find(txn_id)
        del self._open[txn_id]
        unread = found.send_refused and not self._reads_refusals
        await self._namespace.transactions.discharge(found.transaction, fail or unread)
        found.committed()
        if unread and not fail:
            raise TransactionRolledBack("A send of the transaction was refused, so that it was rolled back.")

    def roll_back(self, owner: LinkEnd) -> None:
        """The link over which transactions were declared is gone (docs/protocol/transactions.md#coordinator-lost)."""
        for key, one in list(self._open.items()):
            if one.owner is owner:
                del self._open[key]
                one.transaction.roll_back()
