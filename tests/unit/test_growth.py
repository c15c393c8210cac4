"""Every input that grows: twice as much of it is at most about twice the work, never four times.

Work is counted in lines and calls that Python executes, not in time, so that a busy machine does not matter. What a
built-in does in C is not seen by that; those are timed at their largest against the step of the loop.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from polybus.amqp.codec import decode, encode
from polybus.amqp.connection import Connection, ConnectionConfig
from polybus.amqp.frames import AMQP_HEADER, frame
from polybus.amqp.performatives import Attach, Begin, Open
from polybus.amqp.terminus import Source, Target
from polybus.amqp.traffic import Flow
from polybus.client.sas import make_token
from polybus.cluster import verbs
from polybus.cluster.frames import Frame, FrameReader, greeting
from polybus.errors import PolybusError
from polybus.gateway.amqp.sent_messages import batch_messages
from polybus.gateway.atom.filter import parse_filter
from polybus.gateway.atom.parse import parse_entity
from polybus.gateway.http.properties import broker_properties, custom_properties, parse_json
from polybus.gateway.http.request import _query
from polybus.gateway.sas import KeyRing, authorize, parse_token, scope_of
from polybus.limits import LOOP_STEP_MS
from polybus.message.message import Message, build
from polybus.message.rendering import Marks, render
from polybus.namespace.entities.names import check_entity_path, parse_address, parse_http_path
from polybus.namespace.entities.network_rules import NetworkRules
from polybus.rules import CorrelationFilter, Rule, SqlAction, SqlFilter, TopicRules

FACTOR = 2.6
"""Twice the input may be that much more work: constant parts, tables that grow."""
STEP_S = 5 * LOOP_STEP_MS / 1000
"""With room for a machine that others use."""


def _fed(*frames: bytes) -> None:
    connection = Connection(ConnectionConfig("polybus"), 0)
    connection.known = True
    connection.feed(AMQP_HEADER + frame(0, Open("c")), 0)
    connection.feed(b"".join(frames), 0)
    while connection.unread:
        connection.feed(b"", 0)
    connection.output()


class _View:
    def __init__(self, user: dict[str, Any]) -> None:
        self._user = user

    def system(self, name: str) -> Any:
        del name

    def user(self) -> dict[str, Any]:
        return self._user


def _rules(many: int) -> TopicRules:
    topic = TopicRules()
    for number in range(many):
        topic.add(number, Rule("r", SqlFilter(f"a = {number} AND b LIKE 'x%'"), None, 0))
        topic.add(number, Rule("c", CorrelationFilter(properties={"a": number}), None, 0))
    return topic


def _token(resource: str) -> str:
    return make_token(resource, "root", "key", 4_000_000_000)


def _batch(many: int) -> bytes:
    raw = build(b"x").raw
    return (b"\x00\x53\x75\xa0" + bytes((len(raw),)) + raw) * many


def _link_frames(many: int) -> bytes:
    return greeting() + Frame(1, 1, 1, 1, [1, b"x", "y"]).to_bytes() * many


def take_link_frames(raw: bytes) -> object:
    return FrameReader(verbs.LAST).feed(raw)


def _headers(many: int) -> list[tuple[str, bytes]]:
    return [(f"P{number}", b'"text"') for number in range(many)]


def _reply(many: int) -> Callable[[], object]:
    """A reply with so many messages, as a peek gives them."""
    message = build(b"x", application={"a": "b"})
    return lambda: encode({"messages": [bytes(render(message, Marks(number, 1))) for number in range(many)]})


INPUTS: dict[str, tuple[int, Callable[[int], Callable[[], object]]]] = {
    "an audience": (200, lambda n: lambda: scope_of("a/" * n)),
    "a token's scope": (200, lambda n: lambda: authorize(parse_token(_token("q")), "a/" * n, 0.0, KeyRing())),
    "a token's resource": (200, lambda n: lambda: authorize(parse_token(_token("a/" * n)), "q", 0.0, KeyRing())),
    "fields of a token": (4, lambda n: lambda: parse_token("SharedAccessSignature " + "a=b&" * n)),
    "an entity's name": (20, lambda n: lambda: check_entity_path("a/" * n + "a")),
    "a batch over AMQP": (200, lambda n: (lambda raw: lambda: batch_messages(raw))(_batch(n))),
    "a batch in JSON": (
        200,
        lambda n: (lambda raw: lambda: parse_json(raw, "batch"))('[{"Body":"x"}' + ',{"Body":"x"}' * n + "]"),
    ),
    "headers": (40, lambda n: (lambda given: lambda: custom_properties(given))(_headers(n))),
    "a query": (10, lambda n: lambda: _query("&".join(f"a{i}=b" for i in range(n)))),
    "broker properties": (40, lambda n: lambda: broker_properties(json.dumps({f"p{i}": i for i in range(n)}))),
    "replies": (200, lambda n: _reply(n)),
    "IP rules": (
        15,
        lambda n: lambda: NetworkRules(tuple(f"10.{i}.0.0/16" for i in range(n)), True).allow("1.2.3.4"),
    ),
    "frames between nodes": (200, lambda n: (lambda raw: lambda: take_link_frames(raw))(_link_frames(n))),
    "an address": (60, lambda n: lambda: parse_address("a/" * n)),
    "a path": (60, lambda n: lambda: parse_http_path("/" + "a/" * n)),
    "a $filter": (100, lambda n: lambda: parse_filter("startswith(path,'" + "a" * n + "') eq true")),
    "a document": (200, lambda n: lambda: parse_entity(b"<entry>" + b"<a/>" * n + b"</entry>", "q")),
    "a map": (500, lambda n: (lambda raw: lambda: decode(raw, 0))(encode({str(i): i for i in range(n)}))),
    "a list": (500, lambda n: (lambda raw: lambda: decode(raw, 0))(encode(list(range(n))))),
    "nested lists": (15, lambda n: (lambda raw: lambda: decode(raw, 0))(_nested(n))),
    "properties": (500, lambda n: (lambda raw: lambda: Message(raw).application_properties())(_properties(n))),
    "sections": (500, lambda n: lambda: Message(b"\x00\x53\x75\xa0\x01x" * n).body()),
    "sessions": (100, lambda n: lambda: _fed(*(frame(c, Begin(0, 9, 9)) for c in range(1, n + 1)))),
    "links": (60, lambda n: lambda: _fed(frame(1, Begin(0, 9, 9)), *(_attach(h) for h in range(n)))),
    "flows": (200, lambda n: lambda: _fed(frame(1, Begin(0, 9, 9)), *[frame(1, Flow(None, 9, 0, 9))] * n)),
    "a filter": (40, lambda n: lambda: SqlFilter(" OR ".join(["a = 1"] * n))),
    "an action": (8, lambda n: lambda: SqlAction("; ".join(["SET a = 1"] * n))),
    "rules": (200, lambda n: (lambda topic: lambda: topic.match(_View({"a": -1, "b": "y"})))(_rules(n))),
    "a property under LIKE": (
        2_000,
        lambda n: (lambda asked: lambda: asked.matches(_View({"b": "a" * n})))(SqlFilter("b LIKE '%_x_y%'")),
    ),
}


def _nested(depth: int) -> bytes:
    value: object = None
    for _ in range(depth):
        value = [value]
    return encode(value)


def _properties(many: int) -> bytes:
    return b"\x00\x53\x74" + encode({f"p{number}": number for number in range(many)})


def _attach(handle: int) -> bytes:
    return frame(1, Attach(f"l{handle}", handle, True, Source("q"), Target("x")))


def work(do: Callable[[], object]) -> int:
    """Lines that Python executes for it."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        del frame, arg
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except PolybusError:
        pass
    finally:
        sys.settrace(before)
    return count


def test_every_kind_of_input_that_grows_is_here() -> None:
    kinds = (
        "name",
        "map",
        "path",
        "headers",
        "links",
        "sessions",
        "rules",
        "properties",
        "replies",
        "batch",
        "token",
    )
    assert [kind for kind in kinds if not any(kind in name for name in INPUTS)] == []


@pytest.mark.parametrize("name", INPUTS)
def test_twice_the_input_is_at_most_about_twice_the_work(name: str) -> None:
    size, make = INPUTS[name]
    once, twice = work(make(size)), work(make(2 * size))
    assert twice <= FACTOR * once + 50, (once, twice)


@pytest.mark.parametrize("name", INPUTS)
def test_the_largest_is_refused_or_done_within_a_step(name: str) -> None:
    size, make = INPUTS[name]
    assert min(cpu_s(make(8 * size)) for _ in range(3)) < STEP_S  # the least: the collector is not the input's doing


def cpu_s(do: Callable[[], object]) -> float:
    before_s = time.thread_time()
    with contextlib.suppress(PolybusError):
        do()
    return time.thread_time() - before_s
