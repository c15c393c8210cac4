"""One incoming delivery while its frames arrive.

Frames and bytes are counted as they come. A delivery over its link's limit keeps no bytes from then on, so
that its sender can be told politely at the end. AMQP 1.0 §2.6.14; docs/protocol/amqp.md#transfers.
"""

from __future__ import annotations

from polybus.amqp.outcomes import DeliveryState
from polybus.amqp.traffic import TransferTail


class Assembly:
    """The frames of a delivery so far."""

    __slots__ = (
        "chunks",
        "delivery_id",
        "frames",
        "limit",
        "message_format",
        "oversized",
        "settled",
        "size",
        "state",
        "tag",
    )

    def __init__(self, delivery_id: int, tag: bytes, message_format: int, limit: int) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.limit = limit
        self.settled = False
        self.state: DeliveryState | None = None
        self.chunks: list[bytes] = []
        self.size = 0
        self.frames = 0
        self.oversized = False

    def add(self, tail: TransferTail, payload: bytes) -> int:
        """Takes one more frame; gives by how many bytes the delivery has grown, or shrunk, in memory.

        `settled` and `state` may be on any of the frames (docs/protocol/amqp.md#settled-on-any-frame).
        """
        self.frames += 1
        if tail.settled:
            self.settled = True
        if tail.state is not None:
            self.state = tail.state
        if self.oversized:
            return 0
        if self.size + len(payload) > self.limit:
            self.oversized = True
            return -self._drop()
        self.size += len(payload)
        self.chunks.append(payload)
        return len(payload)

    def _drop(self) -> int:
        dropped = self.size
        self.chunks = []
        self.size = 0
        return dropped
