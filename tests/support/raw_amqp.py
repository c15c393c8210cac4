"""A client that speaks AMQP itself on a real socket, for what the Python SDK cannot say: transactions.

Every call waits for the bus's own answer. When the bus dies in the middle of one, the caller hears ConnectionError or
another OSError: what came of the call is then unknown. It keeps to the credit that it was given.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.outcomes import ACCEPTED, Declare, DeliveryState, Discharge, TransactionalState
from polybus.amqp.performatives import Attach, Begin, Open, Performative
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Disposition, Flow
from polybus.amqp.types import Described
from tests.support.raw_frames import Frame, Got, rejection, request, take_frame, text, transfer_frames, value

PATIENCE_S: Final = 60
WINDOW: Final = 5_000
ACCEPTED_CODE, DECLARED_CODE, IN_TRANSACTION_CODE = 0x24, 0x33, 0x34
LINKS, TRANSACTIONS = 0, 1
"""Channels: where the coordinator has a session of its own, each transaction keeps to one entity."""


class RawClient:
    """One connection, logged in with a key.

    With `several_entities` the coordinator shares the session of all links: the entity of the first link carries what
    a transaction sends to others.
    """

    def __init__(self, address: str, several_entities: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._unread = bytearray()
        self._frames: list[Frame] = []
        self._handles = itertools.count()
        self._deliveries = {LINKS: itertools.count(), TRANSACTIONS: itertools.count()}
        self._incoming: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._credit: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._nodes: dict[str, tuple[int, int]] = {}
        self._control = LINKS if several_entities else TRANSACTIONS
        try:
            self._log_in(host)
        except BaseException:
            self._socket.close()
            raise

    def _log_in(self, host: str) -> None:
        login = b"\x00RootManageSharedAccessKey\x00SAS_KEY_VALUE"
        self._socket.sendall(SASL_HEADER + frame(0, Init("PLAIN", login), SASL_FRAME))
        self.wait("sasl-outcome")
        self._socket.sendall(AMQP_HEADER)
        self._send(Open("client", host, 65536), LINKS)
        for channel in (LINKS, TRANSACTIONS):
            self._send(Begin(0, WINDOW, WINDOW), channel)
            self.wait("begin")
        self._coordinator = self._attach_sender(Coordinator(), self._control)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    # Frames

    def _send(self, performative: Performative, channel: int = LINKS) -> None:
        self._socket.sendall(frame(channel, performative))

    def wait(self, name: str, which: Callable[[Frame], bool] = lambda _: True) -> Frame:
        """The next frame of this kind; others are kept for later."""
        return self._wait(lambda one: one.name == name and which(one))

    def _wait(self, which: Callable[[Frame], bool]) -> Frame:
        seen = 0
        while True:
            for place in range(seen, len(self._frames)):
                if which(self._frames[place]):
                    return self._frames.pop(place)
            seen = len(self._frames)
            self._read()

    def _read(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the bus closed the connection")
        self._unread += data
        while (one := take_frame(self._unread)) is not None:
            self._note(one)
            if one.name not in ("flow", "heartbeat"):
                self._frames.append(one)

    def _note(self, one: Frame) -> None:
        """Keeps the number of the next transfer on each channel, which a flow must name, and credit and counts."""
        if one.name == "begin":
            self._incoming[one.channel] = one.fields[1]
        elif one.name == "transfer":
            self._incoming[one.channel] += 1
        elif one.name == "flow" and one.fields[4] is not None:
            handle, count, credit = one.fields[4:7]
            if handle in self._sent:
                self._credit[handle] = (count or 0) + (credit or 0) - self._sent[handle]
            else:
                self._counts[handle] = count

    # Links

    def _attach_sender(self, target: Target | Coordinator, channel: int = LINKS) -> int:
        handle = next(self._handles)
        self._sent[handle] = 0
        self._attach(
            Attach(f"link-{handle}", handle, False, Source("here"), target, initial_delivery_count=0), channel
        )
        return handle

    def _attach(self, attach: Attach, channel: int = LINKS) -> None:
        self._send(attach, channel)
        answer = self.wait("attach", lambda one: one.fields[0] == attach.name)
        assert answer.fields[6] is not None, "the link was refused"

    def sender(self, name: str) -> int:
        return self._attach_sender(Target(name))

    def receiver(self, name: str) -> int:
        """A link that locks what it gives; `receive` asks for one message at a time."""
        return self._attach_receiver(name, 0, 1)

    def _attach_receiver(self, name: str, snd_settle_mode: int, rcv_settle_mode: int) -> int:
        handle = next(self._handles)
        self._counts[handle] = 0
        modes = {"snd_settle_mode": snd_settle_mode, "rcv_settle_mode": rcv_settle_mode}
        self._attach(Attach(f"link-{handle}", handle, True, Source(name), Target("here"), **modes))  # type: ignore[arg-type]
        return handle

    def _want(self, handle: int, credit: int, drain: bool) -> None:
        self._send(Flow(self._incoming[LINKS], WINDOW, 0, WINDOW, handle, self._counts[handle], credit, drain=drain))

    # Messages

    def outcome(
        self, handle: int, payload: bytes, channel: int = LINKS, state: DeliveryState | None = None
    ) -> Described:
        """Sends one message; what became of it."""
        while self._credit.get(handle, 0) <= 0:
            self._read()
        number = next(self._deliveries[channel])
        self._sent[handle] += 1
        self._credit[handle] -= 1
        self._socket.sendall(transfer_frames(handle, number, payload, channel, state))
        return self._decided(channel, number, True)

    def _decided(self, channel: int, number: int, receives: bool) -> Described:
        def answers(one: Frame) -> bool:
            return one.channel == channel and one.fields[0] is receives and one.fields[1] <= number <= _last(one)

        # A disposition may be about several deliveries, but nobody here has more than one under way.
        found = self.wait("disposition", answers).fields[4]
        assert isinstance(found, Described)
        return found

    def receive(self, handle: int) -> Got | None:
        """One message that is there, under a lock; None where there is none."""
        before = self._counts[handle]
        self._want(handle, 1, drain=True)
        while self._counts[handle] == before:
            self._read()
            got = self._taken(handle)
            if got is not None:
                self._counts[handle] = before + 1
                return got
        return self._taken(handle)

    def _taken(self, handle: int) -> Got | None:
        """A message that has come on the link."""
        first = next((one for one in self._frames if one.name == "transfer" and one.fields[0] == handle), None)
        if first is None:
            return None
        payload = b""
        while True:
            part = self.wait("transfer", lambda one: one.fields[0] == handle)
            payload += part.payload
            if not part.fields[5]:
                return Got(first, payload)

    def settle(self, got: Got, transaction: bytes | None = None) -> bool:
        """Completes a message, in a transaction or not; whether the bus agreed."""
        state = ACCEPTED if transaction is None else TransactionalState(transaction, ACCEPTED)
        self._send(Disposition(True, got.id, None, False, state))
        answer = self._decided(LINKS, got.id, False)
        return answer.descriptor == (ACCEPTED_CODE if transaction is None else IN_TRANSACTION_CODE)

    # Transactions

    def declare(self) -> bytes:
        state = self.outcome(self._coordinator, value(Declare().described()), self._control)
        assert state.descriptor == DECLARED_CODE, state
        transaction: bytes = state.value[0]  # type: ignore[index]
        return transaction

    def commit(self, transaction: bytes) -> bool:
        return self.discharge(transaction) is None

    def roll_back(self, transaction: bytes) -> bool:
        return self.discharge(transaction, fail=True) is None

    def discharge(self, transaction: bytes, fail: bool = False) -> str | None:
        """Ends a transaction; None, or the words of the refusal."""
        state = self.outcome(self._coordinator, value(Discharge(transaction, fail).described()), self._control)
        return None if state.descriptor == ACCEPTED_CODE else rejection(state)[1]

    def send(self, handle: int, transaction: bytes, body: str, **fields: Any) -> str:
        """Sends in a transaction: `accepted`, or the condition of the refusal."""
        state = self.outcome(handle, text(body, **fields), state=TransactionalState(transaction, None))
        return "accepted" if state.descriptor == IN_TRANSACTION_CODE else rejection(state)[0]

    # Management

    def ask(self, path: str, operation: str, body: Any, transaction: bytes | None = None) -> tuple[int, str | None]:
        """Asks an entity's management node; gives status and error condition."""
        node = f"{path}/$management"
        if node not in self._nodes:
            requests, replies = self.sender(node), self._attach_receiver(node, 1, 0)
            self._nodes[node] = (requests, replies)
            self._want(replies, WINDOW, drain=False)
        requests, replies = self._nodes[node]
        state = None if transaction is None else TransactionalState(transaction, None)
        self.outcome(requests, request(operation, body, node), state=state)
        first = self.wait("transfer", lambda one: one.fields[0] == replies)
        answer: dict[str, Any] = Got(first, first.payload).message.application_properties()
        return answer["statusCode"], answer.get("errorCondition")


def _last(disposition: Frame) -> int:
    first, last = disposition.fields[1:3]
    found: int = first if last is None else last
    return found
