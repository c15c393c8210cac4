"""A bare AMQP 1.0 client over a blocking or asyncio socket: just enough to log in, hold links and send."""

from __future__ import annotations

import asyncio
import struct

from polybus.amqp.codec import encode
from polybus.amqp.types import Described, Symbol, UInt, ULong

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15
SASL_INIT = 0x41
SOURCE, TARGET = 0x28, 0x29
BATCH_FORMAT = 0x80013700
KEY_NAME, KEY = "bench", "the-key-of-the-bench"  # the profile of production refuses the emulator's
FRAME_PAYLOAD = 60_000
"""Below the bus's max-frame-size of 65,536 bytes."""


def frame(code: int, fields: list[object], payload: bytes = b"", kind: int = 0) -> bytes:
    body = b"\x00\x53" + bytes((code,)) + encode(fields) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body


def described(code: int, fields: list[object]) -> Described:
    return Described(ULong(code), fields)


class RawClient:
    """One connection with one session; frames that come back are counted by their code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._handles = 0
        self._sent = 0
        self.seen: dict[int, int] = {}

    @classmethod
    async def connect(cls, port: int, user: str | None = None, password: str = "") -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = cls(reader, writer)
        if user is None:
            init: list[object] = [Symbol("ANONYMOUS"), b"", None]
        else:
            init = [Symbol("PLAIN"), b"\0" + user.encode() + b"\0" + password.encode(), None]
        writer.write(SASL_HEADER + frame(SASL_INIT, init, kind=1))
        await reader.readexactly(8)
        await client.until(0x44)
        opening: list[object] = ["bench", "localhost", UInt(65536), None, None, None, None, None, None, None]
        begin: list[object] = [None, UInt(0), UInt(5000), UInt(5000), UInt(255), None, None, None]
        writer.write(AMQP_HEADER + frame(OPEN, opening) + frame(BEGIN, begin))
        await reader.readexactly(8)
        await client.until(BEGIN)
        return client

    async def until(self, code: int, count: int = 1) -> None:
        """Reads frames until so many of this kind have been seen in all."""
        while self.seen.get(code, 0) < count:
            header = await self._reader.readexactly(8)
            body = await self._reader.readexactly(int.from_bytes(header[:4], "big") - 8)
            if len(body) > 2:
                seen = body[2]
                self.seen[seen] = self.seen.get(seen, 0) + self._weight(body)
                if seen in (0x16, 0x18):
                    raise ConnectionError(f"the bus refused: {body!r}")

    def _weight(self, body: bytes) -> int:
        """A disposition counts for every delivery in its range."""
        if body[2] != DISPOSITION:
            return 1
        from polybus.amqp.codec import decode

        fields, _ = decode(body, 3)
        assert isinstance(fields, list)
        first, last = int(fields[1]), int(fields[1] if fields[2] is None else fields[2])
        return last - first + 1

    def attach(self, name: str, receiver: bool, address: str) -> int:
        handle = self._handles
        self._handles += 1
        source = described(SOURCE, [address, None, None, None, None, None, None, None, None, None, None])
        target = described(TARGET, [address, None, None, None, None, None, None])
        fields: list[object] = [name, UInt(handle), receiver, None, None, source, target, None, None]
        fields += [None if receiver else UInt(0), None, None, None, None]
        self._writer.write(frame(ATTACH, fields))
        return handle

    def transfer(self, handle: int, payload: bytes, message_format: int = 0) -> None:
        """Sends one delivery, in as many frames as it takes."""
        for start in range(0, len(payload), FRAME_PAYLOAD):
            more = start + FRAME_PAYLOAD < len(payload)
            fields: list[object] = [UInt(handle), UInt(self._sent), struct.pack(">I", self._sent)]
            fields += [UInt(message_format), False, more, None, None, None, None, None]
            self._writer.write(frame(TRANSFER, fields, payload[start : start + FRAME_PAYLOAD]))
        self._sent += 1

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
