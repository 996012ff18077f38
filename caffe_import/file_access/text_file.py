"""Text files that a person writes: lists of images and files, names of classes, windows; not prototxt."""

from __future__ import annotations

import codecs
import errno
import io
import os
from collections.abc import Callable
from typing import Final, TextIO

from caffe_import.file_access.regular_file import LIST_BYTES, AnyFile, RefusedFileError, open_regular, regular_bytes

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""Byte order mark -> the codec that leaves it out of the text. Editors on Windows write one."""

_START_BYTES: Final = 4096


def decode_text(content: bytes) -> str:
    r"""Return the text of a file: UTF-8, or UTF-16 behind a byte order mark.

    Bytes that are not UTF-8 become surrogates, so a path in another encoding still names the file.

    Example:
        >>> decode_text(b"\xef\xbb\xbfcat/1.jpg 0"), decode_text("\ufeffcat".encode("utf-16-le"))
        ('cat/1.jpg 0', 'cat')
    """
    return content.decode(*_codec(content))


def open_text_file(path: AnyFile) -> TextIO:
    """Open a file as ``decode_text`` reads it; lines end in a line feed.

    Raises:
        OSError: The file cannot be read.
    """
    with open_regular(path) as handle:
        encoding, errors = _codec(handle.read(4))
    return io.TextIOWrapper(open_regular(path), encoding=encoding, errors=errors)


def read_text_file(path: AnyFile) -> str:
    """Return the whole text of a file; see ``open_text_file``.

    Raises:
        RefusedFileError: The file is binary, such as an HDF5 file in place of the list of HDF5 files.
        OSError: The file cannot be read.
    """
    content = regular_bytes(path, max_bytes=LIST_BYTES)
    if b"\0" in content[:_START_BYTES] and _codec(content)[0] != "utf-16":
        finding = "a binary file; allowed: a text with an entry on each line, such as the path of a file"
        raise RefusedFileError(errno.EILSEQ, finding, str(path))
    return io.IncrementalNewlineDecoder(None, translate=True).decode(decode_text(content), final=True)


def text_lines(text: str) -> tuple[str, ...]:
    r"""Return the lines but blank lines, stripped.

    Example:
        >>> text_lines("cat \n\ndog\n")
        ('cat', 'dog')
    """
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def listed_files(text: str, is_there: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the names in a list of files as Caffe reads it: any blank separates two names.

    A line with blanks is a single name if the file exists, or if the name's folder has blanks and exists. Caffe itself
    cannot read such files.

    Args:
        text: The list.
        is_there: Whether a file or folder of this name is there.

    Example:
        >>> listed_files("a.h5 b.h5", lambda name: False), listed_files("my runs/a.h5", {"my runs"}.__contains__)
        (('a.h5', 'b.h5'), ('my runs/a.h5',))
    """
    names: list[str] = []
    for line in text_lines(text):
        parts, folder = line.split(), os.path.dirname(line)
        is_one = len(parts) > 1 and (is_there(line) or (len(folder.split()) > 1 and is_there(folder)))
        names += [line] if is_one else parts
    return tuple(names)


def _codec(start: bytes) -> tuple[str, str]:
    """Return the encoding of a text by the start, and the error handler."""
    encoding = next((codec for mark, codec in _MARKS if start.startswith(mark)), "utf-8")
    return encoding, "replace" if encoding == "utf-16" else "surrogateescape"
