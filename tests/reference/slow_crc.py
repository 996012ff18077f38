"""CRC-32C one bit at a time, from RFC 3720, appendix B.4."""

from __future__ import annotations


def slow_crc32c(data: bytes) -> int:
    """Return the checksum of ``data``."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF
