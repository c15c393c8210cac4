"""The kept corpus and a slice of mutations of it, for every target: what fuzzing found once stays mended."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from polybus.cluster import verbs
from polybus.cluster.frames import Frame, greeting
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).resolve().parent / "corpus"
ROUNDS = 300
SEEDS: dict[str, list[bytes]] = {
    "http": [
        b"\x40GET /q HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x05POST /q/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"\xffPUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    ],
    "atom": [
        b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription'
        b' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><LockDuration>PT1M</LockDuration>'
        b"</QueueDescription></content></entry>",
        b"startswith(path,'a') eq true",
        b'{"a": [1, 2.5, null, "x"]}',
        b"t/Subscriptions/s/$DeadLetterQueue/messages/head",
    ],
    "tokens": [b"sr=http%3A%2F%2Fx%2Fq&sig=abc%3D&se=4000000000&skn=Root\nsb://host/q/$management"],
    "rules": [
        b"a LIKE '%_b%' AND b + 1 > 2 OR c IN (1, 2.5) AND EXISTS(d)\nabc",
        b"SET a = a + 'x'; REMOVE b; SET sys.label = newid()\nx",
    ],
    "jwt": [
        b'{"roles": ["Azure Service Bus Data Owner"], "sub": "x", "exp": 4000000000}',
        b'{"roles": {"a": 1}, "exp": "soon", "nbf": 1e400, "aud": ["x", 1]}',
        b"eyJhbGciOiJub25lIn0.e30.",
        b"eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.AAAA",
    ],
    "frames": [
        b"\x40" + Frame(1, 7, 3, 9, [1, b"x", "y", None, True, [1, 2]]).to_bytes(),
        b"\x03" + Frame(verbs.LAST, 7, 3, 0, [[b"\x00" * 80, b"\x00\x53\x75\xa0\x00", None]]).to_bytes(),
        b"\xff" + greeting() + Frame(2, 0, 0, 1, []).to_bytes() * 3,
    ],
    "codec": [b"\x00\x53\x10\xc0\x03\x01\xa1\x00"],
    "connection": [b"\x01\x10AMQP\x00\x01\x00\x00"],
}


def inputs_of(name: str) -> list[bytes]:
    kept = sorted((CORPUS / name).iterdir()) if (CORPUS / name).is_dir() else []
    return SEEDS[name] + [path.read_bytes() for path in kept]


def mutated(drawn: random.Random, data: bytes) -> bytes:
    """One input with something changed, cut out, doubled or put in."""
    for _ in range(drawn.randint(1, 4)):
        place = drawn.randint(0, len(data))
        end = min(place + drawn.randint(0, 12), len(data))
        middle = drawn.choice([b"", drawn.randbytes(3), data[place:end] * 3, b"(" * 40, b"%", b"\x00", b"\r\n"])
        data = data[:place] + middle + data[end:]
    return data[:4_096]


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_breaks_a_target(name: str) -> None:
    drawn = random.Random(7)
    known = inputs_of(name)
    for data in known:
        TARGETS[name](data)
    for _ in range(ROUNDS):
        TARGETS[name](mutated(drawn, drawn.choice(known)))
