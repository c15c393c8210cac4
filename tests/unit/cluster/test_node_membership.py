"""What a node takes for moving: from when the cluster's database says so until its partitions can be reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polybus.cluster.node_membership import NodeMembership
from polybus.limits import MOVE_HOLD_MS
from polybus.store.cluster_rows import ClusterView
from tests.support.sim_loop import SimLoop


def membership(loop: SimLoop) -> NodeMembership:
    heartbeat: Any = SimpleNamespace(name="a", lost=False, problem=None)
    made = NodeMembership(heartbeat, ["store"], loop, SimpleNamespace())  # type: ignore[arg-type]
    made.listener = SimpleNamespace(members_changed=lambda: None)  # type: ignore[assignment]
    return made


def test_a_store_that_has_just_moved_still_counts_as_moving_for_a_moment() -> None:
    """Its new owner says that the move is over when it has the store open; others reach its partitions a little later."""
    loop = SimLoop(0)
    nodes = membership(loop)
    nodes.seen(ClusterView((), moving="store", moving_to="b"))
    assert nodes.is_moving("store")
    nodes.seen(ClusterView(()))
    assert nodes.is_moving("store")
    loop.run_for(MOVE_HOLD_MS / 1000)
    assert not nodes.is_moving("store")
