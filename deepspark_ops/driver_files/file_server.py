"""The driver's file server: threads of the driver that read the run's data for workers, and write files of workers.

The server opens a connection after the exchange's handshake only, with a secret of its own. Workers name paths of the
driver's disk. A path outside the folders of the run is refused, also behind a symbolic link.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from caffe_import.file_access.regular_file import regular_handle
from deepspark_ops.driver_files.file_calls import PIECE_BYTES, FileServerAddress
from deepspark_ops.driver_files.uploads import END_OF_FILES, UploadPiece, Uploads
from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.connection import expect_frame
from deepspark_ops.exchange.transport.listening.certificate import make_keys
from deepspark_ops.exchange.transport.listening.gate import Gate
from deepspark_ops.exchange.transport.listening.listener import Listener, listening_socket
from deepspark_ops.exchange.transport.wire import Connection, Frame

_OTHER_PORT: Final = (
    "give another listen_port, or 0 (chosen by the system); in a training it is the port after the exchange's"
)
_CALLS: Final = ("look", "read", "list", "write")


@dataclass(frozen=True)
class SharedFolders:
    """The paths that workers may name.

    Attributes:
        readable: Folders, and single files.
        writable: Folders; missing folders are made.
    """

    readable: tuple[Path, ...]
    writable: tuple[Path, ...] = ()

    def to_read(self, name: str) -> Path:
        """Return the path to read.

        Raises:
            PermissionError: The path is outside of the folders.
        """
        return _confined(name, (*self.readable, *self.writable), "reads")

    def to_write(self, name: str) -> Path:
        """Return the path to write.

        Raises:
            PermissionError: The path is outside of the folders.
        """
        path = _confined(name, self.writable, "writes")
        if path in {folder.resolve() for folder in self.writable}:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return path


def _confined(name: str, folders: tuple[Path, ...], action: str) -> Path:
    path = Path(name).resolve()
    if not Path(name).is_absolute() or not any(path.is_relative_to(folder.resolve()) for folder in folders):
        allowed = ", ".join(map(str, folders))
        raise PermissionError(errno.EACCES, f"the driver {action} for workers only in {allowed}", name)
    return path


class FileServer:
    """Serves until ``stop``; a thread for each connection."""

    def __init__(
        self, folders: SharedFolders, host: str, port: int, *, protection: Protection, timeout_s: float
    ) -> None:
        """Listen and serve.

        Args:
            folders: The paths of the run.
            host: Address to listen on.
            port: Port; 0 lets the system choose.
            protection: Of every connection.
            timeout_s: Longest silence of a worker in the middle of a message, and of the server for a worker.

        Raises:
            ConfigError: Address or port cannot be used.
        """
        self._uploads = Uploads()
        subject = f"listen_address={host}: the driver's file server cannot use port {port}"
        sock = listening_socket(host, port, subject=subject, remedy=_OTHER_PORT)
        bound_host, bound_port = sock.getsockname()[:2]
        keys = make_keys(protection)
        self.address = FileServerAddress(
            bound_host,
            bound_port,
            secrets.randbits(64),
            keys.secret,
            exchange_timeout_s=timeout_s,
            protection=protection,
            certificate=keys.certificate,
        )
        self._listener = Listener(
            sock,
            Gate(self.address.run_id, keys),
            lambda connection: _FileSession(connection, folders, self._uploads).run(),
            limit_bytes=PIECE_BYTES,
            timeout_s=timeout_s,
            broken=logging.DEBUG,  # the worker's side reports a broken connection
        )
        self._listener.start()

    def stop(self) -> None:
        """Close every connection; remove files that workers have not sent to the end. May be called again."""
        self._listener.stop()
        self._uploads.remove_unfinished()


class _FileSession:
    """The calls of a connection, in the connection's thread."""

    def __init__(self, connection: Connection, folders: SharedFolders, uploads: Uploads) -> None:
        self._connection = connection
        self._folders = folders
        self._uploads = uploads
        self._room = memoryview(b"")
        self._list_bytes = b""

    def run(self) -> None:
        """Answer calls until the other side closes the connection."""
        connection = self._connection
        calls = dict(zip(_CALLS, (self._look, self._read, self._list, self._write), strict=True))
        try:
            while (frame := connection.wait_frame()) is not None:
                request = self._request(frame)
                try:
                    calls[request["call"]](request)
                except OSError as error:
                    reason = error.strerror or str(error)
                    connection.send_json(wire.ANSWER, {"errno": error.errno or errno.EIO, "reason": reason})
        except ProtocolError as error:
            connection.refuse(error)
            raise

    def _request(self, frame: Frame) -> Mapping[str, Any]:
        request = self._connection.receive_json(frame) if frame.operation == wire.CALL else None
        if not isinstance(request, Mapping) or request.get("call") not in _CALLS:
            msg = f"file server: operation {frame.operation} is no call of {', '.join(_CALLS)}"
            raise ProtocolError(msg)
        if not _is_path(request.get("path")):
            msg = f"file server: path={str(request.get('path'))[:80]!r}: no path"
            raise ProtocolError(msg)
        return request

    def _look(self, request: Mapping[str, Any]) -> None:
        path = self._folders.to_read(request["path"])
        entry = None
        with suppress(FileNotFoundError, NotADirectoryError):
            status = path.stat()
            is_folder = stat.S_ISDIR(status.st_mode)
            n_bytes = 0 if is_folder else status.st_size
            entry = {"n_bytes": n_bytes, "changed_ns": status.st_mtime_ns, "is_folder": is_folder}
        self._connection.send_json(wire.ANSWER, {"entry": entry})

    def _read(self, request: Mapping[str, Any]) -> None:
        offset = _offset(request)
        handle, total_bytes = regular_handle(self._folders.to_read(request["path"]))
        try:
            content = os.pread(handle, PIECE_BYTES, offset)
        finally:
            os.close(handle)
        self._send_piece(offset, content, total_bytes)

    def _list(self, request: Mapping[str, Any]) -> None:
        """Send a piece of a list; the first piece makes the list, and the connection keeps the list."""
        offset = _offset(request)
        path = self._folders.to_read(request["path"])
        if offset == 0:
            self._list_bytes = json.dumps(list(_entries(path, is_deep=request.get("is_deep") is True))).encode()
        self._send_piece(offset, self._list_bytes[offset : offset + PIECE_BYTES], len(self._list_bytes))

    def _send_piece(self, offset: int, content: bytes, total_bytes: int) -> None:
        self._connection.send_json(wire.ANSWER, {"n_bytes": len(content), "total_bytes": total_bytes})
        self._connection.send(Frame(wire.CHUNK, offset=offset, count=len(content)), content)

    def _write(self, request: Mapping[str, Any]) -> None:
        content = self._content()  # before any refusal: the next frame is the next call
        path = self._folders.to_write(request["path"])
        self._uploads.add(path, UploadPiece.from_json(request), content)
        self._connection.send_json(wire.ANSWER, {})

    def _content(self) -> memoryview:
        frame = expect_frame(self._connection, wire.CHUNK)
        if frame.payload_bytes > PIECE_BYTES:
            msg = f"write: a piece of {frame.payload_bytes:,} bytes; at most {PIECE_BYTES:,}"
            raise ProtocolError(msg)
        if self._room.nbytes < frame.payload_bytes:
            self._room = memoryview(bytearray(frame.payload_bytes))
        content = self._room[: frame.payload_bytes]
        self._connection.receive_into(content, "a piece of a file")
        return content


def _offset(request: Mapping[str, Any]) -> int:
    offset = request.get("offset")
    if not isinstance(offset, int) or not 0 <= offset < END_OF_FILES:
        msg = f"{request['call']}: offset={offset!r}; expected the first byte of the piece"
        raise ProtocolError(msg)
    return offset


def _entries(folder: Path, *, is_deep: bool, prefix: str = "") -> Iterator[tuple[str, int, int, bool]]:
    """Yield name, bytes, time of change (ns) and whether it is a folder; ``is_deep``: all files below, no folders.

    A link to a folder below ``folder`` is a file of a deep list, unless the link is directly in ``folder``.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=not (is_deep and prefix))
            if is_folder and is_deep:
                yield from _entries(folder / entry.name, is_deep=True, prefix=f"{prefix}{entry.name}/")
                continue
            try:
                status = entry.stat()
            except OSError:  # a link to a missing file
                status = entry.stat(follow_symlinks=False)
            yield f"{prefix}{entry.name}", 0 if is_folder else status.st_size, status.st_mtime_ns, is_folder


def _is_path(value: object) -> bool:
    """Return whether a value names a file; a name may have bytes that are no text."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False
