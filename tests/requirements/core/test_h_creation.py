"""H: the way to create a partitioned entity that needs no network: a file of declared entities."""

from __future__ import annotations

import json

import pytest

from polybus.errors import ArgumentError
from polybus.gateway.config.file import load
from polybus.gateway.config.model import ConfigFile
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


@pytest.mark.parametrize("element", ["EnablePartitioning", "RequiresSession", "RequiresDuplicateDetection"])
@pytest.mark.parametrize("declared", [True, False])
def test_h5_a_file_that_contradicts_what_cannot_be_changed_is_refused(
    core: CoreBus, element: str, declared: bool
) -> None:
    """Plain where the file says partitioned: to keep it silently would be another bus than the file describes."""
    core.bus.tier = STANDARD
    core.do(provision(core.bus, declaring({element: not declared})))
    core.sent("by-file", "kept", session_id="s")
    core.do(provision(core.bus, declaring({element: not declared, "MaxDeliveryCount": 7})))
    with pytest.raises(ArgumentError, match=f"'by-file' exists with another {element}"):
        core.do(provision(core.bus, declaring({element: declared})))
    assert core.bodies("by-file") == ["kept"]
    described = core.namespace.entity("by-file").description
    assert isinstance(described, QueueDescription)
    assert described.max_delivery_count == 3, "what may differ is kept"


def test_h5_a_file_that_declares_a_topic_where_there_is_a_queue_is_refused(core: CoreBus) -> None:
    core.bus.tier = STANDARD
    core.do(provision(core.bus, declaring({})))
    topic = {"Name": "sim", "Topics": [{"Name": "by-file", "Subscriptions": [{"Name": "sub"}]}]}
    with pytest.raises(ArgumentError, match="cannot be turned into another entity"):
        core.do(provision(core.bus, load(json.dumps({"UserConfig": {"Namespaces": [topic]}}), "config.json")))


def declaring(properties: dict[str, object]) -> ConfigFile:
    namespace = {"Name": "sim", "Queues": [{"Name": "by-file", "Properties": properties}]}
    return load(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), "config.json")
