"""What is altered of a message on its way elsewhere."""

from __future__ import annotations


class Edit:
    """What is altered of a message while it moves; everything else stays as its sender wrote it."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        """Bytes that a message with a new body may have where it goes."""
        self.body: bytes | None = None
        self.fields: dict[int, object] = {}
        """Position in the properties list to new value; None takes it away."""
        self.application: dict[str, object] = {}
        """Application property to new value; None takes it away."""
