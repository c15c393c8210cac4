"""How many processes the servers of this table have: `POLYBUS_TEST_WORKERS=2` runs it against two workers."""

from __future__ import annotations

import os

_WORKERS = os.environ.get("POLYBUS_TEST_WORKERS")
WORKERS = () if _WORKERS is None else ("--workers", _WORKERS)
"""Options for `polybus serve`."""
