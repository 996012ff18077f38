"""What the image decoders below OpenCV print about an image: they have no other way to say that it is damaged.

libjpeg and libpng write to file descriptor 2. For the length of a ``with`` block it is a temporary file, whose first
byte says whether there is anything in it: looking at it in memory costs less than a tenth of a microsecond. What is no
decoder's message is passed on at the end.
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
"""About colour profiles and versions, not about pixels."""


class DecoderMessages:
    """Messages since the last look. Of the process as a whole: one thread decodes."""

    def __init__(self, handle: int) -> None:
        """Read from ``handle``, an empty file, where descriptor 2 now leads."""
        self._handle = handle
        os.ftruncate(handle, mmap.PAGESIZE)
        self._start = mmap.mmap(handle, mmap.PAGESIZE, prot=mmap.PROT_READ)
        self.others = bytearray()

    def take(self) -> str:
        """Return what decoders have printed since the last call, "" if nothing; harmless lines are left out."""
        if not self._start[0]:
            return ""
        text = os.pread(self._handle, os.lseek(self._handle, 0, os.SEEK_CUR), 0)
        # Empty again, and zeros where the map is; descriptor 2 is the same open file, with the same position.
        os.ftruncate(self._handle, 0)
        os.ftruncate(self._handle, mmap.PAGESIZE)
        os.lseek(self._handle, 0, os.SEEK_SET)
        found = []
        for line in text.splitlines(keepends=True):
            plain = line.decode("utf-8", "replace").strip()
            if not _DECODER.match(plain):
                self.others += line
            elif not _HARMLESS.match(plain):
                found.append(plain)
        return "; ".join(dict.fromkeys(found))

    def close(self) -> None:
        """Give the map back."""
        self._start.close()


@contextmanager
def decoder_messages() -> Iterator[DecoderMessages]:
    """Catch what is printed to descriptor 2, until the end of the block."""
    sys.stderr.flush()
    with tempfile.TemporaryFile(buffering=0) as caught, closing(DecoderMessages(caught.fileno())) as messages:
        before = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield messages
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            messages.take()
            if messages.others:
                os.write(before, bytes(messages.others))
            os.close(before)
