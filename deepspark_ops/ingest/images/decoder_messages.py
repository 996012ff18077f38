"""Messages of the image decoders below OpenCV: the only sign of a damaged image.

libjpeg and libpng write to file descriptor 2. During a ``with`` block the descriptor leads to a temporary file. The
file's first byte shows whether a message exists: a look in memory takes less than 0.1 microseconds. Other programs'
texts go to the former descriptor at the end.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

_DECODER = re.compile(
    r"Corrupt JPEG|Premature end of|Invalid (SOS|progressive)|Inconsistent progressive|Unsupported marker|libpng"
    r"|.*JPEG datastream|Bogus|TIFF(Read|Fetch)|Warning: |Unknown Adobe|libwebp",
    re.IGNORECASE,
)
_HARMLESS = re.compile(r"libpng warning: (iCCP|sRGB|gAMA|cHRM|known incorrect)|Warning: unknown JFIF", re.IGNORECASE)
"""Messages about colour profiles and versions, not about pixels."""


class DecoderMessages:
    """Messages of the whole process since the last look; a single thread decodes."""

    def __init__(self, handle: int) -> None:
        """Read from ``handle``, an empty file, the target of descriptor 2."""
        self._handle = handle
        os.ftruncate(handle, mmap.PAGESIZE)
        self._start = mmap.mmap(handle, mmap.PAGESIZE, prot=mmap.PROT_READ)
        self.other_output = bytearray()

    def take(self) -> str:
        """Return the decoders' messages since the last call, without harmless lines; "" without a message."""
        if not self._start[0]:
            return ""
        text = os.pread(self._handle, os.lseek(self._handle, 0, os.SEEK_CUR), 0)
        # The file becomes empty, with zeros in the map; descriptor 2 is the same open file, with the same position.
        os.ftruncate(self._handle, 0)
        os.ftruncate(self._handle, mmap.PAGESIZE)
        os.lseek(self._handle, 0, os.SEEK_SET)
        messages = []
        for line in text.splitlines(keepends=True):
            plain = line.decode("utf-8", "replace").strip()
            if not _DECODER.match(plain):
                self.other_output += line
            elif not _HARMLESS.match(plain):
                messages.append(plain)
        return "; ".join(dict.fromkeys(messages))

    def close(self) -> None:
        """Close the map."""
        self._start.close()


@contextmanager
def decoder_messages() -> Iterator[DecoderMessages]:
    """Catch the output to descriptor 2 until the end of the block."""
    sys.stderr.flush()
    with tempfile.TemporaryFile(buffering=0) as caught, closing(DecoderMessages(caught.fileno())) as messages:
        former_stderr = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield messages
        finally:
            sys.stderr.flush()
            os.dup2(former_stderr, 2)
            messages.take()
            if messages.other_output:
                os.write(former_stderr, bytes(messages.other_output))
            os.close(former_stderr)
