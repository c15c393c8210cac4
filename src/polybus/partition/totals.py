"""What has become of the messages of a queue, or of one subscription, since the start: for metrics.

Plain numbers that are raised where it happens and read when somebody asks. They stand beside the settings, which
outlive a broker, so that they never go back while the process lives.
"""

from __future__ import annotations

from typing import Final

BY_RECEIVER: Final = "Application"
"""Why a message is dead where a receiver said so: its own words may say anything, and stay out of metrics."""


class Totals:
    def __init__(self) -> None:
        self.expired = 0
        self.duplicates = 0
        self.dead: dict[str, int] = {}
        """Dead letters by reason; the reasons are ours, so there are few."""

    def died(self, reason: str) -> None:
        self.dead[reason] = self.dead.get(reason, 0) + 1
