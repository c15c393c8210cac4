"""AMQP 1.0 values to bytes and back: the one import for whoever needs the type system."""

from __future__ import annotations

from polybus.amqp.decoder import decode, decode_error, decode_within, skip, skip_within, u32_at
from polybus.amqp.encoder import encode, encode_into, long8

__all__ = [
    "decode",
    "decode_error",
    "decode_within",
    "encode",
    "encode_into",
    "long8",
    "skip",
    "skip_within",
    "u32_at",
]
