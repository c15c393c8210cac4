"""A raw AMQP client on a real socket, for what the Python SDK cannot say: transactions."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any

from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.outcomes import Declare, DeliveryState, Discharge, TransactionalState
from polybus.amqp.performatives import Attach, Begin, Open, Performative
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Flow
from polybus.amqp.types import Described
from tests.protocol.peer import Frame, parse
from tests.unit.gateway.amqp_kit import gather, message, rejection, text, transfer_frames, value

PATIENCE_S = 60
WINDOW = 5_000
ACCEPTED, REJECTED, DECLARED, IN_TRANSACTION = 0x24, 0x25, 0x33, 0x34
LINKS, TRANSACTIONS = 0, 1
"""Channels: the coordinator has a session of its own, so that each transaction keeps to one entity."""


class RawClient:
    """One connection, logged in with a key; every call waits for the bus's own answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._unread = bytearray()
        self._frames: list[Frame] = []
        self._handles = itertools.count()
        self._deliveries = itertools.count()
        self._incoming: dict[int, int] = {}
        login = b"\x00RootManageSharedAccessKey\x00SAS_KEY_VALUE"
        self._socket.sendall(SASL_HEADER + frame(0, Init("PLAIN", login), SASL_FRAME))
        self.wait("sasl-outcome")
        self._socket.sendall(AMQP_HEADER)
        self._send(Open("client", host, 65536), LINKS)
        for channel in (LINKS, TRANSACTIONS):
            self._send(Begin(0, WINDOW, WINDOW), channel)
            self.wait("begin")
        self._coordinator = self.attach(Coordinator(), TRANSACTIONS)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    # Frames

    def _send(self, performative: Performative, channel: int) -> None:
        self._socket.sendall(frame(channel, performative))

    def wait(self, name: str, which: Callable[[Frame], bool] = lambda _: True) -> Frame:
        """The next frame of this kind; others are kept for later."""
        seen = 0
        while True:
            for place in range(seen, len(self._frames)):
                one = self._frames[place]
                if one.name == name and which(one):
                    del self._frames[place]
                    return one
            seen = len(self._frames)
            self._read()

    def _read(self) -> None:
        data = self._socket.recv(65536)
        assert data, "the bus closed the connection"
        self._unread += data
        while len(self._unread) >= 8:
            size = 8 if self._unread[:4] == b"AMQP" else int.from_bytes(self._unread[:4], "big")
            if len(self._unread) < size:
                return
            found = parse(bytes(self._unread[:size]))
            del self._unread[:size]
            for one in found:
                if isinstance(one, Frame):
                    self._frames.append(one)
                    self._count(one)

    def _count(self, one: Frame) -> None:
        """Keeps the number of the next transfer on each channel, which a flow must name."""
        if one.name == "begin":
            self._incoming[one.channel] = one.fields[1]
        elif one.name == "transfer":
            self._incoming[one.channel] += 1

    # Links

    def attach(self, target: Target | Coordinator, channel: int = LINKS) -> int:
        handle = next(self._handles)
        name = f"link-{handle}"
        attach = Attach(name, handle, False, Source("here"), target, initial_delivery_count=0)
        self._send(attach, channel)
        answer = self.wait("attach", lambda one: one.fields[0] == name)
        assert answer.fields[6] is not None, "the link was refused"
        return handle

    def sender(self, name: str) -> int:
        return self.attach(Target(name))

    def reply_link(self, address: str) -> int:
        handle = next(self._handles)
        name = f"link-{handle}"
        modes = {"snd_settle_mode": 1, "rcv_settle_mode": 0}
        self._send(Attach(name, handle, True, Source(address), Target("replies"), **modes), LINKS)  # type: ignore[arg-type]
        self.wait("attach", lambda one: one.fields[0] == name)
        self._send(Flow(self._incoming[LINKS], WINDOW, 0, WINDOW, handle, 0, 100), LINKS)
        return handle

    # Messages and transactions

    def outcome(
        self, handle: int, payload: bytes, channel: int = LINKS, state: DeliveryState | None = None
    ) -> Described:
        number = next(self._deliveries)
        self._socket.sendall(transfer_frames(handle, number, payload, channel, state=state))
        answer = self.wait("disposition", lambda one: one.fields[0] is True and one.fields[1] == number)
        found = answer.fields[4]
        assert isinstance(found, Described)
        return found

    def declare(self) -> bytes:
        state = self.outcome(self._coordinator, value(Declare().described()), TRANSACTIONS)
        assert state.descriptor == DECLARED, state
        transaction: bytes = state.value[0]  # type: ignore[index]
        return transaction

    def commit(self, transaction: bytes) -> bool:
        return self._discharge(transaction, False)

    def roll_back(self, transaction: bytes) -> bool:
        return self._discharge(transaction, True)

    def _discharge(self, transaction: bytes, fail: bool) -> bool:
        state = self.outcome(self._coordinator, value(Discharge(transaction, fail).described()), TRANSACTIONS)
        return state.descriptor == ACCEPTED

    def send(self, handle: int, transaction: bytes, body: str, **fields: Any) -> str:
        """Sends in a transaction: `accepted`, or the condition of the refusal."""
        state = self.outcome(handle, text(body, **fields), state=TransactionalState(transaction, None))
        return "accepted" if state.descriptor == IN_TRANSACTION else rejection(state)[0]

    def ask(self, path: str, operation: str, body: Any, transaction: bytes | None = None) -> tuple[int, str | None]:
        """Asks an entity's management node; gives status and error condition."""
        node = f"{path}/$management"
        requests, replies = self.sender(node), self.reply_link(node)
        asked = message({"operation": f"com.microsoft:{operation}"}, body, "request", node)
        state = None if transaction is None else TransactionalState(transaction, None)
        self.outcome(requests, asked, state=state)
        got = gather([self.wait("transfer", lambda one: one.fields[0] == replies)])[0]
        answer: dict[str, Any] = got.message.application_properties()  # type: ignore[assignment]
        return answer["statusCode"], answer.get("errorCondition")


__all__ = ["ACCEPTED", "IN_TRANSACTION", "REJECTED", "RawClient"]
