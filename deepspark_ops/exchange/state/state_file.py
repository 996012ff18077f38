"""A worker's arrays for a snapshot, written on arrival into a plain ``.npz`` (readable by numpy, without pickle)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.scratch_file import write_scratch

MAX_NAME_BYTES = 512
PLAIN_KINDS = "biuf"
"""numpy kinds that a state may hold: bool, signed, unsigned, float."""


class StateFileWriter:
    """Writes a ``.npz``, array by array, piece by piece; a context manager.

    The end of the context renames the file into place; an error in the context removes the written part.
    """

    def __init__(self, path: Path) -> None:
        """Take the path; ``__enter__`` opens the file."""
        self._path = path
        self._stack = ExitStack()
        self._missing_bytes = 0

    def __enter__(self) -> StateFileWriter:
        temporary = self._stack.enter_context(write_scratch(self._path))
        self._zip = self._stack.enter_context(zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED))
        self._member: Any = None
        return self

    def __exit__(self, *details: Any) -> bool | None:
        # An open zip member would hide the error of the context.
        self._close_member()
        return self._stack.__exit__(*details)

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> int:
        """Start the next array; return the number of bytes for ``write``.

        Raises:
            ProtocolError: The previous array is not complete, the name is too long, or the dtype is not plain.
        """
        self._require_complete()
        kind = np.dtype(dtype) if _is_plain(dtype) else None
        if kind is None or not 0 < len(name.encode()) <= MAX_NAME_BYTES or any(n < 0 for n in shape):
            msg = f'state array "{name[:80]}" of dtype {dtype[:20]} and shape {shape}: expected a plain numeric array'
            raise ProtocolError(msg)
        self._close_member()
        self._member = self._zip.open(f"{name}.npy", "w", force_zip64=True)
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._member, header)
        self._missing_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return self._missing_bytes

    def write(self, piece: memoryview) -> None:
        """Append bytes of the present array, in C order.

        Raises:
            ProtocolError: More bytes than its shape holds.
        """
        if piece.nbytes > self._missing_bytes:
            msg = f"state array: {piece.nbytes:,} bytes sent, {self._missing_bytes:,} expected"
            raise ProtocolError(msg)
        self._member.write(piece)
        self._missing_bytes -= piece.nbytes

    def finish(self) -> None:
        """Check that the last array is complete.

        Raises:
            ProtocolError: Bytes are missing.
        """
        self._require_complete()

    def _require_complete(self) -> None:
        if self._missing_bytes:
            msg = f"state array ended {self._missing_bytes:,} bytes short"
            raise ProtocolError(msg)

    def _close_member(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None


def write_state(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write arrays of this process as one state file."""
    with StateFileWriter(path) as writer:
        for name, array in arrays.items():
            plain = np.ascontiguousarray(array)
            writer.begin(name, plain.dtype.str, array.shape)
            writer.write(plain.reshape(-1).view(np.uint8).data)
        writer.finish()


def _is_plain(dtype: str) -> bool:
    try:
        return np.dtype(dtype).kind in PLAIN_KINDS
    except TypeError:
        return False
