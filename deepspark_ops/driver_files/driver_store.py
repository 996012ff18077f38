"""The files of the driver's disk as a store, for the worker's cache on its local disk (``stores.staging``)."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from caffe_import.file_access.regular_file import open_regular
from deepspark_ops.driver_files.file_calls import PIECE_BYTES, FileServerAddress
from deepspark_ops.driver_files.uploads import UploadPiece
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.connection import ServerConnection, call_once, expect_frame, expect_json
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.stores.store import Entry


@dataclass(frozen=True)
class DriverStore:
    """See ``Store``. A key is an absolute path on the driver's disk. Thread-safe: each call has its own connection.

    A broken connection is made again for ``exchange_timeout_s``, and a transfer goes on from its last piece. A driver
    that stays silent for this long raises ``ExchangeUnavailable``: another start of the worker may help.

    Attributes:
        address: The driver's file server.
        idle: Connections for the next calls, for processes that read many small files; None: each call makes one.
    """

    address: FileServerAddress
    idle: list[ServerConnection] | None = field(default=None, repr=False, compare=False)

    def entry(self, key: str) -> Entry | None:
        """See ``Store``."""
        with self._connected() as server:
            fields = server.repeat(lambda connection, _: _answer(connection, {"call": "look", "path": key}))["entry"]
        return None if fields is None else Entry(key, **fields)

    def entries(self, key: str, *, is_deep: bool) -> list[Entry]:
        """See ``Store``."""
        with self._connected() as server:
            content = server.repeat(partial(_list, key=key, is_deep=is_deep))
        return [Entry(f"{key}/{name}", *fields) for name, *fields in json.loads(content)]

    def opened(self, key: str) -> BinaryIO:
        """See ``Store``."""
        return cast(BinaryIO, _DriverFile(self, key, *self._first(key)))

    def version(self, key: str) -> str:
        """See ``Store``."""
        entry = self.entry(key)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return entry.stamp

    def fetch(self, key: str, target: Path) -> None:
        """See ``Store``."""
        handle = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            position = 0
            for piece in self._pieces(key, 0):
                position += _written(handle, piece, position)
            os.ftruncate(handle, position)
        finally:
            os.close(handle)

    def put(self, source: Path, key: str) -> None:
        """See ``Store``; the driver compares the digest before the file gets its name."""
        with open_regular(source) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            upload, offset = secrets.token_hex(8), 0
            file.seek(0)
            with self._connected() as server:
                while True:
                    content = file.read(PIECE_BYTES)
                    piece = UploadPiece(upload, offset, n_bytes, digest)
                    server.repeat(partial(_send, key=key, piece=piece, content=content))
                    offset += len(content)
                    if offset >= n_bytes or not content:
                        return

    def remove(self, key: str) -> None:
        """Refuse: workers remove no file of the driver."""
        raise OSError(errno.ENOTSUP, "workers remove no file of the driver", key)

    def read(self, key: str, offset: int) -> bytes:
        """Return a piece of a file from ``offset`` on, at most ``PIECE_BYTES``; empty at the end of the file."""
        with self._connected() as server:
            return server.repeat(partial(_read, key=key, offset=offset))[0]

    def _first(self, key: str) -> tuple[bytes, int]:
        """Return the first piece of a file, and the bytes of the whole file."""
        with self._connected() as server:
            return server.repeat(partial(_read, key=key, offset=0))

    def _pieces(self, key: str, offset: int) -> Iterator[memoryview]:
        """Yield the content from ``offset`` on; a piece is valid until the next piece."""
        room = memoryview(bytearray(PIECE_BYTES))
        with self._connected() as server:
            while n_bytes := server.repeat(partial(_receive, key=key, offset=offset, room=room)):
                yield room[:n_bytes]
                offset += n_bytes

    @contextmanager
    def _connected(self) -> Iterator[ServerConnection]:
        try:
            connection = (self.idle or []).pop()
        except IndexError:
            connection = ServerConnection(self.address, "this worker")
            connection.limit_bytes = PIECE_BYTES
        is_whole = False
        try:
            yield connection
            is_whole = True
        finally:
            if self.idle is not None and is_whole:
                self.idle.append(connection)
            else:
                connection.close()


class _DriverFile(io.RawIOBase):
    """A file of the driver's disk, read piece after piece."""

    def __init__(self, store: DriverStore, key: str, first_piece: bytes, n_bytes: int) -> None:
        self._store = store
        self._key = key
        self._n_bytes = n_bytes
        self._position = 0
        self._piece = first_piece
        self._piece_offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        index = self._position - self._piece_offset
        if self._position >= self._n_bytes:
            return 0
        if not 0 <= index < len(self._piece):
            self._piece, self._piece_offset, index = self._store.read(self._key, self._position), self._position, 0
        content = self._piece[index : index + len(buffer)]
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._n_bytes}[whence]
        return self._position

    def tell(self) -> int:
        return self._position


def _answer(connection: Connection, request: Mapping[str, Any]) -> Any:
    return _checked(call_once(connection, request, 0, 0), str(request["path"]))


def _read(connection: Connection, _: bool, *, key: str, offset: int) -> tuple[bytes, int]:
    """Return a piece of a file, and the bytes of the whole file."""
    answer = _answer(connection, {"call": "read", "path": key, "offset": offset})
    room = memoryview(bytearray(answer["n_bytes"]))
    _receive_piece(connection, key, room)
    return room.tobytes(), answer["total_bytes"]


def _receive(connection: Connection, _: bool, *, key: str, offset: int, room: memoryview) -> int:
    """Receive a piece into ``room``; return the number of bytes."""
    _answer(connection, {"call": "read", "path": key, "offset": offset})
    return _receive_piece(connection, key, room)


def _list(connection: Connection, _: bool, *, key: str, is_deep: bool) -> bytes:
    """Receive the list of a folder, over a single connection: the connection keeps the list."""
    content, total_bytes = bytearray(), 1
    while len(content) < total_bytes:
        request = {"call": "list", "path": key, "is_deep": is_deep, "offset": len(content)}
        answer = _answer(connection, request)
        total_bytes, room = answer["total_bytes"], memoryview(bytearray(answer["n_bytes"]))
        _receive_piece(connection, key, room)
        content += room
    return bytes(content)


def _receive_piece(connection: Connection, key: str, room: memoryview) -> int:
    frame = expect_frame(connection, wire.CHUNK)
    connection.receive_into(room[: frame.payload_bytes], f"a piece of {key}")
    return frame.payload_bytes


def _send(connection: Connection, _: bool, *, key: str, piece: UploadPiece, content: bytes) -> None:
    connection.send_json(wire.CALL, {"call": "write", "path": key, **piece.to_json()})
    connection.send(Frame(wire.CHUNK, offset=piece.offset, count=len(content)), content)
    _checked(expect_json(connection, wire.ANSWER), key)


def _checked(answer: Any, key: str) -> Any:
    """Return an answer; an error of the driver's disk is raised here."""
    if "errno" in answer:
        raise OSError(int(answer["errno"]), f"{answer['reason']} (the driver's disk)", f"driver://{key}")
    return answer


def _written(handle: int, piece: memoryview, position: int) -> int:
    n_bytes = 0
    while n_bytes < piece.nbytes:
        n_bytes += os.pwrite(handle, piece[n_bytes:], position + n_bytes)
    return n_bytes
