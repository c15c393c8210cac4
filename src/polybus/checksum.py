"""CRC-32 of what is stored, by the processor's own instructions where there is a library that uses them.

ISA-L's gives the same sums as zlib's and takes a tenth of the time, which was a twentieth of a message's whole cost.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # there is no wheel of it for this platform
    from zlib import crc32

__all__ = ["crc32"]
