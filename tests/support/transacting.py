"""The part of a soak's load that works in transactions, by raw AMQP, for the Python SDK has none.

Each transaction takes a message from a queue or not, sends more with its key to the same queue, and sends to another
one, which the bus does over its transfer log. It is committed, rolled back or left open. When the bus dies before the
discharge, nothing of it may be seen; when it dies during the discharge, all or nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from polybus.testing.history import FAILED, OK, UNKNOWN, Began, Op, digest
from polybus.testing.sdk_clients import IN_DOUBT
from tests.support.raw_amqp import RawClient
from tests.support.raw_frames import Got
from tests.support.sdk_load import Client, Round

HOME: Final = "ledger"
ELSEWHERE: Final = "last"
PACE_S: Final = 0.1


class Transacting(Client):
    """One transaction after the other until the bus is gone."""

    def __init__(self, name: str, run: Round) -> None:
        super().__init__(name, run)
        self._transactions = 0

    def _visit(self) -> None:
        with (
            contextlib.suppress(OSError),
            RawClient(self.round.server.addresses["amqp"], several_entities=True) as raw,
        ):
            receiver = raw.receiver(HOME)
            senders = {name: raw.sender(name) for name in (HOME, ELSEWHERE)}
            while not self.over():
                self._transactions += 1
                _Transaction(self, raw, f"{self.name}/{self._transactions}").work(receiver, senders)
                self._keep_pace()

    def _keep_pace(self) -> None:
        """A transaction is much quicker than a call of the SDK: it waits for the senders, or they would be nothing."""
        with self.round.progress:
            self.round.progress.wait(PACE_S)


class _Transaction:
    """One transaction, from its declaration to its end, as the history has it."""

    def __init__(self, client: Transacting, raw: RawClient, name: str) -> None:
        self.name = name
        self._client = client
        self._rng = client.rng
        self._recorder = client.recorder.recorder
        self._raw = raw
        self._id = raw.declare()
        self._recorder.record(Op.DECLARE, transaction=name)

    def work(self, receiver: int, senders: dict[str, int]) -> None:
        held = self._receive(receiver) if self._rng.random() < 0.6 else None
        key = f"key {self._rng.randrange(20)}" if held is None else held.message.partition_key
        settled = held is not None and self._settle(held)
        for _ in range(self._rng.randint(1, 4)):
            name = self._rng.choice((HOME, HOME, ELSEWHERE))
            self._send(senders[name], name, str(key))
        if held is None and self._rng.random() < 0.1:
            return  # it is left open; the bus rolls it back when the connection ends
        committed = self._discharge(self._rng.random() < 0.2)
        if held is not None and not (settled and committed):
            self._give_up(held)

    def _receive(self, receiver: int) -> Got | None:
        began = self._recorder.begin()
        got = self._raw.receive(receiver)
        if got is not None:
            seen: dict[str, Any] = {
                "key": got.message.partition_key,
                "digest": digest(got.body),
                "count": got.delivery_count,
            }
            self._recorder.record(Op.RECEIVE, HOME, began=began, **_named(got), **seen)
        return got

    def _settle(self, held: Got) -> bool:
        began = self._recorder.begin()
        agreed = self._raw.settle(held, self._id)
        outcome = OK if agreed else FAILED
        self._recorder.record(Op.COMPLETE, HOME, outcome, began=began, transaction=self.name, **_named(held))
        return agreed

    def _send(self, sender: int, name: str, key: str) -> None:
        message_id = self._client.next_id()
        body = f"body of {message_id}"
        began = self._recorder.begin()
        answer = self._raw.send(sender, self._id, body, message_id=message_id, partition_key=key)
        outcome = OK if answer == "accepted" else FAILED
        fields = {"message_id": message_id, "key": key, "digest": digest(body.encode())}
        self._recorder.record(Op.SEND, name, outcome, began=began, transaction=self.name, **fields)

    def _discharge(self, fail: bool) -> bool:
        """Whether it is committed. Where the bus dies meanwhile nobody knows, unless it was to be rolled back."""
        op = Op.ROLLBACK if fail else Op.COMMIT
        began = self._recorder.begin()
        try:
            refusal = self._raw.discharge(self._id, fail)
        except OSError:
            self._end(op, UNKNOWN, began)
            raise
        if refusal is None:
            self._end(op, OK, began)
            return not fail
        self._end(op, UNKNOWN if IN_DOUBT in refusal else FAILED, began)
        return False

    def _end(self, op: str, outcome: str, began: Began) -> None:
        self._recorder.record(op, outcome=outcome, began=began, transaction=self.name)

    def _give_up(self, held: Got) -> None:
        """The message is still locked: it is completed by its token, outside any transaction."""
        body = {"lock-tokens": [held.token], "disposition-status": "completed"}
        began = self._recorder.begin()
        outcome = UNKNOWN
        try:
            status, _ = self._raw.ask(HOME, "update-disposition", body)
            outcome = OK if status == 200 else FAILED
        finally:
            self._recorder.record(Op.COMPLETE, HOME, outcome, began=began, **_named(held))


def _named(got: Got) -> dict[str, Any]:
    return {"message_id": got.message_id, "number": got.number, "token": str(got.token)}
