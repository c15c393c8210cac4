"""How much memory an idle, authenticated connection costs: plain TCP, a session and a `$cbs` pair each."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

from bench.raw_client import KEY, KEY_NAME, RawClient
from polybus.amqp.codec import encode
from polybus.client.sas import make_token


def rss_kilobytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


async def _one(port: int) -> RawClient:
    client = await RawClient.connect(port)
    client.attach("cbs-out", True, "$cbs")
    handle = client.attach("cbs-in", False, "$cbs")
    await client.until(0x12, 2)
    await client.until(0x13)
    token = make_token("sb://localhost/", KEY_NAME, KEY, int(time.time()) + 3600)
    properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": "sb://localhost/q"}
    message = b"\x00\x53\x73" + encode(["1"]) + b"\x00\x53\x74" + encode(properties) + b"\x00\x53\x77" + encode(token)
    client.transfer(handle, message)
    await client.until(0x15)
    return client


WARM = 100
"""Connections before the first look: what they bring into memory is every server's, whatever comes after."""


async def open_idle_connections(port: int, pid: int, count: int) -> float:
    """Kilobytes of the server's memory for each connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count * 2 + 1000), hard))
    warm = [await _one(port) for _ in range(WARM)]
    before = rss_kilobytes(pid)
    clients: list[RawClient] = []
    while len(warm) + len(clients) < count:
        more = min(WARM, count - len(warm) - len(clients))
        clients += await asyncio.gather(*(_one(port) for _ in range(more)))
    grown = rss_kilobytes(pid) - before
    for client in warm + clients:
        await client.close()
    return grown / len(clients)
