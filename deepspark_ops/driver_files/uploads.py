"""Files that workers send to the driver: each has a temporary name until the whole content is there and checked."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from caffe_import.file_access.regular_file import open_regular
from caffe_import.file_access.whole_file import sync_file, sync_folder
from deepspark_ops.errors import ProtocolError

_TOKEN: Final = re.compile("[0-9a-f]{16}")
_SHA256: Final = re.compile("[0-9a-f]{64}")
_REMEMBERED: Final = 1_024
END_OF_FILES: Final = 2**63
"""Above the largest size of any file."""


@dataclass(frozen=True)
class UploadPiece:
    """The place of a piece in a sent file.

    Attributes:
        upload: Random token of the transfer, 16 hexadecimal digits.
        offset: First byte of the piece.
        n_bytes: Size of the whole file.
        sha256: Digest of the whole file.
    """

    upload: str
    offset: int
    n_bytes: int
    sha256: str

    @classmethod
    def from_json(cls, request: Mapping[str, Any]) -> UploadPiece:
        """Return the place in a request.

        Raises:
            ProtocolError: A field is missing or senseless.
        """
        upload, sha256 = str(request.get("upload")), str(request.get("sha256"))
        offset, n_bytes = request.get("offset"), request.get("n_bytes")
        is_valid = _TOKEN.fullmatch(upload) and _SHA256.fullmatch(sha256)
        if (
            not is_valid
            or not isinstance(offset, int)
            or not isinstance(n_bytes, int)
            or not 0 <= offset <= n_bytes < END_OF_FILES
        ):
            msg = f"write: upload={upload[:20]!r}, offset={offset!r}, n_bytes={n_bytes!r}: no piece of a file"
            raise ProtocolError(msg)
        return cls(upload, offset, n_bytes, sha256)

    def to_json(self) -> dict[str, Any]:
        """Inverse of ``from_json``."""
        return dict(vars(self))


class Uploads:
    """The transfers of all connections. Thread-safe for different transfers."""

    def __init__(self) -> None:
        """Begin without transfers."""
        self._lock = threading.Lock()
        self._unfinished: set[Path] = set()
        self._finished: deque[str] = deque(maxlen=_REMEMBERED)

    def add(self, path: Path, piece: UploadPiece, content: memoryview) -> None:
        """Write a piece; the last piece makes the file. A repeated piece changes nothing.

        Raises:
            OSError: The disk, or a content with another digest.
            ProtocolError: The piece does not fit into the file.
        """
        if piece.upload in self._finished:
            return  # the answer to the last piece was lost
        end = piece.offset + content.nbytes
        if end > piece.n_bytes:
            msg = f"write: a piece of {content.nbytes:,} bytes at {piece.offset:,} of {piece.n_bytes:,} for {path}"
            raise ProtocolError(msg)
        path.parent.mkdir(parents=True, exist_ok=True)
        if piece.offset == 0:
            _require_room(path.parent, piece.n_bytes)
        temporary = path.with_name(f".{path.name}.{piece.upload}.tmp")
        with self._lock:
            self._unfinished.add(temporary)
        try:
            _write_at(temporary, piece.offset, content)
            if end == piece.n_bytes:
                _require_digest(temporary, piece.sha256)
                temporary.chmod(0o644)
                sync_file(temporary)
                temporary.replace(path)
                sync_folder(path.parent)
                self._forget(temporary)
                self._finished.append(piece.upload)
        except OSError:
            temporary.unlink(missing_ok=True)
            self._forget(temporary)
            raise

    def remove_unfinished(self) -> None:
        """Remove what killed workers have not sent to the end."""
        with self._lock:
            unfinished, self._unfinished = self._unfinished, set()
        for temporary in unfinished:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _forget(self, temporary: Path) -> None:
        with self._lock:
            self._unfinished.discard(temporary)


def _require_room(folder: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise OSError(errno.ENOSPC, f"{n_bytes:,} bytes do not fit into the free {free:,}")


def _write_at(path: Path, offset: int, content: memoryview) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while content.nbytes:
            written = os.pwrite(handle, content, offset)
            offset, content = offset + written, content[written:]
    finally:
        os.close(handle)


def _require_digest(path: Path, sha256: str) -> None:
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        reason = f"SHA-256 of the received bytes is {digest[:12]}..., the sender says {sha256[:12]}..."
        raise OSError(errno.EBADMSG, reason)
