"""Regular files alone are read, without waiting, and no more bytes than the caller allows."""

from __future__ import annotations

import errno
import os
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caffe_import.file_access.regular_file import (
    RefusedFileError,
    open_regular,
    regular_bytes,
    regular_path,
    regular_text,
)
from caffe_import.file_access.text_file import read_text_file
from tests.special_files import SPECIAL_KINDS, make_special

READERS: dict[str, Callable[[Path], Any]] = {
    "open": open_regular,
    "path": regular_path,
    "bytes": regular_bytes,
    "text": regular_text,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", SPECIAL_KINDS)
def test_a_special_file_is_refused_at_once_and_its_kind_is_named(tmp_path: Path, kind: str, reader: str) -> None:
    with make_special(kind, tmp_path / "file") as path, pytest.raises(OSError, match=SPECIAL_KINDS[kind]) as caught:
        READERS[reader](path)
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("reader", READERS)
def test_a_link_to_a_special_file_is_refused(tmp_path: Path, reader: str) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="a device; only regular files are read"):
        READERS[reader](tmp_path / "link")


def test_no_descriptor_stays_open_after_a_refusal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    n_open = len(os.listdir("/proc/self/fd"))
    for reader in READERS.values():
        with pytest.raises(OSError, match="named pipe"):
            reader(tmp_path / "pipe")
    assert regular_path(Path(__file__)) == Path(__file__)
    assert len(os.listdir("/proc/self/fd")) == n_open


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_up_to_the_bound_is_read_whole(tmp_path: Path, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    (tmp_path / "file").write_bytes(content)
    assert regular_bytes(tmp_path / "file", max_bytes=100) == content
    with open_regular(tmp_path / "file") as file:
        assert file.read() == content


def test_a_longer_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 2**40)
    with pytest.raises(OSError, match="more than 1,000 bytes") as caught:
        regular_bytes(tmp_path / "file", max_bytes=1000)
    assert caught.value.errno == errno.EFBIG


def test_a_regular_file_without_end_is_read_up_to_the_bound() -> None:
    endless = Path("/proc/self/pagemap")  # claims 0 bytes, and has 2**38
    assert endless.stat().st_size == 0
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="more than 5,000,000 bytes"):
            regular_bytes(endless, max_bytes=5_000_000)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_a_file_of_proc_that_says_it_is_empty_is_read() -> None:
    assert "Name:" in regular_text("/proc/self/status")


def test_line_ends_and_encodings_are_those_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("a\r\nb\rc\né".encode())
    assert regular_text(tmp_path / "file") == (tmp_path / "file").read_text(encoding="utf-8") == "a\nb\nc\né"
    with pytest.raises(UnicodeDecodeError):
        regular_text(tmp_path / "file", encoding="ascii")


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    for reader in READERS.values():
        with pytest.raises(FileNotFoundError):
            reader(tmp_path / "nothing")


def test_a_missing_file_with_a_backslash_is_said_to_have_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file or directory \(write / in place of the backslashes"):
        regular_bytes(tmp_path / "cat\\1.jpg", max_bytes=1)
    (tmp_path / "a\\b").write_bytes(b"x")
    assert regular_bytes(tmp_path / "a\\b", max_bytes=1) == b"x"


def test_a_socket_that_is_removed_meanwhile_is_missing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        (tmp_path / "s").unlink()
        with pytest.raises(FileNotFoundError):
            regular_bytes(tmp_path / "s")


def test_a_binary_file_is_no_list(tmp_path: Path) -> None:
    path = tmp_path / "part.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n\0\0")
    with pytest.raises(RefusedFileError, match="a binary file; allowed: a text with an entry on each line"):
        read_text_file(path)
    path.write_text("cat/1.jpg 0\n", encoding="utf-16")
    assert read_text_file(path) == "cat/1.jpg 0\n"
