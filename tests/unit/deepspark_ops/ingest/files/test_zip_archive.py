"""Zips as Python's zipfile writes them, read member by member."""

import zipfile
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import open_archive, read_member_text
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.image_list import digest_image_list, index_image_list
from tests.reference.raw_sources import write_images


def zip_of(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def contents(reader, n):
    with reader.opened() as read:
        return [read(i) for i in range(n)]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_list_in_a_zip_gives_the_same_as_the_folder(tmp_path, method):
    folder = write_images(tmp_path / "d", 4).parent
    files = {f"top/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*.*")}
    archive = zip_of(tmp_path / "a.zip", files, method)
    index = index_image_list(Path(f"{archive}::top/list.txt"), None, tmp_path)
    plain = index_image_list(folder / "list.txt", None, tmp_path)
    assert (index.names, index.labels.tolist()) == (plain.names, plain.labels.tolist())
    assert contents(index.reader.subset([3, 1]), 2) == contents(plain.reader.subset([3, 1]), 2)
    assert digest_image_list(Path(f"{archive}::top/list.txt"), None) != digest_image_list(folder / "list.txt", None)


def test_missing_damaged_and_strangely_packed_members_are_bad_records(tmp_path):
    archive = zip_of(tmp_path / "a.zip", {"a": b"x" * 300, "b": b"y" * 300}, zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[content.index(b"yyy") + 5] ^= 1
    archive.write_bytes(content)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_BZIP2) as appended:
        appended.writestr("c", b"z" * 100)
    reader = open_archive(archive, tmp_path).reader(["a", "b", "c", "gone"])
    with reader.opened() as read:
        assert read(0) == b"x" * 300
        for i, finding in [(1, "its checksum differs"), (2, "packed by method 12"), (3, "no such file in the archive")]:
            with pytest.raises(RecordError, match=finding):
                read(i)


@pytest.mark.parametrize("field", [20, 42])
def test_a_member_beyond_the_end_of_the_zip_is_not_read(tmp_path, field):
    archive = zip_of(tmp_path / "a.zip", {"a": b"x" * 300, "b": b"y" * 300}, zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    entry = content.index(b"PK\x01\x02")  # of the directory: packed size at 20, place at 42
    content[entry + field : entry + field + 4] = (len(content) + 1).to_bytes(4, "little")
    archive.write_bytes(content)
    reader = open_archive(archive, tmp_path).reader(["a", "b"])
    with reader.opened() as read:
        with pytest.raises(RecordError, match="its place there lies outside of the archive"):
            read(0)
        assert read(1) == b"y" * 300


def test_a_zip_cut_short_or_without_the_list_says_so(tmp_path):
    archive = zip_of(tmp_path / "a.zip", {"train.txt": b"x 1\n"})
    with pytest.raises(ConfigError, match=r'a\.zip: no member "list\.txt"; its text files: train\.txt'):
        read_member_text(open_archive(archive, tmp_path), "list.txt")
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"cut\.zip: not a readable zip: .*; fetch it again"):
        open_archive(cut, tmp_path)
