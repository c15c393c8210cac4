"""A stop: clients hear of it, and one that says nothing is not waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from polybus import limits
from polybus.node import Node, NodeOptions
from tests.support.raw_amqp import RawClient


def test_a_client_that_is_silent_does_not_hold_up_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to be waited for as long as one with work in flight; the close is in its socket when it wakes."""
    monkeypatch.setattr(limits, "STOP_SECONDS", 3_600.0)
    monkeypatch.setattr(limits, "STOP_GOODBYE_SECONDS", 0.05)

    async def stopped() -> RawClient:
        node = Node(NodeOptions(tmp_path, amqp_port=0, http_port=0, tls_port=0, stores=["memory:0"]))
        await node.start()
        silent = await asyncio.to_thread(RawClient, "{}:{}".format(*node.addresses["amqp"]))
        await asyncio.wait_for(node.stop(), 60)
        return silent

    with asyncio.run(stopped()) as silent:
        assert silent.wait("close").fields[0].value[0] == "amqp:connection:forced"
