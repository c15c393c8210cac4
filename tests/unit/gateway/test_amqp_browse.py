"""Links that only look, and links that want some messages only: browsing and selectors."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.amqp.codec import encode
from polybus.amqp.outcomes import ACCEPTED, Modified
from polybus.amqp.terminus import Source, Target
from polybus.amqp.types import Described, Symbol, Timestamp, UByte, ULong
from tests.unit.gateway.amqp_kit import Client, SimBus, text

SELECTOR = Symbol("apache.org:selector-filter:string")


@pytest.fixture(params=["q", "p"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sim(name: str) -> SimBus:
    sim = SimBus()
    sim.queue(name, enable_partitioning=name == "p", max_delivery_count=3)
    return sim


@pytest.fixture
def client(sim: SimBus) -> Client:
    return sim.client()


def numbered(client: Client, name: str, *numbers: int) -> None:
    sender = client.sender(name)
    for number in numbers:
        payload = text(str(number), application={"n": number}, subject="even" if number % 2 == 0 else "odd")
        assert client.outcome(sender, payload).descriptor == 0x24


def link(client: Client, name: str, credit: int, *, copy: bool = False, **options: Any) -> int:
    fields: list[object] = [None] * 11
    fields[6] = Symbol("copy") if copy else None
    selector = options.pop("selector", None)
    filters: dict[object, object] | None = None
    if selector is not None:
        filters = {Symbol("jms-selector"): Described(ULong(0x468C00000004), selector)}
    modes = {"snd_settle_mode": options.get("snd_settle_mode", 0), "rcv_settle_mode": 0}
    handle = client.attach(True, Source(name, filters, fields), Target("here"), **modes)
    client.expect_attached()
    client.flow(handle, credit)
    return handle


def sent(body: str, durable: bool, priority: int | None, created_ms: int) -> bytes:
    """A message as a JMS provider writes it: its header, and when it was made."""
    header = [durable, None if priority is None else UByte(priority)]
    fields: list[object] = [None] * 9
    properties = [*fields, Timestamp(created_ms)]
    return b"\x00\x53\x70" + encode(header) + b"\x00\x53\x73" + encode(properties) + text(body)


def active(sim: SimBus, name: str) -> int:
    return sim.namespace.entity(name).counts().result().active


def bodies(client: Client) -> list[bytes]:
    return sorted(body for got in client.deliveries() if isinstance(body := got.body, bytes))


class TestBrowsing:
    def test_looking_takes_nothing_and_counts_nothing(self, sim: SimBus, client: Client, name: str) -> None:
        numbered(client, name, *range(40))
        for mode in (0, 1, 2, 0):
            handle = link(client, name, 100, copy=True, snd_settle_mode=mode)
            got = client.deliveries()
            assert len(got) == 40
            assert {one.delivery_count for one in got} == {0}
            assert {one.settled for one in got} == {mode != 0}
            assert all("x-opt-locked-until" not in one.annotations for one in got)
            client.detach(handle)
            client.frames()
        assert active(sim, name) == 40
        client.receiver(name, 40)
        assert [got.delivery_count for got in client.deliveries()] == [0] * 40

    def test_what_is_decided_on_a_copy_has_no_effect(self, sim: SimBus, client: Client, name: str) -> None:
        numbered(client, name, 1)
        link(client, name, 10, copy=True)
        (got,) = client.deliveries()
        assert client.settle(got.id, ACCEPTED).descriptor == 0x24
        assert active(sim, name) == 1

    def test_credit_is_respected_and_nothing_is_skipped(self, client: Client, name: str) -> None:
        numbered(client, name, *range(10))
        handle = link(client, name, 3, copy=True, snd_settle_mode=1)
        found = bodies(client)
        assert len(found) == 3
        client.flow(handle, 50, delivery_count=3)
        found += bodies(client)
        assert sorted(found) == [str(number).encode() for number in range(10)]

    def test_what_arrives_later_is_shown_too(self, client: Client, name: str) -> None:
        link(client, name, 100, copy=True, snd_settle_mode=1)
        for number in range(20):
            sender = client.sender(name)
            client.transfer(sender, text(str(number)))
            assert bodies(client) == [str(number).encode()]

    def test_draining_ends_with_the_last_message(self, client: Client, name: str) -> None:
        numbered(client, name, 1, 2)
        handle = link(client, name, 0, copy=True, snd_settle_mode=1)
        client.frames()
        client.flow(handle, 10, drain=True)
        frames = client.frames()
        assert [one.name for one in frames] == ["transfer", "transfer", "flow"]
        assert (frames[2].fields[5], frames[2].fields[6]) == (10, 0)

    def test_locked_ones_are_shown_and_deferred_ones_not(self, client: Client, name: str) -> None:
        numbered(client, name, 1, 2)
        client.receiver(name, 1)
        (first,) = client.deliveries()
        client.receiver(name, 1)
        (second,) = client.deliveries()
        client.settle(second.id, Modified(False, True, None))
        link(client, name, 10, copy=True, snd_settle_mode=1)
        assert bodies(client) == [first.body]


class TestSelectors:
    def test_a_consumer_gets_what_it_selects_and_the_rest_stays(self, sim: SimBus, client: Client, name: str) -> None:
        numbered(client, name, 1, 2, 3, 2)
        link(client, name, 10, selector="n = 2")
        got = client.deliveries()
        assert [one.body for one in got] == [b"2", b"2"]
        for one in got:
            client.settle(one.id, ACCEPTED)
        assert active(sim, name) == 2
        client.receiver(name, 10)
        assert bodies(client) == [b"1", b"3"]

    def test_what_comes_later_and_what_comes_back(self, client: Client, name: str) -> None:
        link(client, name, 10, selector="n BETWEEN 2 AND 3")
        numbered_later = client.sender(name)
        for number in (1, 2, 3, 4):
            client.transfer(numbered_later, text(str(number), application={"n": number}))
        got = {one.body: one for one in client.deliveries()}
        assert set(got) == {b"2", b"3"}
        client.dispose(got[b"2"].id, Modified(True, False, None))
        (again,) = client.deliveries()
        assert (again.body, again.delivery_count) == (b"2", 1)

    def test_beside_others_who_take_anything(self, client: Client, name: str) -> None:
        selecting = link(client, name, 100, selector="n > 5")
        anything = client.receiver(name, 100)
        sender = client.sender(name)
        for number in range(10):
            client.transfer(sender, text(str(number), application={"n": number}))
        found: dict[int, set[object]] = {selecting: set(), anything: set()}
        for got in client.deliveries():
            found[got.handle].add(got.body)
        assert found[selecting] == {b"6", b"7", b"8", b"9"}
        assert len(found[anything]) == 6

    def test_removing_at_once(self, sim: SimBus, client: Client, name: str) -> None:
        numbered(client, name, 1, 2, 3, 2)
        link(client, name, 10, selector="n = 2", snd_settle_mode=1)
        assert bodies(client) == [b"2", b"2"]
        assert active(sim, name) == 2

    def test_draining_a_consumer_that_finds_nothing(self, client: Client, name: str) -> None:
        numbered(client, name, 1, 3)
        handle = link(client, name, 0, selector="n = 2")
        client.frames()
        client.flow(handle, 5, drain=True)
        assert [one.name for one in client.frames()] == ["flow"]

    def test_header_fields_of_jms(self, client: Client, name: str) -> None:
        numbered(client, name, 1, 2, 3)
        link(client, name, 10, selector="JMSType = 'even' AND NOT (JMSXDeliveryCount > 0)")
        assert bodies(client) == [b"2"]

    @pytest.mark.parametrize(
        ("selector", "wanted"),
        [
            ("JMSPriority > 4", [b"urgent"]),
            ("JMSPriority = 4", [b"usual", b"bare"]),
            ("JMSDeliveryMode = 'PERSISTENT'", [b"urgent"]),
            ("JMSDeliveryMode <> 'PERSISTENT'", [b"usual", b"bare"]),
            ("JMSTimestamp >= 2000", [b"usual"]),
            ("JMSTimestamp BETWEEN 500 AND 1500", [b"urgent"]),
            ("JMSTimestamp IS NULL", [b"bare"]),
        ],
    )
    def test_priority_delivery_mode_and_timestamp(
        self, client: Client, name: str, selector: str, wanted: list[bytes]
    ) -> None:
        sender = client.sender(name)
        for raw in (sent("urgent", True, 9, 1_000), sent("usual", False, None, 2_000), text("bare")):
            assert client.outcome(sender, raw).descriptor == 0x24
        link(client, name, 10, selector=selector)
        assert sorted(bodies(client)) == sorted(wanted)

    def test_browsing_with_a_selector(self, sim: SimBus, client: Client, name: str) -> None:
        numbered(client, name, *range(8))
        link(client, name, 10, copy=True, snd_settle_mode=1, selector="n IN (3, 5)")
        assert bodies(client) == [b"3", b"5"]
        assert active(sim, name) == 8

    def test_only_filters_in_force_are_echoed(self, client: Client, name: str) -> None:
        selector = Described(Symbol("apache.org:selector-filter:string"), "n = 2")
        filters: dict[object, object] = {
            Symbol("s"): selector,
            Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), []),
        }
        client.attach(True, Source(name, filters), Target("here"))
        assert client.expect_attached().fields[5].value[7] == {"s": selector}
        client.attach(True, Source(name, {Symbol("unknown"): "x"}), Target("here"))
        assert client.expect_attached().fields[5].value[7] is None

    @pytest.mark.parametrize("selector", ["n =", "JMSReplyTo = 'q'", "n BETWEEN 1", "n = 'x", 5])
    def test_one_that_cannot_be_read_is_refused(self, client: Client, name: str, selector: object) -> None:
        client.attach(True, Source(name, {SELECTOR: selector}), Target("here"))
        assert client.expect_refused()[0] == "com.microsoft:argument-error"

    def test_a_window_of_others_in_front(self, sim: SimBus, client: Client, name: str) -> None:
        """It is found when those in front have gone."""
        sim.bus.bounds.window_entries = 4
        sim.queue("small")
        numbered(client, "small", *range(10), 99)
        link(client, "small", 10, selector="n = 99")
        assert client.deliveries() == []
        client.receiver("small", 9, deletes=True)
        found = bodies(client)
        assert b"99" in found


def test_a_queue_with_sessions_can_be_looked_at() -> None:
    sim = SimBus()
    sim.queue("s", requires_session=True)
    client = sim.client()
    sender = client.sender("s")
    for session in ("a", "b"):
        client.outcome(sender, text(session, session_id=session))
    link(client, "s", 10, copy=True, snd_settle_mode=1)
    assert bodies(client) == [b"a", b"b"]
