"""Tars whose headers lie about sizes: a message that names the archive, and no more memory than for a header."""

import io
import tarfile

import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.archive import open_archive

BLOCK = tarfile.BLOCKSIZE


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a block, as GNU tar does: a size beyond eight octal digits, or a negative size, is in base 256."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def content_of(name: str, data: bytes) -> bytes:
    return header(name, len(data)) + data + bytes(-len(data) % BLOCK)


@pytest.mark.parametrize("size", [2**60, 2**63, 2**80, 5 * BLOCK, -1, -BLOCK, -(2**62)])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, b"Z"])
def test_a_member_that_ends_behind_the_archive_is_named(tmp_path, size, kind):
    tar = tmp_path / "a.tar"
    tar.write_bytes(content_of("a.png", b"x" * 100) + header("b.png", size, kind) + bytes(2 * BLOCK))
    finding = rf"member 'b\.png' has {size:,} bytes by its header"
    with pytest.raises(DataError, match=rf"a\.tar: not a readable tar: {finding}") as caught:
        open_archive(tar, tmp_path)
    assert "fetch it again" in str(caught.value)


@pytest.mark.parametrize("size", [2**60, 2**63, 2**80, -(2**62)])
@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_extended_header_of_an_absurd_size_is_refused(tmp_path, size, kind, is_first):
    tar = tmp_path / "a.tar"
    first_member = b"" if is_first else content_of("a.png", b"x" * 100)
    tar.write_bytes(first_member + header("long", size, kind) + content_of("b.png", b"y") + bytes(2 * BLOCK))
    with pytest.raises(DataError, match=r"a\.tar: "):
        open_archive(tar, tmp_path)


def test_extended_headers_without_end_are_refused(tmp_path):
    tar = tmp_path / "a.tar"
    tar.write_bytes(header("long", 0, tarfile.XHDTYPE) * 20_000)
    with pytest.raises(DataError, match=r"a\.tar: not a readable tar: its headers refer to further ones without end"):
        open_archive(tar, tmp_path)


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_an_honest_archive_is_read(tmp_path, style):
    tar = tmp_path / "a.tar"
    name = "n" * (90 if style == tarfile.USTAR_FORMAT else 3_000)
    contents = {"folder/a.png": b"x" * 700, name: b"y", "empty": b""}
    with tarfile.open(tar, "w", format=style) as archive:
        for member_name, data in contents.items():
            member = tarfile.TarInfo(member_name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with open_archive(tar, tmp_path).reader(list(contents)).opened() as read:
        assert [read(index) for index in range(3)] == list(contents.values())
