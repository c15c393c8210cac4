"""D1 to D6: transactions, by raw AMQP, for the Python SDK has none; over a kill of the whole bus, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.requirements.kit import PARTITIONS, Bus, Gate, keys_for
from tests.support.raw_amqp import RawClient

REFUSED = "amqp:not-allowed"


@pytest.fixture
def raw(bus: Bus) -> Iterator[RawClient]:
    with RawClient(bus.server.addresses["amqp"]) as client:
        yield client


def test_d1_every_message_carries_a_key(bus: Bus, gate: Gate, raw: RawClient) -> None:
    queue, detecting = bus.queue(), bus.queue(requires_duplicate_detection=True)
    transaction = raw.declare()
    sender = raw.sender(queue.name)
    assert raw.send(sender, transaction, "x") == REFUSED
    assert raw.send(sender, transaction, "x", message_id="no key here") == REFUSED
    assert raw.send(raw.sender(detecting.name), transaction, "x", message_id="a key here") == "accepted"
    assert raw.commit(transaction)
    assert (sum(gate.totals(queue.name)), sum(gate.totals(detecting.name))) == (0, 1)


def test_d2_all_messages_have_the_same_key(bus: Bus, gate: Gate, raw: RawClient) -> None:
    """Keys are compared, not partitions: another key of the same partition is refused, too."""
    queue = bus.queue()
    one, twin = keys_for(4, 2)
    transaction, sender = raw.declare(), raw.sender(queue.name)
    assert raw.send(sender, transaction, "1", partition_key=one) == "accepted"
    assert raw.send(sender, transaction, "2", partition_key=twin) == REFUSED
    assert raw.send(sender, transaction, "3", partition_key=one) == "accepted"
    assert raw.commit(transaction)
    assert gate.totals(queue.name) == [2 if index == 4 else 0 for index in range(PARTITIONS)]


def test_d3_a_session_aware_entity_wants_a_session_id(bus: Bus, gate: Gate, raw: RawClient) -> None:
    queue = bus.queue(requires_session=True)
    transaction, sender = raw.declare(), raw.sender(queue.name)
    assert raw.send(sender, transaction, "x", partition_key="s") == REFUSED
    assert raw.send(sender, transaction, "x", session_id="s", partition_key="p") == REFUSED
    assert raw.send(sender, transaction, "x", session_id="s", partition_key="s") == "accepted"
    assert raw.send(sender, transaction, "x", session_id="s") == "accepted"
    assert raw.commit(transaction)
    assert sum(gate.totals(queue.name)) == 2


def test_d4_different_sessions_are_for_plain_entities(bus: Bus, gate: Gate, raw: RawClient) -> None:
    for partitioned, second in ((True, REFUSED), (False, "accepted")):
        queue = bus.queue(requires_session=True, enable_partitioning=partitioned)
        transaction, sender = raw.declare(), raw.sender(queue.name)
        assert raw.send(sender, transaction, "x", session_id="a") == "accepted"
        assert raw.send(sender, transaction, "x", session_id="b") == second
        assert raw.commit(transaction)
        assert sum(gate.totals(queue.name)) == (1 if partitioned else 2)


def test_d5_all_or_nothing_also_over_a_crash(bus: Bus, gate: Gate) -> None:
    """One transaction is committed, one rolled back, one is open when the bus is killed."""
    queue = bus.queue()
    key = keys_for(8)[0]
    with RawClient(bus.server.addresses["amqp"]) as raw:
        sender = raw.sender(queue.name)
        for end in (raw.commit, raw.roll_back, None):
            transaction = raw.declare()
            before = sum(gate.totals(queue.name))
            for number in range(5):
                assert raw.send(sender, transaction, f"{number}", partition_key=key) == "accepted"
            assert sum(gate.totals(queue.name)) == before, "nothing is seen before the commit"
            if end is not None:
                assert end(transaction)
        bus.server.restart(kill=True)
    assert gate.totals(queue.name) == [5 if index == 8 else 0 for index in range(PARTITIONS)]


def test_d6_rules_change_in_a_transaction_on_plain_topics_only(bus: Bus, raw: RawClient) -> None:
    add = {"rule-name": "more", "rule-description": {"sql-filter": {"expression": "1=1"}}}
    for partitioned in (True, False):
        name = bus.new_name()
        bus.admin.create_topic(name, enable_partitioning=partitioned)
        bus.admin.create_subscription(name, "sub")
        path = f"{name}/Subscriptions/sub"
        transaction = raw.declare()
        status, condition = raw.ask(path, "add-rule", add, transaction)
        assert (status, condition) == ((400, REFUSED) if partitioned else (200, None))
        assert raw.commit(transaction)
        assert len(list(bus.admin.list_rules(name, "sub"))) == (1 if partitioned else 2)
        if partitioned:
            assert raw.ask(path, "add-rule", add)[0] == 200
            assert raw.ask(path, "remove-rule", {"rule-name": "more"})[0] == 200
