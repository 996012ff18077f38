"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.file_access.whole_file import remove_unfinished, write_text_whole, write_whole
from deepspark_ops.stores.writing import write_text


def test_file_appears_at_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    with write_whole(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_text_keeps_the_bytes_of_a_files_name(tmp_path: Path) -> None:
    for write in (write_text_whole, write_text):
        write(tmp_path / "a.txt", b"caf\xe9 \xc3\xa9".decode("utf-8", "surrogateescape"))
        assert (tmp_path / "a.txt").read_bytes() == b"caf\xe9 \xc3\xa9"


def test_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), write_whole(path) as temporary:
        temporary.write_text((tmp_path / "absent").read_text())
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_error_of_a_write_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, write_whole(tmp_path / "a.txt"):
        Path("/dev/full").write_text("more")
    assert caught.value.filename == str(tmp_path / "a.txt")
    assert list(tmp_path.iterdir()) == []


def test_mode_is_private_while_written_and_as_asked_in_the_end(tmp_path: Path) -> None:
    with write_whole(tmp_path / "a") as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    with write_whole(tmp_path / "b", mode=0o600):
        pass
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600


def test_text_is_utf_8(tmp_path: Path) -> None:
    write_text_whole(tmp_path / "a", "Größe")
    assert (tmp_path / "a").read_bytes() == "Größe".encode()


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    write_text_whole(tmp_path / "a.tmp", "whole")
    (tmp_path / ".hidden").touch()
    (tmp_path / ".folder.tmp").mkdir()
    with write_whole(tmp_path / "b.txt") as temporary:
        temporary.write_text("half")
        leftover = temporary.with_name(f"{temporary.name[:-4]}x.tmp")
        leftover.write_text("half")
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".folder.tmp", ".hidden", "a.tmp", "b.txt"]
    remove_unfinished(tmp_path / "none")
