"""A disk that users have switched to full stays full, whatever the node's own look at the disks finds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from polybus.client.sas import make_token
from polybus.node import EMULATOR_KEY, Node, NodeOptions


@pytest.mark.parametrize("store", ["memory:", "rocksdb"])
@pytest.mark.parametrize("reserve_only", [True, False])
def test_the_nodes_own_look_does_not_undo_the_switch(tmp_path: Path, store: str, reserve_only: bool) -> None:
    url = store if store == "memory:" else f"rocksdb:{tmp_path / 'store'}"
    options = NodeOptions(tmp_path / "data", [url], amqp_port=0, http_port=None, tls_port=None)
    asyncio.run(_fill_and_heal(Node(options), reserve_only))


async def _fill_and_heal(node: Node, reserve_only: bool) -> None:
    await node.start()
    host, port = node.addresses["http"]
    key = EMULATOR_KEY.primary_key
    token = make_token(f"http://{host}", EMULATOR_KEY.key_name, key, int(time.time()) + 600)
    base = {"base_url": f"http://{host}:{port}", "headers": {"Authorization": token}}
    async with httpx.AsyncClient(**base, timeout=30) as http:  # type: ignore[arg-type]
        description = "<entry xmlns='http://www.w3.org/2005/Atom'><content><QueueDescription/></content></entry>"
        assert (await http.put("/q", content=description)).status_code == 201
        assert (await http.post("/q/messages", content="kept")).status_code == 201
        await http.post("/$polybus/faults/stores/0/full", json={"reserve_only": reserve_only})
        for _ in range(2):
            await node.look_at_disks()
            assert (await http.post("/q/messages", content="x")).status_code == 403
        if reserve_only:
            assert (await http.delete("/q/messages/head?timeout=0")).text == "kept"
        await http.post("/$polybus/faults/heal")
        await node.look_at_disks()
        assert (await http.post("/q/messages", content="x")).status_code == 201
    await node.stop()
