"""Which partition a key selects, for the bus and for clients that plan by it.

The hash is part of the stored format: the catalogue records its version, and another hash would be another version, never
a change of this one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

HASH_VERSION: Final = 1


def partition_for(key: str, partitions: int) -> int:
    """The partition that a session id, partition key or message id selects among so many, for ever."""
    digest = blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions
