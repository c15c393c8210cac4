"""Which partition a key selects: the bus's own hash, for planning reads and for looking at skew.

It is part of the bus's stored format and never changes; a test holds this copy against the original.
"""

from __future__ import annotations

from hashlib import blake2b


def partition_for(key: str, partitions: int) -> int:
    """The partition of an entity with so many that messages with this session id or partition key go to."""
    digest = blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions
