"""The drivers of the other languages must see a fault in the bus's log, and nothing else as one."""

from __future__ import annotations

import pytest

from tests.sdk.driving import faults

QUIET = [
    "ready amqp=127.0.0.1:5672 http=127.0.0.1:5300\n",
    "2026-01-01 12:00:00,000 WARNING a connection ended: it was idle connection=c1\n",
]


def test_a_quiet_log_has_no_faults() -> None:
    assert faults(QUIET) == []


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):\n",
        "2026-01-01 12:00:00,000 ERROR   a send was rejected: x\n",
        "2026-01-01 12:00:00,000 CRITICAL it is over\n",
    ],
)
def test_a_fault_is_shown_with_what_follows(line: str) -> None:
    assert faults([*QUIET, line, "ValueError: x\n"]) == [line, "ValueError: x\n"]
