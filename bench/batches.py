"""Sends in Azure's batch format and one by one, with the same messages, so that the server's cost can be compared."""

from __future__ import annotations

import asyncio

from bench.raw_client import BATCH_FORMAT, DISPOSITION, KEY, KEY_NAME, RawClient
from polybus.amqp.codec import encode
from polybus.message.message import build

BATCH = 100
WINDOW = 100
MESSAGE = build(b"b" * 1024, message_id="m").raw


def send_batches(port: int, queue: str, messages: int) -> None:
    payload = (b"\x00\x53\x75" + encode(MESSAGE)) * BATCH
    asyncio.run(_send(port, queue, payload, BATCH_FORMAT, messages // BATCH, 4))


def send_singles(port: int, queue: str, messages: int) -> None:
    asyncio.run(_send(port, queue, MESSAGE, 0, messages, WINDOW))


async def _send(port: int, queue: str, payload: bytes, message_format: int, count: int, window: int) -> None:
    client = await RawClient.connect(port, KEY_NAME, KEY)
    handle = client.attach("bench", False, queue)
    await client.until(0x13)
    for sent in range(1, count + 1):
        client.transfer(handle, payload, message_format)
        if sent % window == 0:
            await client.until(DISPOSITION, sent - window // 2)
    await client.until(DISPOSITION, count)
    await client.close()
