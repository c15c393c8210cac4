"""H: the way to create a partitioned entity that needs no network: a file of declared entities."""

from __future__ import annotations

import json

from polybus.gateway.config.file import load
from polybus.namespace.entities.description import QueueDescription
from polybus.namespace.entities.tiers import STANDARD
from polybus.promise import spawn
from polybus.provisioning import provision
from tests.requirements.core.core_bus import PARTITIONS, CoreBus


def test_h5_a_file_declares_entities_and_a_restart_keeps_what_is_there(core: CoreBus) -> None:
    partitioned = {"EnablePartitioning": True}
    queue = {"Name": "by-file", "Properties": partitioned}
    forwards = {"Name": "onward", "Properties": {"ForwardTo": "by-file"}}
    topic = {"Name": "topic-by-file", "Properties": partitioned, "Subscriptions": [{"Name": "sub"}]}
    namespace = {"Name": "sim", "Queues": [forwards, queue], "Topics": [topic]}
    config = load(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), "config.json")
    core.bus.tier = STANDARD
    core.do(provision(core.bus, config))
    core.sent("onward", "moved")
    core.restart()
    core.do(provision(core.bus, config))
    core.run(2)
    assert core.bodies("by-file") == ["moved"]
    assert {name: len(core.namespace.entity(name).partitions) for name in ("by-file", "onward", "topic-by-file")} == {
        "by-file": PARTITIONS,
        "onward": 1,
        "topic-by-file": PARTITIONS,
    }
    assert "sub" in core.namespace.entity("topic-by-file").subscriptions


def test_h5_what_a_crash_has_interrupted_is_completed_at_the_next_start(core: CoreBus) -> None:
    queues = [
        {"Name": "onward", "Properties": {"ForwardTo": "last", "ForwardDeadLetteredMessagesTo": "topic"}},
        {"Name": "last", "Properties": {}},
    ]
    namespace = {"Name": "sim", "Queues": queues, "Topics": [{"Name": "topic", "Subscriptions": [{"Name": "sub"}]}]}
    config = load(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), "config.json")
    for entities in range(1, 4):
        spawn(provision(core.bus, config))
        assert core.world.run_until(lambda count=entities: len(core.namespace.entities) >= count, 1.0, 0.0005)
        core.restart()
    core.do(provision(core.bus, config))
    described = core.namespace.entity("onward").description
    assert isinstance(described, QueueDescription)
    assert (described.forward_to, described.forward_dead_lettered_messages_to) == ("last", "topic")
    core.sent("onward", "moved")
    core.run(2)
    assert core.bodies("last") == ["moved"]
    assert "sub" in core.namespace.entity("topic").subscriptions
