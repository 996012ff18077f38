"""Damaged global heaps: the library never gets a damaged heap; whole heaps are read as by the library."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from caffe_import.files.global_heap import SIGNATURE, CheckedFile, is_whole_collection
from caffe_import.files.hdf5_file import attribute, fixed_text, open_hdf5

LIMIT_S = 60.0
"""Of a process that opens a file; the library would need for ever."""
_HEADER = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")


def collection(*objects: tuple[int, int], size: int = 4096) -> bytes:
    """Return a collection by the specification: objects of a number and a size, whose data are padded to 8 bytes."""
    content = bytearray(_HEADER.pack(SIGNATURE, 1, size))
    for number, length in objects:
        content += _OBJECT.pack(number, 1, length)
        if number:
            content += bytes(min(-(-length // 8) * 8, size))
    return bytes(content.ljust(size, b"\0")[:size])


FREE = 4096 - 16


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (collection((0, FREE)), True),
        (collection((1, 5), (2, 0), (0, FREE - 24 - 16)), True),
        (collection((1, FREE - 16)), True),
        (collection((1, FREE - 16 - 8)), True),  # 8 bytes are left, in which no object has room
        (collection((1, 5), (0, 0)), False),
        (collection(), False),  # the first object is one of number 0 and size 0
        (collection((1, FREE - 15)), False),
        (collection((0, FREE + 8)), False),
        (collection((0, 8)), False),  # less than the header that the size includes
        (collection((1, 2**64 - 16)), False),  # with its header, 0 in 64 bits
        (collection((1, 2**64 - 1)), False),
        (collection(*[(1, 0)] * (2**16 + 1), size=16 * (2**16 + 2)), False),
    ],
)
def test_objects_follow_each_other_up_to_the_end_of_a_collection(content: bytes, expected: bool) -> None:
    assert is_whole_collection(content) is expected


def test_a_file_whose_sizes_have_4_bytes_is_read_by_them() -> None:
    head = struct.pack("<4sB3xI4x", SIGNATURE, 1, 4096)
    collection = head + struct.pack("<HH4xI4x", 0, 0, 4096 - len(head))
    assert is_whole_collection(collection.ljust(4096, b"\0"), 4)
    assert not is_whole_collection(head.ljust(4096, b"\0"), 4)


def text_attribute(file: h5py.File) -> None:
    file.attrs["text"] = "in the heap"


def column(file: h5py.File) -> None:
    file["text"] = ["in", "the", "heap"]


def region(file: h5py.File) -> None:
    file["numbers"] = np.arange(4)
    file.attrs["text"] = file["numbers"].regionref[1:3]


USERS: list[Callable[[h5py.File], None]] = [text_attribute, column, region]
_READS = """
import sys
from pathlib import Path
import h5py
from caffe_import.files.hdf5_file import open_hdf5
for path in sys.argv[1:]:
    try:
        with open_hdf5(Path(path)) as file:
            found = file["text"][:] if "text" in file else file.attrs["text"]
            if isinstance(found, h5py.RegionReference):
                file["numbers"][found]
        print("read")
    except (OSError, KeyError, RuntimeError) as error:
        print(error)
"""


def test_whatever_leads_to_a_damaged_heap_ends_with_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / f"{make.__name__}.h5" for make in USERS]
    for make, path in zip(USERS, paths, strict=True):
        with h5py.File(path, "w") as file:
            make(file)
        content = bytearray(path.read_bytes())
        start = content.index(SIGNATURE)
        at = start + _HEADER.size
        while (header := _OBJECT.unpack_from(content, at))[0]:
            at += _OBJECT.size + -(-header[2] // 8) * 8
        _OBJECT.pack_into(content, at, 0, 0, 0)
        path.write_bytes(content)
    # In a separate process: an endless call of the library cannot be ended otherwise.
    command = [sys.executable, "-c", _READS, *map(str, paths)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    lines = completed.stdout.splitlines()
    assert len(lines) == len(USERS), completed
    assert all("(bad global heap collection signature)" in line for line in lines), completed


def test_a_whole_heap_is_read_as_by_the_library(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    texts = ["", "a", "ü" * 5000, *("x" * k for k in range(300))]
    with h5py.File(path, "w", userblock_size=512) as file:
        file["text"] = texts
        file["texts_gone"] = texts
        del file["texts_gone"]
        file.attrs["text"] = "größer"
    with open_hdf5(path) as file:
        assert [text.decode() for text in file["text"][:]] == texts
        assert attribute(file, "text") == "größer"


@pytest.mark.parametrize("text", ["", "easgd", "größer \u4e16"])
def test_a_text_of_fixed_length_is_read_back_and_needs_no_heap(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.attrs["text"] = fixed_text(text)
    with open_hdf5(path) as file:
        assert attribute(file, "text") == text
    assert SIGNATURE not in path.read_bytes()


def test_a_checked_file_reads_at_its_own_place_and_closes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(10)) + collection((1, 5), (0, 0)) + collection((0, FREE)))
    file = CheckedFile(path)
    file.gives_heap = True
    descriptor = file._file
    assert (file.seek(0, os.SEEK_END), file.seek(4), file.tell()) == (10 + 2 * 4096, 4, 4)
    assert file.read(4) == bytes(range(4, 8))
    assert file.read(2) == bytes((8, 9))
    assert file.read(4096) == bytes(4096)  # of number 0 and size 0
    assert file.read(5000) == collection((0, FREE))
    assert file.read(1) == b""
    read_bytes = bytearray(b"abcde")
    for at, n_bytes, expected in ((8, 5, bytes((8, 9)) + collection()[:3]), (10 + 2 * 4096 - 1, 1, bytes(5))):
        file.seek(at)
        assert (file.readinto(read_bytes), read_bytes) == (n_bytes, expected)
    file.gives_heap = file.was_asked = False
    file.seek(10 + 4096)
    assert (file.read(4096), file.was_asked) == (bytes(4096), True)
    file.seek(2**64 - 8)
    assert file.read(8) == b""
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
