"""The frame of a message's sections: their descriptors, and the lists that header and properties are."""

from __future__ import annotations

import struct
from typing import Final

from polybus.amqp.codec import decode, decode_error, skip

FIRST_SECTION: Final = 0x70
LAST_SECTION: Final = 0x78

_U32: Final = struct.Struct(">I")


def descriptor(raw: bytes, pos: int) -> tuple[int, int]:
    """A section's code and where its value begins, in whatever form the descriptor is written."""
    if raw[pos] != 0:
        raise decode_error("a message section does not begin with a descriptor")
    code, value_at = decode(raw, pos + 1)
    if not isinstance(code, int) or not FIRST_SECTION <= code <= LAST_SECTION or value_at >= len(raw):
        raise decode_error("a message section has an unknown descriptor or no value")
    return int(code), value_at


def list_bounds(raw: bytes, at: int, most: int) -> tuple[int, int, int]:
    """The position after a list, where its first item begins, and how many items it announces."""
    after = skip(raw, at)
    code = raw[at]
    if code == 0xC0 and after >= at + 3:
        pos, count = at + 3, raw[at + 2]
    elif code == 0xD0 and after >= at + 9:
        pos, count = at + 9, int(_U32.unpack_from(raw, at + 5)[0])
    elif code == 0x45:
        pos, count = after, 0
    else:
        raise decode_error("a header or properties section is not a list")
    if count > most:
        raise decode_error(f"a section has {count} fields and may have {most}")
    return after, pos, count


def check_end(pos: int, after: int) -> None:
    if pos != after:
        raise decode_error("the size of a section's list and its fields differ")
