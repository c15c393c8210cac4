"""What somebody does over AMQP who has a key: more is allowed, and nobody else may feel it."""

from __future__ import annotations

from polybus.amqp.codec import encode
from polybus.amqp.frames import frame
from polybus.amqp.outcomes import ACCEPTED
from polybus.amqp.performatives import Attach, Begin
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Disposition, Transfer
from polybus.amqp.types import Symbol
from polybus.limits import AMQP_BATCH_MESSAGES, LOOP_STEP_MS
from polybus.message.message import build
from tests.support.siege.attack import MB, Attack, Scene
from tests.support.siege.peer import Peer, request

BATCH_FORMAT = 0x80013700
SMALL = build(b"x").raw


def _sender(peer: Peer, address: str = "victim") -> None:
    peer.begin()
    peer.attach_sender(address)
    peer.until("flow")


def _drain(peer: Peer, numbers: int = 1) -> None:
    for _ in range(numbers):
        if peer.until("disposition", seconds=2) is None:
            return


def small_messages(scene: Scene) -> None:
    with scene.known() as peer:
        _sender(peer)
        one = [frame(0, Transfer(0, n, n.to_bytes(4, "big"), 0, True), payload=SMALL) for n in range(5_000)]
        peer.send(b"".join(one))


def message_of_properties(scene: Scene) -> None:
    raw = b"\x00\x53\x74" + encode({f"p{n}": n for n in range(4_000)}) + b"\x00\x53\x75\xa0\x01x"
    with scene.known() as peer:
        _sender(peer)
        for number in range(10):
            peer.transfer(raw, number=number)
        _drain(peer)


def message_of_sections(scene: Scene) -> None:
    with scene.known() as peer:
        _sender(peer)
        for number in range(5):
            peer.transfer(b"\x00\x53\x75\xa0\x01x" * 4_000, number=number)
        _drain(peer)


def message_annotations(scene: Scene) -> None:
    raw = b"\x00\x53\x72" + encode({Symbol(f"x-{n}"): n for n in range(5_000)}) + b"\x00\x53\x75\xa0\x01x"
    with scene.known() as peer:
        _sender(peer)
        for number in range(5):
            peer.transfer(raw, number=number)
        _drain(peer)


def batch(scene: Scene) -> None:
    one = b"\x00\x53\x75\xa0" + bytes((len(SMALL),)) + SMALL
    with scene.known() as peer:
        _sender(peer)
        payload = one * AMQP_BATCH_MESSAGES
        for place in range(0, len(payload), 60_000):
            part = payload[place : place + 60_000]
            peer.say(Transfer(0, 0, b"t", BATCH_FORMAT, False, place + 60_000 < len(payload)), payload=part)
        _drain(peer)


def likes(scene: Scene) -> None:
    raw = b"\x00\x53\x74" + encode({"p": "a" * 31_000}) + b"\x00\x53\x75\xa0\x01x"
    with scene.known() as peer:
        _sender(peer, "likes")
        for number in range(5):
            peer.transfer(raw, number=number)
        _drain(peer, 2)


def _manage(scene: Scene, operation: str, body: object, times: int = 5) -> None:
    with scene.known() as peer:
        peer.begin()
        peer.attach_sender("victim/$management")
        peer.attach_receiver("victim/$management")
        peer.credit(1, 100)
        for number in range(times):
            peer.transfer(request({"operation": f"com.microsoft:{operation}"}, body), number=number)
        peer.until("transfer", seconds=2)


def peeks(scene: Scene) -> None:
    _manage(scene, "peek-message", {"from-sequence-number": 0, "message-count": 1_000_000}, 50)


def lock_tokens(scene: Scene) -> None:
    _manage(scene, "renew-lock", {"lock-tokens": [b"x" * 16] * 4_000})


def sequence_numbers(scene: Scene) -> None:
    _manage(scene, "receive-by-sequence-number", {"sequence-numbers": list(range(4_000)), "receiver-settle-mode": 1})


def schedules(scene: Scene) -> None:
    messages = [{"message-id": str(n), "message": SMALL} for n in range(2_000)]
    _manage(scene, "schedule-message", {"messages": messages}, 2)


def session_state(scene: Scene) -> None:
    _manage(scene, "set-session-state", {"session-id": "s", "session-state": b"x" * 200_000}, 5)


def rule_texts(scene: Scene) -> None:
    text = "(" * 500 + "1=1" + ")" * 500
    rule = {"rule-name": "r", "rule-description": {"sql-filter": {"expression": text}}}
    with scene.known() as peer:
        node = "likes/Subscriptions/all/$management"
        peer.begin()
        peer.attach_sender(node)
        peer.attach_receiver(node)
        peer.credit(1, 100)
        for number in range(20):
            peer.transfer(request({"operation": "com.microsoft:add-rule"}, rule), number=number)
        peer.until("transfer", seconds=2)


def many_receivers(scene: Scene) -> None:
    with scene.known() as peer:
        for channel in range(4):
            peer.begin(channel)
            one = [frame(channel, Attach(f"r{n}", n, True, Source("empty"), Target("x"))) for n in range(250)]
            peer.send(b"".join(one))
        peer.until("close", seconds=0.3)


def many_sessions(scene: Scene) -> None:
    with scene.known() as peer:
        peer.send(b"".join(frame(channel, Begin(0, 100, 100)) for channel in range(4_900)))
        peer.until("close", seconds=0.5)


def a_range_of_thousands(scene: Scene) -> None:
    """Thousands of messages are taken, and settled with one disposition."""
    with scene.known() as peer:
        peer.begin(window=10_000)
        peer.attach_receiver("full", 0)
        peer.credit(0, 3_000, window=10_000)
        first = last = None
        for _ in range(3_000):
            got = peer.until("transfer", seconds=2)
            if got is None:
                break
            first = got.fields[1] if first is None else first
            last = got.fields[1]
        if first is not None:
            peer.say(Disposition(True, first, last, False, ACCEPTED))
            peer.until("disposition", seconds=2)


def taken_and_gone(scene: Scene) -> None:
    """A receiver that takes much and is gone without a word."""
    with scene.known() as peer:
        peer.begin(window=10_000)
        peer.attach_receiver("full", 0)
        peer.credit(0, 2_000, window=10_000)
        peer.until("transfer", seconds=2)


def transactions(scene: Scene) -> None:
    with scene.known() as peer:
        peer.begin()
        peer.say(Attach("c", 0, False, Source("here"), Coordinator(), initial_delivery_count=0))
        peer.until("flow")
        declare = b"\x00\x53\x77\x00\x53\x31\x45"
        peer.send(b"".join(frame(0, Transfer(0, n, n.to_bytes(4, "big"), 0), payload=declare) for n in range(1_000)))
        _drain(peer)


def unread_messages(scene: Scene) -> None:
    with Peer(scene.amqp, known=True, buffer=4_096) as peer:
        peer.begin(window=100_000)
        peer.attach_receiver("full", 0)
        peer.credit(0, 100_000, window=100_000)
        peer.attach_receiver("$cbs", 1)


ATTACKS = [
    Attack("5,000 messages in one go", small_messages, known=True),
    Attack("messages of 4,000 properties", message_of_properties, known=True),
    Attack("messages of 4,000 sections", message_of_sections, known=True),
    Attack("messages of 5,000 annotations", message_annotations, known=True),
    Attack("a batch of thousands", batch, known=True, step_ms=1.5 * LOOP_STEP_MS),
    Attack("2,000 LIKE rules and a property of 31 KB", likes, known=True),
    Attack("peeks of a million", peeks, known=True, bytes=64 * MB),
    Attack("4,000 lock tokens", lock_tokens, known=True),
    Attack("4,000 sequence numbers", sequence_numbers, known=True),
    Attack("2,000 scheduled at once", schedules, known=True, step_ms=1.5 * LOOP_STEP_MS),
    Attack("states of sessions of 200 KB", session_state, known=True),
    Attack("rules 500 deep", rule_texts, known=True),
    Attack("1,000 receivers", many_receivers, known=True),
    Attack("4,900 sessions", many_sessions, known=True, bytes=64 * MB),
    Attack("one disposition for thousands", a_range_of_thousands, known=True),
    Attack("a receiver that vanishes", taken_and_gone, known=True),
    Attack("1,000 transactions", transactions, known=True),
    Attack("messages that nobody reads", unread_messages, known=True),
]
