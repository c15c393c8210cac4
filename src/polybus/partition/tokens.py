"""A lock's token: sixteen bytes that name the entity, the partition, the life of its broker, and the lock."""

from __future__ import annotations

import struct
from typing import Final

_TOKEN: Final = struct.Struct(">IHIHI")
_TOKEN_HEAD: Final = struct.Struct(">IHI")


def token_head(entity_id: int, index: int, incarnation: int) -> bytes:
    """What all tokens of one broker's life begin with; the lock's number follows in six bytes."""
    return _TOKEN_HEAD.pack(entity_id, index, incarnation)


def read_token(token: bytes) -> tuple[int, int, int, int]:
    """(entity id, partition index, incarnation, lock number) of a token's sixteen bytes."""
    entity, index, incarnation, high, low = _TOKEN.unpack(token)
    return entity, index, incarnation, high << 32 | low
