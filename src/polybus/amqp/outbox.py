"""What a session has to say but holds back: settlements to be joined into ranges, and transfers that wait.

Adjacent deliveries with the same outcome leave as one disposition. Transfers wait, in order, while the peer's
incoming-window is exhausted. Nothing here knows states: the session asks, in the right order, to flush.
AMQP 1.0 §2.5.6, §2.6.12.
"""

from __future__ import annotations

from polybus.amqp.events import OutgoingDelivery
from polybus.amqp.fields import UINT_MAX
from polybus.amqp.frames import disposition


class Settlements:
    """Settled dispositions of one role on one channel, joined while they are adjacent and alike."""

    __slots__ = ("_channel", "_first", "_last", "_out", "_role", "_state")

    def __init__(self, out: list[bytes], channel: int, role: bool) -> None:
        self._out = out
        self._channel = channel
        self._role = role
        self._first = -1
        self._last = -1
        self._state = b""

    def add(self, delivery_id: int, state: bytes) -> None:
        if self._first >= 0:
            if delivery_id == self._last + 1 and state == self._state:
                self._last = delivery_id
                return
            self.flush()
        self._first = delivery_id
        self._last = delivery_id
        self._state = state

    def flush(self) -> None:
        if self._first >= 0:
            self._out.append(disposition(self._channel, self._role, self._first, self._last, self._state))
            self._first = -1


class UnsentDelivery:
    """A delivery that has not left whole: it is too large for one frame, or the peer's window is exhausted.

    It gets its delivery-id when its first frame leaves, so that one which is given up before leaves no gap.
    """

    __slots__ = ("delivery", "payload", "place", "settled", "tag")

    def __init__(self, delivery: OutgoingDelivery, tag: bytes, payload: bytes, settled: bool) -> None:
        self.delivery = delivery
        self.tag = tag
        self.payload = payload
        self.settled = settled
        self.place = 0


def serial_distance(first: int, last: int) -> int:
    """How far `last` is after `first`, both being serial numbers of 32 bits; negative if it is before. RFC 1982."""
    distance = (last - first) & UINT_MAX
    return distance if distance < 0x8000_0000 else distance - 0x1_0000_0000
