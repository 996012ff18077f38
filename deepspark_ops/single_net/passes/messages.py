"""Messages between a caller and the process for passes: a JSON head, bytes, and handles of shared memory.

Version 1: two big-endian 32-bit lengths, the head, the bytes. Handles are sent with the lengths.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MESSAGE_VERSION: Final = 1
_LENGTHS: Final = struct.Struct(">II")
_MOST_BYTES: Final = 1 << 28
_MOST_HANDLES: Final = 2


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        head: Plain values.
        content: A serialized net, or nothing.
        handles: File descriptors, which the receiver owns.
    """

    head: dict[str, Any]
    content: bytes = b""
    handles: tuple[int, ...] = ()


def send(channel: socket.socket, head: dict[str, Any], content: bytes = b"", handles: Sequence[int] = ()) -> None:
    """Send a message.

    Raises:
        OSError: The other side is gone.
    """
    text = json.dumps({"v": MESSAGE_VERSION, **head}).encode()
    socket.send_fds(channel, [_LENGTHS.pack(len(text), len(content))], handles)
    channel.sendall(text + content)


def receive(channel: socket.socket) -> Message | None:
    """Return the next message; None after the other side has disconnected.

    Raises:
        ValueError: The data are no message of this version.
    """
    lengths, handles, _, _ = socket.recv_fds(channel, _LENGTHS.size, _MOST_HANDLES)
    lengths += _read(channel, _LENGTHS.size - len(lengths)) if lengths else b""
    if len(lengths) < _LENGTHS.size:
        return None
    n_text, n_content = _LENGTHS.unpack(lengths)
    if max(n_text, n_content) > _MOST_BYTES:
        msg = f"a message of {max(n_text, n_content):,} bytes; at most {_MOST_BYTES:,} are allowed"
        raise ValueError(msg)
    text, content = _read(channel, n_text), _read(channel, n_content)
    if len(text) < n_text or len(content) < n_content:
        return None
    head = json.loads(text)
    if head.pop("v", None) != MESSAGE_VERSION:
        msg = f"a message of another version than {MESSAGE_VERSION}"
        raise ValueError(msg)
    return Message(head, content, tuple(handles))


def is_readable(channel: socket.socket, seconds: float) -> bool:
    """Wait at most ``seconds`` for data or a disconnection; return whether data or a disconnection came."""
    return bool(select.select([channel], [], [], seconds)[0])


def _read(channel: socket.socket, count: int) -> bytes:
    parts, missing = [], count
    while missing and (part := channel.recv(min(missing, 1 << 20))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
