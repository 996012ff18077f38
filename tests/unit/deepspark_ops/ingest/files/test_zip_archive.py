"""Zips as Python's zipfile writes them, read member by member."""

import gzip
import tarfile
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files import archive as archive_module
from deepspark_ops.ingest.files.archive import open_archive, read_member_text
from deepspark_ops.ingest.files.source_folders import sources_limited
from deepspark_ops.ingest.records import RecordError
from tests.reference.ingest_in_process import index_of, source_digest_of
from tests.reference.raw_sources import write_images

index_image_list = partial(index_of, "image_list")
digest_image_list = partial(source_digest_of, "image_list")


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
    index = index_image_list(Path(f"{archive}::top/list.txt"), tmp_path)
    plain = index_image_list(folder / "list.txt", tmp_path)
    assert (index.names, index.labels.tolist()) == (plain.names, plain.labels.tolist())
    assert contents(index.reader.subset([3, 1]), 2) == contents(plain.reader.subset([3, 1]), 2)
    assert digest_image_list(Path(f"{archive}::top/list.txt")) != digest_image_list(folder / "list.txt")


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


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("says_less", [False, True])
def test_a_member_is_unpacked_up_to_a_bound(tmp_path, method, says_less):
    """A megabyte of deflated zeros would become a gigabyte in memory."""
    archive = zip_of(tmp_path / "a.zip", {"zeros.png": bytes(3 << 20), "list.txt": b"a 1\n" * 500_000}, method)
    if says_less:  # a directory with a wrong size: the unpacked size is at 24
        content = bytearray(archive.read_bytes())
        entry = content.index(b"PK\x01\x02")
        content[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
        archive.write_bytes(content)
    config = IngestConfig(source=archive, output=tmp_path / "out", member_mib=1)
    finding = r"has more than 1 MiB when it is unpacked; give member_mib=\d+ or more"
    with sources_limited(config):
        opened = open_archive(archive, tmp_path)
        reader = opened.reader(["zeros.png"])
        with pytest.raises(DataError, match=rf'a.zip: member "list.txt": {finding}'):
            read_member_text(opened, "list.txt")
    tracemalloc.start()
    with reader.opened() as read, pytest.raises(RecordError, match=finding):
        read(0)
    assert tracemalloc.get_traced_memory()[1] < 3 << 20
    tracemalloc.stop()
    enough = config.model_copy(update={"member_mib": 3})
    with sources_limited(enough):
        assert contents(open_archive(archive, tmp_path / "other").reader(["zeros.png"]), 1) == [bytes(3 << 20)]


def test_a_compressed_tar_is_unpacked_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "_GIB", 4 << 20)
    plain = tmp_path / "a.tar"
    with tarfile.open(plain, "w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    packed = tmp_path / "a.tar.gz"
    with gzip.open(packed, "wb", 1) as handle:
        handle.write(plain.read_bytes())
        for _ in range(5):
            handle.write(bytes(1 << 20))
    config = IngestConfig(source=packed, output=tmp_path / "out", unpacked_gib=1)
    finding = "a.tar.gz: has more than 1 GiB when it is unpacked; give unpacked_gib=2 or more"
    with sources_limited(config), pytest.raises(DataError, match=finding):
        open_archive(packed, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "a.tar.gz"]
    with sources_limited(config.model_copy(update={"unpacked_gib": 2})):
        assert list(open_archive(packed, tmp_path).members) == ["empty"]


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
