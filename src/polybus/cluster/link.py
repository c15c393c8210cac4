"""One connection between two processes of a bus: questions and answers, and what one side tells by itself.

All frames of one turn of the loop leave in one write. A link that breaks answers every open question; whoever has asked
decides what that means. Nothing is sent again: a link that broke is gone, and the next one begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from polybus.cluster import verbs
from polybus.cluster.frames import NO_ANSWER, Frame, FrameReader, greeting
from polybus.cluster.values import Reader, Values, error_of, error_values, nonsense
from polybus.errors import PartitionUnavailable, PolybusError, ProtocolError
from polybus.hosting.store_host import InDoubt
from polybus.promise import Loop, Promise

log = logging.getLogger(__name__)

Answered = Callable[[Reader | None, PolybusError | None], None]


class LinkLost(InDoubt):
    """The connection to the process that owns the partition is gone: whether it has done what was asked is unknown."""


class Link:
    def __init__(self, loop: Loop, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self._loop = loop
        self._write = write
        self._close = close
        self._reader = FrameReader(verbs.LAST)
        self._out: list[bytes] = []
        self._scheduled = False
        self._asked: dict[int, Answered] = {}
        self._last = NO_ANSWER
        self.closed = False
        self.on_frame: Callable[[Frame], None] | None = None
        """Called with what the other side asks or tells."""
        self.on_closed: list[Callable[[], None]] = []
        self._put(greeting())

    @property
    def version(self) -> int:
        """What both sides speak; 0 before the other one has greeted."""
        return self._reader.version

    # Out

    def tell(self, verb: int, entity_id: int, index: int, value: Values) -> None:
        """Sends what nobody answers."""
        self._send(Frame(verb, entity_id, index, NO_ANSWER, value))

    def ask(self, verb: int, entity_id: int, index: int, value: Values, answered: Answered) -> None:
        """Sends a question; `answered` is called once, with the answer or with why there is none."""
        if self.closed:
            answered(None, PartitionUnavailable("The process that owns a partition cannot be reached. Try again."))
            return
        self._last += 1
        self._asked[self._last] = answered
        self._send(Frame(verb, entity_id, index, self._last, value))

    def answer(self, asked: Frame, value: object) -> None:
        if asked.correlation != NO_ANSWER:
            self._send(Frame(verbs.ANSWER, asked.entity_id, asked.index, asked.correlation, [value]))

    def refuse(self, asked: Frame, error: PolybusError, more: object = None) -> None:
        if asked.correlation != NO_ANSWER:
            value: Values = [*error_values(error), more]
            self._send(Frame(verbs.REFUSAL, asked.entity_id, asked.index, asked.correlation, value))

    def answer_when(self, asked: Frame, promise: Promise[Any]) -> None:
        """Answers with what was promised, which must be plain values."""

        def settled(promise: Promise[Any]) -> None:
            try:
                self.answer(asked, promise.result())
            except PolybusError as error:
                self.refuse(asked, error)
            except Exception:  # a bug of ours; who has asked must hear something all the same
                log.exception("a question of another process could not be answered")
                self.refuse(
                    asked, PartitionUnavailable("An error inside of another process of the bus; its log has it.")
                )

        promise.then(settled)

    def _send(self, frame: Frame) -> None:
        if not self.closed:
            self._put(frame.to_bytes())

    def _put(self, data: bytes) -> None:
        self._out.append(data)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        out, self._out = self._out, []
        if out and not self.closed:
            self._write(b"".join(out))

    # In

    def feed(self, data: bytes) -> None:
        """Takes bytes of the other side; one that breaks the form is cut off."""
        try:
            for frame in self._reader.feed(data):
                if self.closed:
                    return
                self._arrived(frame)
        except ProtocolError:
            self.close()
            raise

    def _arrived(self, frame: Frame) -> None:
        if frame.verb not in (verbs.ANSWER, verbs.REFUSAL):
            if self.on_frame is not None:
                self.on_frame(frame)
            return
        answered = self._asked.pop(frame.correlation, None)
        if answered is None:
            raise nonsense("an answer to what was not asked")
        try:
            reader = Reader(frame.value)
            answered(reader, None if frame.verb == verbs.ANSWER else error_of(reader))
        except ProtocolError:
            answered(None, _lost())  # who asked must hear something, also where the answer is nonsense
            raise

    def close(self) -> None:
        """Ends the connection from this side."""
        self.lose()
        self._close()

    def lose(self) -> None:
        """The connection is gone: whoever waits hears of it."""
        if self.closed:
            return
        self.closed = True
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(None, _lost())
        for closed in list(self.on_closed):
            closed()


def _lost() -> LinkLost:
    return LinkLost("The connection to the process that owns a partition broke, perhaps during a commit. Try again.")
