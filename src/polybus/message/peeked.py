"""A message that somebody looks at: with what the broker says of it, and without a lock."""

from __future__ import annotations

from polybus.message.message import Message
from polybus.message.rendering import Marks


class Peeked:
    """A message that was looked at: nothing about it changed."""

    def __init__(self, message: Message, marks: Marks, size: int) -> None:
        self.message = message
        self.marks = marks
        self.size = size
        """The most that it takes in a reply."""
