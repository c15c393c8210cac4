"""A bus in virtual time and a raw AMQP client for it: frames in, frames out, no socket and no thread."""

from __future__ import annotations

import itertools
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

from polybus.amqp.codec import decode, encode
from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.outcomes import Declare, DeliveryState, Discharge
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open, Performative
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.amqp.types import Described, Symbol
from polybus.client.sas import make_token
from polybus.gateway.amqp.endpoint import AmqpEndpoint
from polybus.gateway.gateway import Gateway
from polybus.message.message import Message, build
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.promise import spawn
from tests.protocol.peer import Frame, parse
from tests.support.assembly import MemoryOpener, assembled
from tests.support.sim_loop import SimClock, SimLoop

T = TypeVar("T")

ROOT = AuthorizationRule(
    key_name="root",
    rights=(AccessRight.MANAGE, AccessRight.SEND, AccessRight.LISTEN),
    primary_key="root key",
    secondary_key="other key",
)
SENDER = AuthorizationRule(key_name="sender", rights=(AccessRight.SEND,), primary_key="send key", secondary_key="")
LISTENER = AuthorizationRule(
    key_name="listener", rights=(AccessRight.LISTEN,), primary_key="listen key", secondary_key=""
)
KEYS = {rule.key_name: rule.primary_key for rule in (ROOT, SENDER, LISTENER)}


FRAME_PAYLOAD = 60_000


class SimBus:
    """A bus with four memory stores, one namespace and a gateway, in virtual time."""

    def __init__(self, tier: Tier = STANDARD, seed: int = 1) -> None:
        self.loop = SimLoop(seed)
        self.clock = SimClock(self.loop)
        stores = {f"memory:{n}": MemoryOpener(self.loop) for n in range(4)}
        self.bus = assembled(self.loop, self.clock, stores, MemoryOpener(self.loop), tier)
        self.wait(self.bus.start(["ns"]))
        self.namespace = self.bus.namespace("ns")
        self.gateway = Gateway(self.bus, [ROOT, SENDER, LISTENER])

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        promise = spawn(work)
        self.loop.run_for(0)
        assert promise.settled
        return promise.result()

    def queue(self, name: str = "q", **fields: Any) -> Entity:
        return self.wait(self.namespace.management.create(QueueDescription(path=name, **fields)))

    def topic(self, name: str = "t", *subscriptions: str, **fields: Any) -> Entity:
        entity = self.wait(self.namespace.management.create(TopicDescription(path=name, **fields)))
        for subscription in subscriptions:
            described = SubscriptionDescription(topic=name, name=subscription)
            self.wait(self.namespace.management.create_subscription(described))
        return entity

    def now_ms(self) -> int:
        return self.loop.time_us() // 1000

    def client(self, *rights: str, **options: Any) -> Client:
        """A client that is logged in with PLAIN, so that its rights never run out."""
        return Client(self, **options).login(*rights)


class FakeTransport:
    """Takes bytes, and can be told to be slow."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False
        self.aborted = False
        self.reading = True
        self.slow = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        assert not self.closed, "nothing is written after the close"
        self.written += data
        if self.slow:
            self.unsent += len(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Client:
    """One raw connection. Everything that came back since the last look is in `frames`."""

    def __init__(self, sim: SimBus, *, max_frame_size: int = 65536, window: int = 5000) -> None:
        self.sim = sim
        self.transport = FakeTransport()
        self.endpoint = AmqpEndpoint(sim.gateway, self.transport, sim.now_ms())
        self._read_to = 0
        self._frame_size = max_frame_size
        self._window = window
        self._ids = itertools.count()
        self._incoming: dict[int, int] = {}
        self._handles = itertools.count()

    # Bytes

    def run(self, seconds: float = 0) -> Client:
        """Lets time pass on the bus, ticking the endpoint when it is due."""
        end_ms = self.sim.now_ms() + int(seconds * 1000)
        while True:
            due_ms = self.endpoint.next_tick_ms
            if due_ms is None or due_ms > end_ms:
                break
            self.sim.loop.run_for(max(due_ms - self.sim.now_ms(), 0) / 1000)
            self.endpoint.tick(self.sim.now_ms())
        self.sim.loop.run_for(max(end_ms - self.sim.now_ms(), 0) / 1000)
        return self

    def feed(self, data: bytes) -> Client:
        self.endpoint.feed(data, self.sim.now_ms())
        return self.run()

    def send(self, performative: Performative, channel: int = 0, payload: bytes = b"") -> Client:
        return self.feed(frame(channel, performative, payload=payload))

    def read(self) -> list[Frame | bytes]:
        self.run()
        data = bytes(self.transport.written[self._read_to :])
        self._read_to = len(self.transport.written)
        found = parse(data)
        for one in found:
            if isinstance(one, Frame) and one.name == "begin":
                self._incoming[one.channel] = one.fields[1]
            elif isinstance(one, Frame) and one.name == "transfer":
                self._incoming[one.channel] += 1
        return found

    def frames(self, name: str | None = None) -> list[Frame]:
        return [one for one in self.read() if isinstance(one, Frame) and name in (None, one.name)]

    def one(self, name: str) -> Frame:
        found = self.frames()
        named = [one for one in found if one.name == name]
        assert len(named) == 1, found
        return named[0]

    # Connection

    def login(self, name: str = "root") -> Client:
        return self.sasl("PLAIN", b"\x00" + name.encode() + b"\x00" + KEYS[name].encode()).opened()

    def sasl(self, mechanism: str, response: bytes = b"") -> Client:
        return self.feed(SASL_HEADER).feed(frame(0, Init(mechanism, response), SASL_FRAME))

    def opened(self, hostname: str = "ns.example.com", product: str | None = None) -> Client:
        self.feed(AMQP_HEADER)
        properties: dict[object, object] | None = None if product is None else {Symbol("product"): product}
        self.send(Open("client", hostname, self._frame_size, properties=properties), 0)
        self.begin(0)
        self.read()
        return self

    def begin(self, channel: int) -> Client:
        return self.send(Begin(0, self._window, self._window), channel)

    def begun(self, channel: int) -> Client:
        self.begin(channel)
        self.read()
        return self

    def end(self, channel: int = 0) -> Client:
        return self.send(End(), channel)

    def close(self) -> Client:
        return self.send(Close(), 0)

    # Links

    def attach(
        self,
        role: bool,
        source: Source | None,
        target: Target | Coordinator | None,
        channel: int = 0,
        **fields: Any,
    ) -> int:
        handle = next(self._handles)
        fields.setdefault("initial_delivery_count", None if role else 0)
        self.send(Attach(f"link-{handle}", handle, role, source, target, **fields), channel)
        return handle

    def attach_receiver(self, address: str, channel: int = 0, *, deletes: bool = False, **fields: Any) -> int:
        modes = {"snd_settle_mode": 1 if deletes else 0, "rcv_settle_mode": 0 if deletes else 1}
        filters = fields.pop("filter", None)
        return self.attach(True, Source(address, filters), Target("here"), channel, **modes, **fields)

    def attach_sender(self, address: str, channel: int = 0, **fields: Any) -> int:
        return self.attach(False, Source("here"), Target(address), channel, **fields)

    def receiver(self, address: str, credit: int = 0, channel: int = 0, **options: Any) -> int:
        """A receiving link that was accepted."""
        handle = self.attach_receiver(address, channel, **options)
        self.expect_attached()
        if credit:
            self.flow(handle, credit, channel)
        return handle

    def sender(self, address: str, channel: int = 0, **options: Any) -> int:
        handle = self.attach_sender(address, channel, **options)
        self.expect_attached()
        return handle

    def coordinator(self, channel: int = 0) -> int:
        handle = self.attach(False, Source("here"), Coordinator(), channel)
        self.expect_attached()
        return handle

    def expect_attached(self) -> Frame:
        found = self.frames()
        kept = [one for one in found if one.name not in ("flow", "transfer")]
        assert [one.name for one in kept] == ["attach"], found
        return kept[0]

    def expect_refused(self) -> tuple[str, str]:
        """Condition and text of the refusal: attach without ends, then detach, in one breath."""
        found = self.frames()
        assert [one.name for one in found] == ["attach", "detach"], found
        assert found[0].fields[5] is None
        assert found[0].fields[6] is None
        assert found[1].fields[1] is True
        return error_of(found[1].fields[2])

    def detach(self, handle: int, channel: int = 0) -> Client:
        return self.send(Detach(handle, True), channel)

    def flow(
        self, handle: int, credit: int, channel: int = 0, *, delivery_count: int = 0, drain: bool = False
    ) -> Client:
        flow = self.flow_frame(handle, credit, channel, delivery_count=delivery_count, drain=drain)
        return self.send(flow, channel)

    def flow_frame(
        self, handle: int, credit: int, channel: int = 0, *, delivery_count: int = 0, drain: bool = False
    ) -> Flow:
        window, expected = self._window, self._incoming[channel]
        return Flow(expected, window, 0, window, handle, delivery_count, credit, drain=drain)

    # Messages

    def transfer(
        self,
        handle: int,
        payload: bytes,
        channel: int = 0,
        *,
        settled: bool = False,
        state: DeliveryState | None = None,
        message_format: int = 0,
    ) -> int:
        """Sends one message, in as many frames as it takes; gives its delivery-id."""
        number = next(self._ids)
        self.feed(transfer_frames(handle, number, payload, channel, message_format, settled, state))
        return number

    def outcome(self, handle: int, payload: bytes, channel: int = 0, **options: Any) -> Described:
        """Sends one message and gives what became of it."""
        number = self.transfer(handle, payload, channel, **options)
        answers = [one for one in self.frames("disposition") if one.fields[1] == number]
        assert len(answers) == 1
        assert answers[0].fields[0] is True
        assert answers[0].fields[3] is True
        state = answers[0].fields[4]
        assert isinstance(state, Described)
        return state

    def dispose(
        self, delivery_id: int, state: DeliveryState | None, channel: int = 0, *, settled: bool = False
    ) -> Client:
        return self.send(Disposition(True, delivery_id, None, settled, state), channel)

    def settle(self, delivery_id: int, state: DeliveryState, channel: int = 0) -> Described:
        """Decides on a delivery and gives the bus's answer."""
        self.dispose(delivery_id, state, channel)
        answers = [one for one in self.frames("disposition") if one.fields[0] is False]
        assert len(answers) == 1
        assert answers[0].fields[1] == answers[0].fields[2] == delivery_id
        found = answers[0].fields[4]
        assert isinstance(found, Described)
        assert answers[0].fields[3] is (found.descriptor != 0x34), "inside a transaction nothing is settled yet"
        return found

    def deliveries(self) -> list[Got]:
        """Messages that came since the last look, put together from their frames."""
        return gather(self.frames("transfer"))

    # Transactions

    def declare(self, handle: int, channel: int = 0) -> bytes:
        state = self.outcome(handle, value(Declare().described()), channel)
        assert state.descriptor == 0x33, state
        txn_id: bytes = state.value[0]  # type: ignore[index]
        return txn_id

    def discharge(self, handle: int, txn_id: bytes, fail: bool = False, channel: int = 0) -> Described:
        return self.outcome(handle, value(Discharge(txn_id, fail).described()), channel)

    # Requests

    def put_token(
        self, audience: str = "sb://ns.example.com/", key: str = "root", seconds: int = 3600, **options: Any
    ) -> tuple[int, str]:
        token = options.get("token") or make_token(
            options.get("resource", audience), key, options.get("secret", KEYS[key]), int(time.time()) + seconds
        )
        requests, replies = self.attach_sender("$cbs"), self.attach_receiver("$cbs")
        self.flow(replies, 100)
        application = {"operation": "put-token", "type": options.get("type", "jwt"), "name": audience}
        self.frames()
        self.transfer(requests, message(application, token, UUID(int=7)))
        got = self.deliveries()
        assert len(got) == 1
        reply = got[0].message
        assert reply.properties()[5] == UUID(int=7)
        self.detach(requests).detach(replies)
        self.frames()
        answer = reply.application_properties()
        return answer["status-code"], answer["status-description"]  # type: ignore[return-value]

    def management(self, address: str, channel: int = 0) -> ManagementPair:
        return ManagementPair(self, address, channel)


class Got:
    """One message that was delivered."""

    def __init__(self, first: Frame, payload: bytes) -> None:
        self.handle: int = first.fields[0]
        self.id: int = first.fields[1]
        self.tag: bytes = first.fields[2]
        self.settled: bool = first.fields[4]
        self.message = Message(payload)

    @property
    def token(self) -> UUID:
        return UUID(bytes_le=self.tag)

    @property
    def body(self) -> object:
        return self.message.body()[0][1]

    @property
    def annotations(self) -> dict[str, Any]:
        return {str(key): value for key, value in self.message.annotations().items()}

    @property
    def delivery_annotations(self) -> dict[str, Any]:
        found, _ = decode(self.message.raw, self.message.delivery_annotations_at)
        assert isinstance(found, dict)
        return {str(key): value for key, value in found.items()}

    @property
    def number(self) -> int:
        found: int = self.annotations["x-opt-sequence-number"]
        return found

    @property
    def delivery_count(self) -> int:
        header, _ = decode(self.message.raw, 3)
        count: int = header[4]  # type: ignore[index]
        return count


def gather(transfers: list[Frame]) -> list[Got]:
    found: list[Got] = []
    begun: dict[int, tuple[Frame, bytes]] = {}
    for one in transfers:
        handle = one.fields[0]
        first, payload = begun.pop(handle, (one, b""))
        payload += one.payload
        if one.fields[5]:
            begun[handle] = (first, payload)
        else:
            found.append(Got(first, payload))
    assert not begun, "a delivery is not whole"
    return found


class Reply:
    def __init__(self, got: Got) -> None:
        assert got.settled
        self.message = got.message
        self.application = got.message.application_properties()
        self.status = self.application["statusCode"]
        self.condition = self.application.get("errorCondition")
        body = got.body
        assert isinstance(body, dict)
        self.body: dict[Any, Any] = body


class ManagementPair:
    """A request link and a reply link of one entity's management."""

    def __init__(self, client: Client, address: str, channel: int) -> None:
        self.client = client
        self.channel = channel
        self.path = f"{address}/$management"
        self.requests = client.sender(self.path, channel)
        self.replies = client.receiver(self.path, 1000, channel)
        client.frames()

    def ask(self, operation: str, body: Any = None, *, state: DeliveryState | None = None, **extra: Any) -> Reply:
        application = {"operation": f"com.microsoft:{operation}", **extra}
        payload = message(application, body, "request-1", self.path)
        self.client.transfer(self.requests, payload, self.channel, state=state)
        found = self.client.frames()
        answers = [one for one in found if one.name == "disposition"]
        assert len(answers) == 1
        assert answers[0].fields[4].descriptor == (0x24 if state is None else 0x34)
        got = gather([one for one in found if one.name == "transfer"])
        assert len(got) == 1, found
        assert got[0].handle == self.replies
        assert got[0].message.properties()[5] == "request-1"
        return Reply(got[0])


def transfer_frames(
    handle: int,
    number: int,
    payload: bytes,
    channel: int = 0,
    message_format: int = 0,
    settled: bool = False,
    state: DeliveryState | None = None,
) -> bytes:
    frames = []
    for place in range(0, max(len(payload), 1), FRAME_PAYLOAD):
        more = place + FRAME_PAYLOAD < len(payload)
        tag = number.to_bytes(4, "big")
        transfer = Transfer(handle, number, tag, message_format, settled, more, state)
        frames.append(frame(channel, transfer, payload=payload[place : place + FRAME_PAYLOAD]))
    return b"".join(frames)


def with_id(message_id: str, body: bytes = b"x") -> bytes:
    """A message whose id is taken as it is, however long."""
    return b"\x00\x53\x73" + encode([message_id]) + b"\x00\x53\x75" + encode(body)


def message(
    application: dict[str, object], body: object, message_id: object = None, reply_to: str | None = None
) -> bytes:
    fields: list[object] = [None] * 13
    fields[0], fields[4] = message_id, reply_to
    return b"\x00\x53\x73" + encode(fields) + b"\x00\x53\x74" + encode(application) + value(body)


def value(body: object) -> bytes:
    return b"\x00\x53\x77" + encode(body)


def text(body: str = "x", **fields: Any) -> bytes:
    return build(body.encode(), **fields).raw


def error_of(described: object) -> tuple[str, str]:
    """Condition and text of an error, which must have its three fields."""
    assert isinstance(described, Described)
    assert described.descriptor == 0x1D
    fields = described.value
    assert isinstance(fields, list)
    assert len(fields) == 3
    return fields[0], fields[1]


def rejection(state: Described) -> tuple[str, str]:
    assert state.descriptor == 0x25, state
    return error_of(state.value[0])  # type: ignore[index]
