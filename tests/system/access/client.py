"""A small AMQP client for access tests. It says what it is told to, right or wrong, and gives the bus's verdict.

The stream is a socket or a WebSocket; the client does not know which. Every wait is for the bus's own answer.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from typing import Any, Protocol

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, RejectConnection, Request

from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.performatives import Attach, Begin, Open, Performative
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Source, Target
from polybus.amqp.traffic import Flow
from polybus.amqp.types import Symbol
from polybus.gateway.amqp.send import TRANSFER_DESTINATION
from tests.protocol.peer import Frame, parse
from tests.unit.gateway.amqp_kit import error_of, gather, message, text, transfer_frames

PATIENCE_S = 30
WINDOW = 5_000
UNAUTHORIZED = "amqp:unauthorized-access"
ACCEPTED = 0x24


class Refused(Exception):
    """The bus said no, in a way that tells a client that it lacks the right."""


class Stream(Protocol):
    def send(self, data: bytes) -> None: ...
    def receive(self) -> bytes: ...
    def close(self) -> None: ...


class SocketStream:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        return self._socket.recv(65536)

    def close(self) -> None:
        self._socket.close()


class WebSocketStream:
    """The same bytes in binary messages."""

    def __init__(self, address: str) -> None:
        self._inner = SocketStream(address)
        self._ws = WSConnection(ConnectionType.CLIENT)
        opening = Request(host=address, target="/$servicebus/websocket", subprotocols=["AMQPWSB10"])
        self._inner.send(self._ws.send(opening))
        self._events: list[Any] = []
        first = self._next()
        assert isinstance(first, AcceptConnection), first

    def _next(self) -> Any:
        while not self._events:
            data = self._inner.receive()
            self._ws.receive_data(data or None)
            self._events += self._ws.events()
        return self._events.pop(0)

    def send(self, data: bytes) -> None:
        self._inner.send(self._ws.send(BytesMessage(data)))

    def receive(self) -> bytes:
        event = self._next()
        if isinstance(event, CloseConnection | RejectConnection):
            return b""
        assert isinstance(event, BytesMessage), event
        return bytes(event.data)

    def close(self) -> None:
        self._inner.close()


class AmqpClient:
    """One connection with one session."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._unread = bytearray()
        self._frames: list[Frame] = []
        self._handles = itertools.count()
        self._deliveries = itertools.count()
        self._incoming = 0

    def close(self) -> None:
        self._stream.close()

    # Frames

    def _send(self, performative: Performative) -> None:
        self._stream.send(frame(0, performative))

    def wait(self, name: str, which: Callable[[Frame], bool] = lambda _: True) -> Frame:
        """The next frame of this kind; Refused where the bus closes for want of rights instead."""
        while True:
            for place, one in enumerate(self._frames):
                if one.name == name and which(one):
                    del self._frames[place]
                    return one
                if one.name == "close":
                    raise Refused(_refusal(one.fields[0]))
            self._read()

    def _read(self) -> None:
        data = self._stream.receive()
        assert data, "the bus closed the connection without a word"
        self._unread += data
        while len(self._unread) >= 8:
            size = 8 if self._unread[:4] == b"AMQP" else int.from_bytes(self._unread[:4], "big")
            if len(self._unread) < size:
                return
            for one in parse(bytes(self._unread[:size])):
                if isinstance(one, Frame):
                    self._frames.append(one)
                    self._count(one)
            del self._unread[:size]

    def _count(self, one: Frame) -> None:
        if one.name == "begin":
            self._incoming = one.fields[1]
        elif one.name == "transfer":
            self._incoming += 1

    # Connection

    def log_in(self, mechanism: str, response: bytes = b"") -> None:
        self._stream.send(SASL_HEADER + frame(0, Init(mechanism, response), SASL_FRAME))
        outcome = self.wait("sasl-outcome")
        if outcome.fields[0] != 0:
            raise Refused(f"SASL outcome {outcome.fields[0]}")

    def open(self, hostname: str = "localhost") -> None:
        self._stream.send(AMQP_HEADER)
        self._send(Open("client", hostname, 65536))
        self._send(Begin(0, WINDOW, WINDOW))
        self.wait("begin")

    def put_token(self, audience: str, token: str) -> None:
        requests, replies = self.sender("$cbs"), self.receiver("$cbs", 10)
        application: dict[str, object] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        self._deliver(requests, message(application, token, "token"))
        answer = self._reply(replies)
        status = answer["status-code"]
        if status == 401:
            raise Refused(answer["status-description"])
        assert status == 202, answer

    # Links

    def sender(self, address: str, destination: str | None = None) -> int:
        """A link that sends to an address, or through it to a destination."""
        handle = next(self._handles)
        properties: dict[object, object] | None = None
        if destination is not None:
            properties = {Symbol(TRANSFER_DESTINATION): destination}
        attach = Attach(
            str(handle),
            handle,
            False,
            Source("here"),
            Target(address),
            initial_delivery_count=0,
            properties=properties,
        )
        return self._attach(attach)

    def receiver(self, address: str, credit: int = 0) -> int:
        handle = next(self._handles)
        attach = Attach(
            str(handle), handle, True, Source(address), Target("here"), snd_settle_mode=1, rcv_settle_mode=0
        )
        self._attach(attach)
        if credit:
            self._send(Flow(self._incoming, WINDOW, 0, WINDOW, handle, 0, credit))
        return handle

    def _attach(self, attach: Attach) -> int:
        self._send(attach)
        answer = self.wait("attach", lambda one: one.fields[0] == attach.name)
        if answer.fields[5 if attach.role else 6] is None:
            self.detached()
        return attach.handle

    def detached(self) -> None:
        """Waits until the bus detaches a link, and raises what it says."""
        raise Refused(_refusal(self.wait("detach").fields[2]))

    # Messages

    def send(self, handle: int) -> None:
        self._deliver(handle, text("x"))

    def _deliver(self, handle: int, payload: bytes) -> None:
        number = next(self._deliveries)
        self._stream.send(transfer_frames(handle, number, payload))
        answer = self.wait("disposition", lambda one: one.fields[0] is True and one.fields[1] == number)
        assert answer.fields[4].descriptor == ACCEPTED, answer

    def ask(self, path: str, operation: str, body: Any) -> None:
        """Asks an entity's management node."""
        node = f"{path}/$management"
        requests, replies = self.sender(node), self.receiver(node, 10)
        self._deliver(requests, message({"operation": f"com.microsoft:{operation}"}, body, "request", node))
        answer = self._reply(replies)
        if answer["statusCode"] == 401:
            raise Refused(answer["statusDescription"])
        assert answer["statusCode"] in (200, 204), answer

    def _reply(self, handle: int) -> dict[str, Any]:
        transfer = self.wait("transfer", lambda one: one.fields[0] == handle)
        found: dict[str, Any] = gather([transfer])[0].message.application_properties()  # type: ignore[assignment]
        return found


def _refusal(error: object) -> str:
    condition, description = error_of(error)
    assert condition == UNAUTHORIZED, (condition, description)
    return description
