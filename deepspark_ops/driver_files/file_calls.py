"""The messages between a worker and the driver's file server, over connections of the exchange's kind.

A call is a frame of JSON with a ``path`` on the driver's disk. The answer is a frame of JSON; an answer with ``errno``
and ``reason`` is an error. Content travels in pieces. Each piece is a call of its own: a call may be repeated over a
new connection, and a broken transfer goes on from the last piece.

    look     the size, the time of change, and whether the path is a folder; null without a file
    read     offset -> n_bytes, and total_bytes of the file, then a CHUNK frame of n_bytes; 0 bytes at the file's end
    list     is_deep, offset -> the same for the list of a folder, JSON: [name, bytes, time of change, is a folder], ...
    write    upload, offset, n_bytes and sha256 of the whole file, then a CHUNK frame; the last piece makes the file
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deepspark_ops.exchange.transport.connection import ExchangeAddress

PIECE_BYTES: Final = 4 * 2**20
"""Longest piece: both sides keep one piece of each connection in memory."""


@dataclass(frozen=True)
class FileServerAddress(ExchangeAddress):
    """Address and keys of the file server. Travels inside the Spark task's closure, as the address of the exchange."""

    @property
    def server(self) -> str:
        """The other side's name in errors."""
        return f"the driver's file server {self.host}:{self.port}"
